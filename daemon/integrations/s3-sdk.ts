/** What is used of the SDK: the build leaves out the rest of it. */
export {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  PutObjectCommand,
  paginateListObjectsV2,
  paginateListParts,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3'

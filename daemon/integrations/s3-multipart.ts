import { createHash, hash } from 'node:crypto'
import type { S3Client } from '@aws-sdk/client-s3'
import { ArchiveFailure } from '../../src/audit/retention/ports.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type At, confirm, sdk } from './s3.ts'

/** One part is in memory at a time. Some storages take parts of one size alone. */
export const partBytes = 16 * 2 ** 20
/** Of S3. */
const maxParts = 10_000

/**
 * Uploads a stream of unknown length in parts. The object is there once all of it is. The storage compares each part with its
 * SHA-256; at the end the whole is compared, and removed if it is another. @throws what the stream or the storage throws
 */
export async function uploadStream(
  s3: S3Client,
  at: At,
  chunks: AsyncIterable<Uint8Array>,
): Promise<{ bytes: number }> {
  const commands = await sdk()
  const upload = new commands.CreateMultipartUploadCommand({ ...at, ChecksumAlgorithm: 'SHA256' })
  const { UploadId } = await s3.send(upload)
  const parts: { PartNumber: number; ETag: string | undefined; ChecksumSHA256: string }[] = []
  const whole = createHash('sha256')
  const ofParts = createHash('sha256')
  let bytes = 0
  try {
    for await (const Body of partsOf(chunks)) {
      if (parts.length === maxParts) {
        throw new SetupError(
          `An archive in object storage has at most ${(maxParts * partBytes) / 2 ** 30} GiB: back it up to a directory`,
        )
      }
      const PartNumber = parts.length + 1
      const sha256 = hash('sha256', Body, 'buffer')
      whole.update(Body)
      ofParts.update(sha256)
      bytes += Body.length
      const ChecksumSHA256 = sha256.toString('base64')
      const part = { ...at, UploadId, PartNumber, Body, ContentLength: Body.length, ChecksumSHA256 }
      const { ETag } = await s3.send(new commands.UploadPartCommand(part))
      parts.push({ PartNumber, ETag, ChecksumSHA256 })
    }
    const MultipartUpload = { Parts: parts }
    await s3.send(new commands.CompleteMultipartUploadCommand({ ...at, UploadId, MultipartUpload }))
  } catch (error) {
    // Otherwise the parts cost money until somebody finds them; `sweepUploads` tries again.
    await s3.send(new commands.AbortMultipartUploadCommand({ ...at, UploadId })).catch(() => {})
    throw error
  }
  const reported = `${ofParts.digest('base64')}-${parts.length}`
  try {
    await confirm(s3, at, bytes, { reported, whole: whole.digest('base64') })
  } catch (error) {
    // A storage that does not answer may have it all.
    if (error instanceof ArchiveFailure) await s3.send(new commands.DeleteObjectCommand(at)).catch(() => {})
    throw error
  }
  return { bytes }
}

async function* partsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let part: Uint8Array[] = []
  let length = 0
  for await (let chunk of chunks) {
    while (length + chunk.length >= partBytes) {
      const room = partBytes - length
      yield Buffer.concat([...part, chunk.subarray(0, room)])
      chunk = chunk.subarray(room)
      part = []
      length = 0
    }
    part.push(chunk)
    length += chunk.length
  }
  if (length > 0) yield Buffer.concat(part)
}

/** Ends uploads below a prefix whose last part came before this time, of keys that `isOwn` accepts. */
export async function sweepUploads(
  s3: S3Client,
  { Bucket, Prefix }: { Bucket: string; Prefix: string },
  isOwn: (key: string) => boolean,
  before: Date,
): Promise<void> {
  const commands = await sdk()
  const { Uploads = [] } = await s3.send(new commands.ListMultipartUploadsCommand({ Bucket, Prefix }))
  for (const { Key, UploadId, Initiated } of Uploads) {
    if (Key === undefined || !isOwn(Key) || Initiated === undefined || Initiated >= before) continue
    let isActive = false
    for await (const { Parts = [] } of commands.paginateListParts({ client: s3 }, { Bucket, Key, UploadId }))
      isActive ||= Parts.some(({ LastModified }) => LastModified !== undefined && LastModified >= before)
    if (!isActive) await s3.send(new commands.AbortMultipartUploadCommand({ Bucket, Key, UploadId }))
  }
}

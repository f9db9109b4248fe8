import { createHash } from 'node:crypto'
import type { S3Client } from '@aws-sdk/client-s3'
import { type Archive, ArchiveFailure } from '../../src/audit/retention/ports.ts'
import { BlockedAddressError, checkHost, guardedAgents, type OutboundSettings } from './guard.ts'
import type { Provider } from './provider.ts'
import { readS3, type S3Settings } from './s3-settings.ts'

/** Object storage with the S3 protocol, of AWS or anybody else. */
export const s3Archive: Provider<Archive, S3Settings> = {
  prefix: 'AUDIT_ARCHIVE_S3',
  secrets: ['AUDIT_ARCHIVE_S3_ACCESS_KEY_ID', 'AUDIT_ARCHIVE_S3_SECRET_ACCESS_KEY'],
  read: (env) => readS3(env, 'AUDIT_ARCHIVE_S3_'),
  open: bucketArchive,
}

/** The SDK is loaded with the first object: a service without an archive never loads it. */
export function bucketArchive(settings: S3Settings, outbound: OutboundSettings): Archive {
  const { bucket, prefix } = settings
  let client: Promise<S3Client> | undefined
  return {
    async put({ key: name, body, sha256, type }) {
      const key = prefix === '' ? name : `${prefix}/${name}`
      const at = { Bucket: bucket, Key: key }
      const wanted = sha256.toString('base64')
      try {
        client ??= openS3(settings, outbound)
        const s3 = await client
        const { PutObjectCommand } = await sdk()
        await s3.send(
          new PutObjectCommand({
            ...at,
            Body: body,
            ContentLength: body.length,

            ContentType: type,
            ChecksumSHA256: wanted,
          }),
        )
        await confirm(s3, at, body.length, { reported: wanted, whole: wanted })
      } catch (error) {
        if (error instanceof ArchiveFailure) throw error
        throw new ArchiveFailure(`${objectUrl(settings, key)}: ${s3FailureReason(error)}`, { cause: error })
      }
    },
  }
}

export const sdk = () => import('./s3-sdk.ts')

/** A client that connects only to checked addresses. @throws BlockedAddressError */
export async function openS3(
  { endpoint, region, credentials }: S3Settings,
  outbound: OutboundSettings,
  { maxAttempts = 3, milliseconds = 120_000 } = {},
): Promise<S3Client> {
  if (endpoint !== undefined) checkHost(new URL(endpoint), outbound)
  const { S3Client: Client } = await sdk()
  const { http, https } = guardedAgents(outbound)
  return new Client({
    region,
    ...(credentials && { credentials }),
    ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
    // The service checks its own checksum; others are not supported by every storage.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    maxAttempts,
    requestHandler: {
      httpAgent: http,
      httpsAgent: https,
      connectionTimeout: 10_000,
      requestTimeout: milliseconds,
    },
  })
}

export type At = { Bucket: string; Key: string }

/**
 * If the storage does not return the SHA-256 of an object, the object itself is read. `told` is what the storage returns: of an
 * object in parts the SHA-256 of those of its parts.
 */
export async function confirm(
  s3: S3Client,
  at: At,
  length: number,
  wanted: { reported: string; whole: string },
): Promise<void> {
  const { GetObjectCommand, HeadObjectCommand } = await sdk()
  const head = await s3.send(new HeadObjectCommand({ ...at, ChecksumMode: 'ENABLED' }))
  const where = `s3://${at.Bucket}/${at.Key}`
  if (head.ContentLength !== length) {
    throw new ArchiveFailure(
      `${where}: it holds ${head.ContentLength ?? 'an unknown number of'} bytes of ${length}`,
    )
  }
  const reported = head.ChecksumSHA256
  const isHeld =
    reported === undefined
      ? (await hashOf((await s3.send(new GetObjectCommand(at))).Body as AsyncIterable<Uint8Array>)) ===
        wanted.whole
      : reported === wanted.reported
  if (!isHeld) throw new ArchiveFailure(`${where}: the stored object is not what was sent`)
}

async function hashOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of body) hash.update(chunk)
  return hash.digest('base64')
}

export const objectUrl = ({ endpoint, bucket }: S3Settings, key: string): string =>
  `s3://${bucket}/${key}${endpoint === undefined ? '' : ` at ${endpoint}`}`

/** The reason of a failure, without request headers or signatures. */
export function s3FailureReason(error: unknown): string {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (at instanceof BlockedAddressError) return at.message
  }
  const { name, message, code, errors } = error as Error & { code?: string; errors?: Error[] }
  if (code !== undefined) return `it cannot be reached (${code})`
  if (errors?.length)
    return `it cannot be reached (${(errors[0] as NodeJS.ErrnoException).code ?? 'unknown'})`
  return name === 'Error' || name === message ? message : `${name}: ${message}`
}

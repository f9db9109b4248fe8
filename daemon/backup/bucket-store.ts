import { Readable } from 'node:stream'
import type { S3Client } from '@aws-sdk/client-s3'
import { ArchiveFailure } from '../../src/audit/retention/ports.ts'
import { SetupError } from '../../src/core/errors.ts'
import type { OutboundSettings } from '../integrations/guard.ts'
import { objectUrl, openS3, s3FailureReason, sdk } from '../integrations/s3.ts'
import { sweepUploads, uploadStream } from '../integrations/s3-multipart.ts'
import type { S3Settings } from '../integrations/s3-settings.ts'
import { isArchiveName } from './archive-name.ts'
import type { ArchiveStore, StoredArchive } from './archive-store.ts'

/** A part, or the pause between two pieces of a download, takes no longer. */
const milliseconds = 600_000

export function bucketStore({
  settings,
  outbound,
}: {
  settings: S3Settings
  outbound: OutboundSettings
}): ArchiveStore {
  const { bucket: Bucket, prefix } = settings
  const keyOf = (name: string) => (prefix === '' ? name : `${prefix}/${name}`)
  const placeOf = (name: string) => `s3://${Bucket}/${keyOf(name)}`
  const Prefix = prefix === '' ? '' : `${prefix}/`
  let client: Promise<S3Client> | undefined
  const asking = async <T>(what: string, key: string, work: (s3: S3Client) => Promise<T>): Promise<T> => {
    try {
      client ??= openS3(settings, outbound, { milliseconds })
      return await work(await client)
    } catch (error) {
      if (error instanceof SetupError) throw error
      const reason = error instanceof ArchiveFailure ? error.message : s3FailureReason(error)
      throw new SetupError(`Cannot ${what} ${objectUrl(settings, key)}: ${reason}`, { cause: error })
    }
  }
  const find = (name: string): Promise<number | undefined> =>
    asking('read', keyOf(name), async (s3) => {
      const { HeadObjectCommand } = await sdk()
      try {
        return (await s3.send(new HeadObjectCommand({ Bucket, Key: keyOf(name) }))).ContentLength ?? 0
      } catch (error) {
        const { $metadata } = error as { $metadata?: { httpStatusCode?: number } }
        if ($metadata?.httpStatusCode === 404) return undefined
        throw error
      }
    })
  return {
    placeOf,
    list: () =>
      asking('list', Prefix, async (s3) => {
        const { paginateListObjectsV2 } = await sdk()
        const found: StoredArchive[] = []
        const pages = paginateListObjectsV2({ client: s3 }, { Bucket, Prefix, Delimiter: '/' })
        for await (const { Contents = [] } of pages) {
          for (const { Key = '', Size = 0 } of Contents) {
            const name = Key.slice(Prefix.length)
            if (isArchiveName(name)) found.push({ name, place: placeOf(name), bytes: Size })
          }
        }
        return found.sort((a, b) => (a.name < b.name ? 1 : -1))
      }),
    async write(name, chunks) {
      if ((await find(name)) !== undefined)
        throw new SetupError(`${placeOf(name)} exists already: a backup overwrites nothing`)
      // What fails in the source is not a failure of the storage.
      let failure: { error: unknown } | undefined
      const watched = async function* () {
        try {
          yield* chunks
        } catch (error) {
          failure = { error }
          throw error
        }
      }
      return asking('write', keyOf(name), (s3) =>
        uploadStream(s3, { Bucket, Key: keyOf(name) }, watched()),
      ).catch((error: unknown) => {
        throw failure === undefined ? error : failure.error
      })
    },
    async bytesOf(name) {
      const bytes = await find(name)
      if (bytes === undefined) throw new SetupError(`Cannot read ${placeOf(name)}: there is no such object`)
      return bytes
    },
    read: (name, bytes) =>
      asking('read', keyOf(name), async (s3) => {
        const { GetObjectCommand } = await sdk()
        const Range = bytes === undefined ? undefined : `bytes=0-${bytes - 1}`
        const { Body } = await s3.send(new GetObjectCommand({ Bucket, Key: keyOf(name), Range }))
        if (Body instanceof Readable) return Body
        throw new Error('It has no content')
      }),
    remove: (name) =>
      asking('remove', keyOf(name), async (s3) => {
        const { DeleteObjectCommand } = await sdk()
        await s3.send(new DeleteObjectCommand({ Bucket, Key: keyOf(name) }))
      }),
    sweep: (before) =>
      asking('remove what a killed backup left of', Prefix, (s3) =>
        sweepUploads(s3, { Bucket, Prefix }, (key) => isArchiveName(key.slice(Prefix.length)), before),
      ),
  }
}

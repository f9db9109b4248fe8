import type { S3Client } from '@aws-sdk/client-s3'
import type { Logger } from 'pino'
import { Problem } from '../../src/core/errors.ts'
import type { BinaryStore } from './binaries.ts'
import type { OutboundSettings } from './guard.ts'
import { objectUrl, openS3, s3FailureReason, sdk } from './s3.ts'
import type { S3Settings } from './s3-settings.ts'

/** Validity of a signed address for a machine, in seconds. */
const seconds = 900
/** How long the size of an object is cached: an updating fleet requests the same object concurrently. */
const knownMs = 10_000
const maxKnown = 1000

/** Limits while a machine waits. */
const patience = { maxAttempts: 2, milliseconds: 5000 }

/** Files in object storage, below `<prefix>/<version>/`: machines are redirected to signed addresses. */
export function bucketBinaries(settings: S3Settings, outbound: OutboundSettings, log: Logger): BinaryStore {
  const { bucket: Bucket, prefix } = settings
  let client: Promise<S3Client> | undefined
  const known = new Map<string, { size: Promise<number | undefined>; until: number }>()

  const at = (version: string, name: string) => ({
    Bucket,
    Key: [prefix, version, name].filter((part) => part !== '').join('/'),
  })

  async function asking<T>(key: string, work: (s3: S3Client) => Promise<T>): Promise<T> {
    try {
      client ??= openS3(settings, outbound, patience)
      return await work(await client)
    } catch (error) {
      log.warn(
        { place: objectUrl(settings, key), reason: s3FailureReason(error) },
        'the storage of binaries failed',
      )
      throw new Problem('unavailable')
    }
  }

  const ask = (version: string, name: string): Promise<number | undefined> => {
    const place = at(version, name)
    return asking(place.Key, async (s3) => {
      const { HeadObjectCommand } = await sdk()
      try {
        return (await s3.send(new HeadObjectCommand(place))).ContentLength
      } catch (error) {
        if ((error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode === 404)
          return undefined
        throw error
      }
    })
  }

  function sizeOf(version: string, name: string): Promise<number | undefined> {
    const [key, now] = [`${version}/${name}`, performance.now()]
    const found = known.get(key)
    if (found && found.until > now) return found.size
    const size = ask(version, name)
    // Failures are not cached.
    size.catch(() => known.delete(key))
    if (known.size >= maxKnown) known.clear()
    known.set(key, { size, until: now + knownMs })
    return size
  }

  return {
    isLocal: true,
    sizeOf,
    async find({ version, name, size }) {
      if ((await sizeOf(version, name)) !== size) return undefined
      const place = at(version, name)
      return asking(place.Key, async (s3) => ({ location: await presigned(s3, place) }))
    },
  }
}

type Request = {
  protocol: string
  hostname: string
  port?: number
  path: string
  query: Record<string, string>
  headers: Record<string, string>
}
type Presigner = { presign(request: Request, options: { expiresIn: number }): Promise<Request> }

/** The signed address of a request (AWS Signature Version 4, query parameters). */
async function presigned(s3: S3Client, place: { Bucket: string; Key: string }): Promise<string> {
  const { GetObjectCommand } = await sdk()
  const command = new GetObjectCommand(place)
  const stack = s3.middlewareStack.clone()
  const take = () => async (args: { request: Request }) => ({
    response: {},
    output: { $metadata: {}, taken: args.request },
  })
  stack.addRelativeTo(take as never, { relation: 'before', toMiddleware: 'awsAuthMiddleware', name: 'take' })
  const send = command.resolveMiddleware(stack as never, s3.config as never, {})
  const { taken } = (await send(command as never)).output as unknown as { taken: Request }
  const signer = (await s3.config.signer()) as unknown as Presigner
  // Every signed header would have to be sent by the user of the address.
  taken.headers = { host: taken.headers.host!, 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' }
  const { protocol, hostname, port, path, query } = await signer.presign(taken, { expiresIn: seconds })
  const parameters = Object.entries(query).map((pair) => pair.map(encodeURIComponent).join('='))
  return `${protocol}//${hostname}${port === undefined ? '' : `:${port}`}${path}?${parameters.join('&')}`
}

import { type FileHandle, open, rm } from 'node:fs/promises'
import { isLoopbackHost } from '../../cli/transport.ts'
import type { Transport, TransportResponse } from '../../core/client.ts'
import type { MonotonicClock } from '../clock.ts'
import { toUpdateFailure, UpdateFailure } from './failure.ts'
import { sha256Of } from './files.ts'
import type { Candidate } from './offer.ts'

/** Time limit of the download, all attempts included. */
const timeoutMs = 300_000
/** Longest time without receiving a byte. */
const stallMs = 30_000
const maxRedirects = 5

export type DownloadSource = {
  transport: Transport
  /** The service; its own files may come over the same protocol as its other replies. */
  service: string
  clock: MonotonicClock
  random: () => number
  signal: AbortSignal
}

/**
 * Downloads the file to `to`, continuing an earlier attempt. The content is verified by size and SHA-256, so the
 * source need not be trusted: it may be any host over TLS. @throws UpdateFailure
 */
export async function download(candidate: Candidate, to: string, source: DownloadSource): Promise<void> {
  const deadline = AbortSignal.timeout(timeoutMs)
  const signal = AbortSignal.any([source.signal, deadline])
  for (let tries = 1; ; tries += 1) {
    try {
      await attempt(candidate, to, { ...source, signal })
      return
    } catch (error) {
      if (source.signal.aborted) throw source.signal.reason
      if (error instanceof UpdateFailure && error.kind !== 'later') {
        // A wrong file, or no space for it: there is nothing to continue. That reason is what matters.
        await rm(to, { force: true }).catch(() => {})
        throw error
      }
      const pause = Math.min(30_000, 1000 * 2 ** (tries - 1)) * (1 - 0.3 * source.random())
      const { message } = error as Error
      if (deadline.aborted)
        throw new UpdateFailure('later', `the download did not finish within 5 minutes (${message})`)
      if (tries >= 6) throw new UpdateFailure('later', message)
      // An abort ends the pause, and the next attempt fails with its reason.
      await source.clock.sleep(pause, signal).catch(() => {})
    }
  }
}

async function attempt({ url, sha256, size }: Candidate, to: string, source: DownloadSource): Promise<void> {
  const file = await onDisk(open(to, 'a', 0o755))
  try {
    let { size: there } = await onDisk(file.stat())
    if (there > size) {
      await onDisk(file.truncate(0))
      there = 0
    }
    const before = there
    if (there < size) there = await receive(file, { url, size, there }, source)
    if (there < size) throw new UpdateFailure('later', 'the connection was closed before the end')
    await onDisk(file.sync())
    await onDisk(file.chmod(0o755))
    if ((await onDisk(sha256Of(to))) !== sha256) {
      if (before > 0) {
        await onDisk(file.truncate(0))
        throw new UpdateFailure('later', 'the parts of the file do not match')
      }
      throw new UpdateFailure('refused', 'its checksum is not the one that was signed')
    }
  } finally {
    await file.close()
  }
}

const onDisk = <T>(work: Promise<T>): Promise<T> =>
  work.catch((error) => {
    throw toUpdateFailure(error)
  })

/** Returns the number of bytes in the file afterwards. */
async function receive(
  file: FileHandle,
  { url, size, there }: { url: string; size: number; there: number },
  source: DownloadSource,
): Promise<number> {
  const stall = new AbortController()
  const signal = AbortSignal.any([source.signal, stall.signal])
  const reset = () => setTimeout(() => stall.abort(new Error('nothing came for 30 s')), stallMs)
  let timer = reset()
  try {
    const reply = await follow(new URL(url, source.service), there, { ...source, signal })
    let count = there
    // The whole file again, when the server does not support ranges.
    if (reply.status === 200 || beginOf(reply) !== there) {
      await onDisk(file.truncate(0))
      count = 0
      if (reply.status !== 200) throw new UpdateFailure('later', 'the server sent another range')
    }
    for await (const chunk of reply.body) {
      clearTimeout(timer)
      timer = reset()
      count += chunk.length
      if (count > size) throw new UpdateFailure('refused', 'it is larger than the signed size')
      await writeAll(file, chunk)
    }
    return count
  } catch (error) {
    throw stall.signal.aborted ? stall.signal.reason : error
  } finally {
    clearTimeout(timer)
  }
}

async function writeAll(file: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let at = 0; at < chunk.length; ) at += (await onDisk(file.write(chunk, at))).bytesWritten
}

const beginOf = ({ headers }: TransportResponse): number =>
  Number(/^bytes (\d+)-/.exec(headers['content-range'] ?? '')?.[1] ?? Number.NaN)

async function follow(
  url: URL,
  there: number,
  { transport, service, signal }: DownloadSource,
): Promise<TransportResponse> {
  for (let redirects = 0; redirects <= maxRedirects; redirects += 1) {
    if (!isAllowedSource(url, service)) {
      throw new UpdateFailure('refused', `${url.origin} is not allowed without TLS`)
    }
    const headers: Record<string, string> = there > 0 ? { range: `bytes=${there}-` } : {}
    const reply = await transport({ method: 'GET', url: url.href, headers, signal })
    const { location } = reply.headers
    if (reply.status >= 300 && reply.status < 400 && location) {
      await drain(reply)
      url = new URL(location, url)
      continue
    }
    if (reply.status === 200 || reply.status === 206) return reply
    await drain(reply)
    const lasting = reply.status >= 400 && reply.status < 500 && ![408, 416, 429].includes(reply.status)
    // 416: the partial file does not match this one. Start over.
    if (reply.status === 416) there = 0
    else throw new UpdateFailure(lasting ? 'failed' : 'later', `${url.origin} answers ${reply.status}`)
  }
  throw new UpdateFailure('failed', 'there are too many redirects')
}

/** Reads the body, so that the connection can be reused. */
async function drain({ body }: TransportResponse): Promise<void> {
  for await (const _ of body);
}

const isAllowedSource = (url: URL, service: string): boolean =>
  url.protocol === 'https:' ||
  (url.protocol === 'http:' && (isLoopbackHost(url.hostname) || url.origin === new URL(service).origin))

import { readSync, read as readWithCallback } from 'node:fs'
import { promisify } from 'node:util'
import { Worker } from 'node:worker_threads'
import { packageModule } from '../../core/package-files.ts'
import type { ByteRange, RangeMessage, RangeTask, ScannedRange } from './range-thread.ts'
import type { Verdict } from './verdict.ts'
import { ChainVerifier, type VerifierOptions } from './verifier.ts'

const script = packageModule('src/audit/verifier/range-thread.ts')

const read = promisify(readWithCallback)

const newline = 0x0a
/** Bytes of one range. */
const defaultRangeBytes = 16 << 20
/** What a thread allocates is garbage at once: without a limit its heap grows for nothing. */
const threadLimits = { maxYoungGenerationSizeMb: 4 }

export type RangeOptions = {
  size: number
  threads: number
  trust?: VerifierOptions | undefined
  range?: number
}

/**
 * Verifies a chain file of `size` bytes in several threads. Each thread reports ranges that are linked in
 * themselves; here they are joined. From the first place where that fails the file is read in order, so that
 * the fault is reported as without threads.
 */
export async function verifyRanges(
  descriptor: number,
  { size, threads, trust, range = defaultRangeBytes }: RangeOptions,
  seen: (entries: number) => void = () => {},
): Promise<Verdict> {
  const verifier = new ChainVerifier(trust)
  const start = readHeaderLine(verifier, descriptor, size)
  const { start: place } = verifier
  if (!place) return readSequentially(verifier, descriptor, start, seen)
  const task: RangeTask = {
    descriptor,
    place: { orgId: place.orgId, watch: place.watch },
    tree: place.forest !== undefined,
    ranges: splitRanges(start, size, range),
    taken: new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)),
  }
  return readSequentially(verifier, descriptor, await scanInThreads(verifier, task, threads, seen), seen)
}

/** Passes the header to the verifier; returns where the next line begins. */
function readHeaderLine(verifier: ChainVerifier, descriptor: number, size: number): number {
  const piece = Buffer.alloc(64 << 10)
  for (let at = 0; at < size; ) {
    const length = readSync(descriptor, piece, 0, piece.length, at)
    if (length === 0) return at
    const end = piece.subarray(0, length).indexOf(newline) + 1
    const taken = end === 0 ? length : end
    at += taken
    if (verifier.push(piece.subarray(0, taken)) || end > 0) return at
  }
  return size
}

const splitRanges = (start: number, size: number, range: number): ByteRange[] =>
  Array.from({ length: Math.ceil((size - start) / range) }, (_, at) => ({
    from: start + at * range,
    to: Math.min(size, start + (at + 1) * range),
  }))

/** Joins the results of the threads, in order; returns where sequential reading continues. */
async function scanInThreads(
  verifier: ChainVerifier,
  task: RangeTask,
  threads: number,
  seen: (entries: number) => void,
): Promise<number> {
  const { ranges } = task
  const found = ranges.map(() => Promise.withResolvers<ScannedRange>())
  // The loop below sees a failure when it awaits the range; until then the rejection must not count as
  // unhandled.
  for (const { promise } of found) promise.catch(() => {})
  const workers = Array.from({ length: Math.min(threads, ranges.length) }, () => {
    const worker = new Worker(script, { workerData: task, resourceLimits: threadLimits })
    worker.on('message', ({ index, walked }: RangeMessage) => found[index]!.resolve(walked))
    worker.on('error', (error) => {
      for (const { reject } of found) reject(error)
    })
    return worker
  })
  try {
    let at = ranges[0]?.from ?? 0
    for (let index = 0; index < ranges.length; index++) {
      const { run, from, at: end, isWhole } = await found[index]!.promise
      if (from !== at && end > at) return at
      if (run && !verifier.append(run)) return at
      at = Math.max(at, end)
      seen(verifier.entries)
      if (!isWhole) return at
    }
    return at
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()))
  }
}

async function readSequentially(
  verifier: ChainVerifier,
  descriptor: number,
  from: number,
  seen: (entries: number) => void,
): Promise<Verdict> {
  // Not a stream: it would close a descriptor that it does not own.
  const piece = Buffer.allocUnsafe(256 << 10)
  for (let at = from; ; ) {
    const { bytesRead } = await read(descriptor, piece, 0, piece.length, at)
    if (bytesRead === 0) return verifier.end()
    const verdict = verifier.push(piece.subarray(0, bytesRead))
    if (verdict) return verdict
    seen(verifier.entries)
    at += bytesRead
  }
}

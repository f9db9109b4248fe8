import { once } from 'node:events'
import { readSync, read as readWithCallback } from 'node:fs'
import { promisify } from 'node:util'
import { Worker } from 'node:worker_threads'
import { ownModule } from '../../core/own-modules.ts'
import type { Range, RangeTask, Walked } from './range-thread.ts'
import type { Verdict } from './verdict.ts'
import { ChainVerifier, type Trust } from './verifier.ts'

const script = ownModule('src/audit/verifier/range-thread.ts')

const read = promisify(readWithCallback)

const newline = 0x0a
/** Bytes that are worth a message between threads. */
const usualRange = 16 << 20
/** What a thread makes is garbage at once: without a limit the room for it grows, for nothing. */
const room = { maxYoungGenerationSizeMb: 4 }

export type RangeOptions = { size: number; threads: number; trust?: Trust | undefined; range?: number }

/**
 * Verifies a chain file of `size` bytes in several threads. They say of parts of it that those are linked in
 * themselves; here the seams are joined. From the first place on where that is not so the file is read in order,
 * so that the fault is named as it would have been without threads.
 */
export async function verifyRanges(
  descriptor: number,
  { size, threads, trust, range = usualRange }: RangeOptions,
  seen: (entries: number) => void = () => {},
): Promise<Verdict> {
  const verifier = new ChainVerifier(trust)
  const start = begin(verifier, descriptor, size)
  const { place } = verifier
  const task: RangeTask | undefined = place && {
    descriptor,
    place: { orgId: place.orgId, watch: place.watch },
    tree: place.forest !== undefined,
  }
  const at = task ? await walk(verifier, task, rangesOf(start, size, range), threads, seen) : start
  return readOn(verifier, descriptor, at, seen)
}

/** Gives the header to the verifier; where the next line begins. */
function begin(verifier: ChainVerifier, descriptor: number, size: number): number {
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

const rangesOf = (start: number, size: number, range: number): Range[] =>
  Array.from({ length: Math.ceil((size - start) / range) }, (_, at) => ({
    from: start + at * range,
    to: Math.min(size, start + (at + 1) * range),
  }))

/** Joins what the threads have found, in order; where the file is to be read on. */
async function walk(
  verifier: ChainVerifier,
  task: RangeTask,
  ranges: readonly Range[],
  threads: number,
  seen: (entries: number) => void,
): Promise<number> {
  const found: Promise<Walked>[] = []
  const workers = Array.from({ length: Math.min(threads, ranges.length) }, () => {
    return new Worker(script, { workerData: task, resourceLimits: room })
  })
  try {
    let next = 0
    const give = async (worker: Worker): Promise<Walked> => {
      const answer = once(worker, 'message') as Promise<[Walked]>
      worker.postMessage(ranges[next++])
      const [walked] = await answer
      // A thread goes on as soon as it has answered, as far as there is something to do.
      if (next < ranges.length) start(worker)
      return walked
    }
    const start = (worker: Worker) => {
      const answer = give(worker)
      // Whoever joins sees the failure; until then it is nobody's.
      answer.catch(() => {})
      found.push(answer)
    }
    for (const worker of workers) start(worker)
    let at = ranges[0]?.from ?? 0
    for (let index = 0; index < ranges.length; index++) {
      const { run, from, at: end, isWhole } = await found[index]!
      if (from !== at && end > at) return at
      if (run && !verifier.follow(run)) return at
      at = Math.max(at, end)
      seen(verifier.entries)
      if (!isWhole) return at
    }
    return at
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()))
  }
}

async function readOn(
  verifier: ChainVerifier,
  descriptor: number,
  from: number,
  seen: (entries: number) => void,
): Promise<Verdict> {
  // Not a stream: one would close what is not its own.
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

import { setTimeout as wait } from 'node:timers/promises'

/** Shows milliseconds that no change of the clock moves, and waits for some. */
export type Stopwatch = { now(): number; sleep(ms: number): Promise<unknown> }
const ofThisProcess: Stopwatch = { now: () => performance.now(), sleep: wait }

/** Passes chunks on at no more than so many bytes per second. A pause of the source is not made up for. */
export async function* rateLimited(
  chunks: AsyncIterable<Uint8Array>,
  bytesPerSecond: number | undefined,
  { now, sleep }: Stopwatch = ofThisProcess,
): AsyncGenerator<Uint8Array> {
  if (bytesPerSecond === undefined) return yield* chunks
  let free = 0
  for await (const chunk of chunks) {
    const early = free - now()
    if (early > 1) await sleep(early)
    yield chunk
    free = Math.max(free, now()) + (chunk.length / bytesPerSecond) * 1000
  }
}

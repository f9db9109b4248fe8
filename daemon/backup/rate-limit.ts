import { setTimeout as sleep } from 'node:timers/promises'

/** Passes chunks on at no more than so many bytes per second. A pause of the source is not made up for. */
export async function* rateLimited(
  chunks: AsyncIterable<Uint8Array>,
  bytesPerSecond: number | undefined,
): AsyncGenerator<Uint8Array> {
  if (bytesPerSecond === undefined) return yield* chunks
  let free = 0
  for await (const chunk of chunks) {
    const early = free - performance.now()
    if (early > 1) await sleep(early)
    yield chunk
    free = Math.max(free, performance.now()) + (chunk.length / bytesPerSecond) * 1000
  }
}

import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { backUp } from '../../../daemon/backup/backup.ts'
import { rateLimited } from '../../../daemon/backup/rate-limit.ts'
import { temporaryFolder } from '../../databases.ts'
import { randomFrom, seed } from '../../depth.ts'
import { filledPlace, inEnvironmentOf, withStorage } from './filled.ts'

const rate = 10_000

/** Passes chunks of these sizes through the brake; `pauses`: milliseconds that the source takes before each, and the target after. */
async function passed(
  sizes: readonly number[],
  pauses: (n: number) => readonly [number, number] = () => [0, 0],
) {
  let time = 5_000
  const at: { ms: number; bytes: number }[] = []
  async function* source() {
    for (const [n, size] of sizes.entries()) {
      time += pauses(n)[0]
      yield new Uint8Array(size)
    }
  }
  const stopwatch = {
    now: () => time,
    async sleep(ms: number) {
      time += ms
    },
  }
  for await (const { length } of rateLimited(source(), rate, stopwatch)) {
    at.push({ ms: time, bytes: length })
    time += pauses(at.length - 1)[1]
  }
  return at
}

/** The most bytes beyond the rate in any stretch of time, each of which begins with a chunk. */
function excess(at: readonly { ms: number; bytes: number }[]): number {
  let max = 0
  for (let from = 0; from < at.length; from++) {
    let bytes = 0
    for (let to = from; to < at.length; to++) {
      bytes += at[to]!.bytes
      max = Math.max(max, bytes - ((at[to]!.ms - at[from]!.ms) / 1000) * rate)
    }
  }
  return max
}

it('passes no more bytes on than the rate, and a chunk', async () => {
  const chunks = Array.from({ length: 100 }, () => 1000)
  const at = await passed(chunks)
  expect(at.map(({ bytes }) => bytes)).toEqual(chunks)
  expect(excess(at)).toBeLessThanOrEqual(1000 + rate / 1000)
  // Nor fewer: it takes as long as the rate says.
  expect(at.at(-1)!.ms - at[0]!.ms).toBeCloseTo(9900, 0)
})

it('of chunks of any size, with pauses of either side, no stretch of time has more', async () => {
  const random = randomFrom(seed)
  for (let n = 0; n < 50; n++) {
    const sizes = Array.from({ length: 60 }, () => Math.ceil(random() * 3000))
    const pauses = sizes.map(() => [random() < 0.2 ? random() * 5000 : 0, random() * 200] as const)
    const at = await passed(sizes, (at) => pauses[at]!)
    // A wait below a millisecond is not worth one.
    expect(excess(at)).toBeLessThanOrEqual(Math.max(...sizes) + rate / 1000)
  }
})

it('does not make up for a pause of the source', async () => {
  const at = await passed(
    Array.from({ length: 20 }, () => 1000),
    (n) => [n === 10 ? 60_000 : 0, 0],
  )
  const since = at.slice(10)
  expect(since.at(-1)!.ms - since[0]!.ms).toBeCloseTo(900, 0)
})

it('without a rate passes everything on as it comes', async () => {
  async function* source() {
    yield new Uint8Array(1e6)
    yield new Uint8Array(1e6)
  }
  const never = { now: () => 0, sleep: () => Promise.reject(new Error('it waits')) }
  const sizes: number[] = []
  for await (const { length } of rateLimited(source(), undefined, never)) sizes.push(length)
  expect(sizes).toEqual([1e6, 1e6])
})

it('holds --limit-rate over a whole backup', async () => {
  const place = await filledPlace('sqlite')
  const { id: org_id, deviceId: device_id } = place.world.orgs.bakery
  const at = '2026-03-01T12:00:00.000Z'
  // What does not become smaller: a few large chunks.
  await withStorage(place, async ({ write }) => {
    for (let n = 0; n < 300; n++) {
      const message = randomBytes(3000).toString('base64')
      const row = { id: `log-${n}`, device_id, org_id, timestamp: at, level: 'info', message, created_at: at }
      await write((tx) =>
        tx
          .insertInto('agent_logs')
          .values({ ...row, component: 'agent', seq: n })
          .execute(),
      )
    }
  })
  let time = 0
  const stopwatch = {
    now: () => time,
    async sleep(ms: number) {
      time += ms
    },
  }
  const out = join(await temporaryFolder(), 'a.backup')
  const options = { out, 'data-dir': place.dataDir, 'limit-rate': '10K' }
  const { bytes } = await inEnvironmentOf(place, () => backUp(options, () => {}, stopwatch))
  expect(bytes).toBeGreaterThan(500_000)
  const allowed = (time / 1000) * 10 * 1024
  // The last chunk is not waited for.
  expect(bytes - allowed).toBeGreaterThan(0)
  expect(bytes - allowed).toBeLessThan(bytes / 3)
})

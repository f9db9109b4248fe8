import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { CommandContext } from '../../src/cli/base.ts'
import { tailAllLogs } from '../../src/cli/logs-tail-all.ts'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { ApiError } from '../../src/core/transport.ts'
import { logTails } from '../../src/logs/tails/contract.ts'

const world = vi.hoisted(() => ({
  pauses: [] as number[],
  looks: 0,
  notes: [] as string[],
  printed: [] as unknown[],
}))

/** No time passes: the pauses are written down, and the command ends in the pause after its last look. */
vi.mock('node:timers/promises', () => ({
  setTimeout: async (ms: number) => {
    world.pauses.push(ms)
    if (world.pauses.length >= world.looks) throw new Error('seen enough')
  },
}))
vi.mock('../../src/cli/stderr-notes.ts', async (original) => ({
  ...(await original<object>()),
  printNote: (text: string) => void world.notes.push(text),
}))
vi.mock('../../src/cli/line-printer.ts', () => ({
  linePrinter: () => async (rows: unknown[]) => void world.printed.push(...rows),
}))

const idOf = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
const headOf = (n: number, seq: number) => ({ deviceId: idOf(n), hostname: `till-${n}`, seq })
type Head = ReturnType<typeof headOf>
type Ask = { entry: Endpoint; query: Record<string, unknown> }

beforeEach(() => Object.assign(world, { pauses: [], notes: [], printed: [] }))

/** Follows a service whose heads are those of `looks`, a list of pages each, for as many looks. */
async function followed(
  looks: Head[][][],
  {
    flags = {},
    refusal,
    pauses = looks.length,
    more = () => ({}),
  }: {
    flags?: Record<string, unknown>
    refusal?: (ask: Ask, nth: number) => Error | undefined
    pauses?: number
    more?: (query: Record<string, unknown>) => object
  } = {},
) {
  world.looks = pauses
  const asked: Ask[] = []
  let look = -1
  const request = async (entry: Endpoint, { query = {} }: { query?: Record<string, unknown> } = {}) => {
    const ask = { entry, query }
    asked.push(ask)
    const refused = refusal?.(ask, asked.length)
    if (refused) throw refused
    if (entry === logTails.read) return { diagnostic: [], events: [], places: [], ...more(query) }
    if (query.cursor === undefined) look += 1
    const at = Number(query.cursor ?? 0)
    const pages = looks[Math.min(look, looks.length - 1)]!
    const nextCursor = at + 1 < pages.length ? String(at + 1) : null
    return { data: pages[at], pagination: { limit: 1000, nextCursor } }
  }
  const run = { client: { request, call: request }, settings: { org: {} }, output: {} }
  const ended = tailAllLogs(run as unknown as CommandContext, { follow: true, lines: 0, ...flags })
  await expect(ended).rejects.toThrow('seen enough')
  const cursors = asked.filter(({ entry }) => entry === logTails.heads).map(({ query }) => query.cursor)
  const reads = asked.filter(({ entry }) => entry === logTails.read).map(({ query }) => query.after)
  return { cursors, reads }
}

describe('svc logs tail -f of many devices', () => {
  it('follows a device from its newest entry on where the service has fewer than before, and says so', async () => {
    const { reads } = await followed([
      [[headOf(1, 50), headOf(2, 7)]],
      [[headOf(1, 20), headOf(2, 7)]],
      [[headOf(1, 20), headOf(2, 7)]],
      [[headOf(1, 23), headOf(2, 7)]],
    ])
    expect(reads).toEqual([`${idOf(1)}:20`])
    expect(world.notes.filter((note) => note.includes('till-1'))).toEqual([
      'The log of till-1 has fewer entries than were read, as after a restore of the service: it is followed from the newest entry on',
    ])
  })

  it('shows once what came in after the places were read and before the newest entries were', async () => {
    const row = (seq: number) => ({
      seq,
      deviceId: idOf(1),
      component: 'ws',
      level: 'info',
      message: `entry ${seq}`,
      timestamp: `2026-01-31T12:00:0${seq}.000Z`,
      createdAt: `2026-01-31T12:00:0${seq}.000Z`,
    })
    const { reads } = await followed([[[headOf(1, 5)]], [[headOf(1, 6)]], [[headOf(1, 6)]]], {
      flags: { lines: 2 },
      more: ({ after }) =>
        after === undefined
          ? { diagnostic: [row(4), row(5), row(6)] }
          : { diagnostic: [row(6)], places: [{ deviceId: idOf(1), seq: 6, more: false }] },
    })
    expect(reads).toEqual([undefined, `${idOf(1)}:5`])
    expect(world.printed.map((one) => (one as { message: string }).message)).toEqual([
      'entry 4',
      'entry 5',
      'entry 6',
    ])
  })

  it('repeats only the request that was refused', async () => {
    const pages = [[headOf(1, 1)], [headOf(2, 1)], [headOf(3, 1)]]
    const tooMany = new ApiError(429, { error: 'Too many requests', code: 'rate_limited' } as never)
    const { cursors } = await followed([pages, pages], {
      pauses: 3,
      refusal: (_, nth) => (nth === 5 ? tooMany : undefined),
    })
    expect(cursors).toEqual([undefined, '1', '2', undefined, '1', '1', '2'])
  })

  it('ends where the first request is refused: nothing was followed yet', async () => {
    const unknown = new ApiError(503, { error: 'Not now', code: 'unavailable' } as never)
    await expect(followed([[[headOf(1, 1)]]], { refusal: () => unknown })).rejects.toThrow('Not now')
  })

  it('looks the more rarely the more pages a look has', async () => {
    const pages = (count: number) => Array.from({ length: count }, (_, n) => [headOf(n, 1)])
    await followed([pages(1), pages(1), pages(1)])
    expect(world.pauses).toEqual([1500, 2250, 3375])
    world.pauses = []
    await followed([pages(10), pages(10), pages(10)])
    expect(world.pauses).toEqual([10_000, 10_000, 10_000])
  })

  it('says that the newest entries are those of some devices', async () => {
    await followed([[[headOf(1, 1)]]], { flags: { lines: 10 }, more: () => ({ incompleteResults: true }) })
    expect(world.notes).toContain(
      'There are more than 1000 devices here, and these are the newest entries of 1000 of them: name an organization with --org, or devices, to see those of others',
    )
  })
})

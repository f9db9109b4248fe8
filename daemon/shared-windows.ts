import { createHmac } from 'node:crypto'
import type { Limit, SharedLimit } from '../src/core/limits.ts'
import { clockSkew } from '../src/core/time.ts'
import { writeInChunks } from '../src/storage/bisect-writes.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { prepared } from '../src/storage/query/prepared.ts'

/** The events of one slot: when the last of them was, and how many. */
type Events = [at: number, count: number]

/** Up to this many, each event has its own time; above, as many slots, each of which expires with its last event. */
const maxExact = 1000
const slotMs = ({ count, seconds }: Limit): number => (count > maxExact ? (seconds * 1000) / maxExact : 1)

/**
 * A window is named by 20 bits of a keyed digest. So a limit has at most 1,048,576 windows, none of which ever makes
 * room for another, and nobody who reads the table can tell whose they are. Keys that meet in one window share it.
 */
export const windowOf = (pepper: string, name: SharedLimit, key: string): string =>
  `${name} ${createHmac('sha256', pepper).update(`rate limit ${name} ${key}`).digest('hex').slice(0, 5)}`

const locked = prepared((db, p: { id: string; now: number }) =>
  db
    .insertInto('rate_limit_windows')
    .values({ id: p.id, events: '[]', expires_at: p.now })
    .onConflict((c) => c.column('id').doUpdateSet((eb) => ({ events: eb.ref('rate_limit_windows.events') })))
    .returning('events'),
)
const saved = prepared((db, p: { id: string; events: string; expiresAt: number }) =>
  db
    .updateTable('rate_limit_windows')
    .set({ events: p.events, expires_at: p.expiresAt })
    .where('id', '=', p.id),
)

/**
 * Counts one event in a window, if it has room. Returns 0, or when it will have room. `ids`: the window, and its name
 * under the other key of a rotation, by which other processes may count.
 */
export async function countEvent(
  tx: Db,
  [id, ...others]: readonly [string, ...string[]],
  limit: Limit,
  nowMs: () => number,
): Promise<number> {
  const stored: Events[] = []
  // In one order in every process, so that none waits for another that waits for it.
  for (const one of [id, ...others].sort()) {
    const [row] = await locked(tx, { id: one, now: nowMs() })
    stored.push(...(JSON.parse(row!.events) as Events[]))
  }
  // The time is read under the lock: events are counted in the order of their times.
  const now = nowMs()
  const { events, isMoved } = liveEvents(stored, limit, now)
  const freeAt = freeFrom(events, limit)
  if (freeAt === 0) add(events, limit, now)
  else if (!isMoved) return freeAt
  const expiresAt = Math.max(...events.map(([at]) => at)) + limit.seconds * 1000
  await saved(tx, { id, events: JSON.stringify(events), expiresAt })
  for (const other of others) await saved(tx, { id: other, events: '[]', expiresAt: now })
  return freeAt
}

/**
 * The events that still count. One from further in the future than clocks differ was counted before a clock was set
 * back: it counts as one of now, so that it neither counts for longer than the window nor is forgotten.
 */
function liveEvents(stored: readonly Events[], { seconds }: Limit, now: number) {
  const isAhead = ([at]: Events) => at > now + clockSkew * 1000
  const events = stored
    .map((one): Events => (isAhead(one) ? [now, one[1]] : one))
    .filter(([at]) => at + seconds * 1000 > now)
    .sort(([a], [b]) => a - b)
  return { events, isMoved: stored.some(isAhead) }
}

/** When there is room for one more; 0: now. */
function freeFrom(events: readonly Events[], { count, seconds }: Limit): number {
  let used = events.reduce((sum, [, n]) => sum + n, 0)
  let freeAt = 0
  for (const [at, n] of events) {
    if (used < count) break
    used -= n
    freeAt = at + seconds * 1000
  }
  return freeAt
}

function add(events: Events[], limit: Limit, now: number): void {
  const slotOf = (at: number) => Math.floor(at / slotMs(limit))
  const last = events.at(-1)
  if (last && slotOf(last[0]) === slotOf(now))
    events[events.length - 1] = [Math.max(last[0], now), last[1] + 1]
  else events.push([now, 1])
}

/** Deletes expired windows. A locked one is being counted in. */
export function sweepWindows(storage: Storage, nowMs: number): Promise<void> {
  const { batchSize } = storage.traits
  const find = (except: readonly string[]) =>
    storage.read
      .selectFrom('rate_limit_windows')
      .select('id')
      .where('expires_at', '<=', nowMs)
      .$if(except.length > 0, (q) => q.where('id', 'not in', except))
      .limit(batchSize)
      .execute()
  const remove = (tx: Db, ids: readonly string[]) =>
    // An event may have been counted in it meanwhile.
    tx.deleteFrom('rate_limit_windows').where('id', 'in', ids).where('expires_at', '<=', nowMs).execute()
  return writeInChunks(storage, find, remove, batchSize)
}

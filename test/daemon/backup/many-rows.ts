import { sql } from 'kysely'
import type { Dialect } from '../../../src/storage/db.ts'
import type { Storage } from '../../../src/storage/open.ts'
import { type Filled, filledPlace, withStorage } from './filled.ts'

/** A filled database with this many log entries more, of about 600 bytes each, or with a longer text. */
export async function placeWithRows(kind: Dialect, count: number, repeated?: number): Promise<Filled> {
  const place = await filledPlace(kind)
  await withStorage(place, (storage) => addLogs(storage, place.world.orgs.bakery, count, repeated))
  return place
}

export async function addLogs(
  storage: Storage,
  of: { id: string; deviceId: string },
  count: number,
  repeated = 8,
): Promise<void> {
  const batch = 50_000
  for (let from = 0; from < count; from += batch) {
    const to = Math.min(count, from + batch)
    const numbers =
      storage.dialect === 'sqlite'
        ? sql`with recursive numbers(n) as (select ${sql.lit(from)} union all select n + 1 from numbers where n + 1 < ${sql.lit(to)})`
        : sql`with numbers as (select n from generate_series(${sql.lit(from)}, ${sql.lit(to - 1)}) as n)`
    await storage.write(async (tx) => {
      await sql`insert into agent_logs (id, device_id, org_id, timestamp, level, message, created_at, component, seq)
        ${numbers}
        select 'log-' || n, ${of.deviceId}, ${of.id}, '2026-03-01T12:00:00.000Z', 'info',
          ${'a message of which there are many, and none is like another '.repeat(repeated)} || n,
          '2026-03-01T12:00:00.000Z', 'agent', n from numbers`.execute(tx)
    })
  }
}

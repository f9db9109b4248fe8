import { type ExpressionWrapper, sql } from 'kysely'
import { parseJson } from '../core/json.ts'
import type { Db, Storage } from './open.ts'
import { byDialect } from './query/compilers.ts'

/*
 * The processes that serve a database, and the fingerprints of the secrets that each of them has. Their age is that of the
 * clock of the database: a process whose own clock differs is neither taken for dead nor kept for long.
 */

export type ServiceProcess = {
  id: string
  host: string
  pid: number
  startedAt: string
  /** By the name of the secret: the one that makes new values, then the other one that is known. */
  prints: Readonly<Record<string, readonly string[]>>
}

/** Silent for longer, a process counts as dead. */
export const aliveMs = 60_000
/** Silent for longer, its row is deleted. */
const keptMs = 120_000

const nowMs: ExpressionWrapper<never, never, number> = byDialect<number>({
  sqlite: sql`cast(unixepoch('subsec') * 1000 as integer)`,
  postgres: sql`cast(extract(epoch from clock_timestamp()) * 1000 as bigint)`,
})
const before = (ms: number) => sql<number>`${nowMs} - ${sql.lit(ms)}`

/** Records that a process is alive, with the fingerprints of its keys. Not synced: a power failure ends the process too. */
export function announceProcess(
  storage: Pick<Storage, 'write'>,
  { id, host, pid, startedAt, prints }: ServiceProcess,
): Promise<void> {
  const seen = { seen_at: sql<number>`${nowMs}`, prints: JSON.stringify(prints) }
  return storage.write(
    async (tx) => {
      await tx.deleteFrom('service_processes').where('seen_at', '<', before(keptMs)).execute()
      await tx
        .insertInto('service_processes')
        .values({ id, host, pid, started_at: startedAt, ...seen })
        .onConflict((c) => c.column('id').doUpdateSet(seen))
        .execute()
    },
    { unsynced: true },
  )
}

export const forgetProcess = (storage: Pick<Storage, 'write'>, id: string): Promise<unknown> =>
  storage.write((tx) => tx.deleteFrom('service_processes').where('id', '=', id).execute(), { unsynced: true })

/** Oldest first. */
export async function liveProcesses(db: Db): Promise<ServiceProcess[]> {
  const rows = await db
    .selectFrom('service_processes')
    .selectAll()
    .where('seen_at', '>=', before(aliveMs))
    .orderBy('started_at')
    .orderBy('id')
    .execute()
  return rows.map(({ id, host, pid, started_at: startedAt, prints }) => ({
    id,
    host,
    pid,
    startedAt,
    prints: parsed(prints),
  }))
}

/** A process whose row is damaged counts as one that knows no key: nothing is used that it might not open. */
const parsed = (prints: string) => (parseJson(prints) ?? {}) as ServiceProcess['prints']

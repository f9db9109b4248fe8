import { sql } from 'kysely'
import type { Db, Integrity } from '../db.ts'

/**
 * Postgres checks the checksum of a page each time it reads it from the disk, also for a backup, and counts those that are
 * wrong. Any is damage: to compare with the count of before would miss what came after a reset.
 */
export async function checkPostgresIntegrity(db: Db): Promise<Integrity> {
  // With the tables that all databases of the server share.
  const { rows } = await sql<{ failures: number | null; last: string | null }>`
    select sum(checksum_failures) as failures, max(checksum_last_failure)::text as last from pg_stat_database
    where datid = 0 or datname = current_database()`.execute(db)
  const { failures, last } = rows[0]!
  if (failures === null) return { verdict: 'unknown', reason: 'data checksums are off' }
  if (failures === 0) return { verdict: 'sound' }
  return { verdict: 'damaged', found: [`checksum failures: ${failures}, the last at ${last}`] }
}

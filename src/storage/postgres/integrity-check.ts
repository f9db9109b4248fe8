import { sql } from 'kysely'
import type { Db, Integrity } from '../db.ts'

/**
 * Postgres verifies the checksum of a page each time it reads the page from the disk, also for a backup, and counts the
 * failures. Any failure is damage: a comparison with an earlier count would miss failures after a reset of the counter.
 */
export async function checkPostgresIntegrity(db: Db): Promise<Integrity> {
  // `datid = 0`: the tables that all databases of the server share.
  const { rows } = await sql<{ failures: number | null; last: string | null }>`
    select sum(checksum_failures) as failures, max(checksum_last_failure)::text as last from pg_stat_database
    where datid = 0 or datname = current_database()`.execute(db)
  const { failures, last } = rows[0]!
  if (failures === null) return { verdict: 'unknown', reason: 'data checksums are off' }
  if (failures === 0) return { verdict: 'sound' }
  return { verdict: 'damaged', found: [`checksum failures: ${failures}, the last at ${last}`] }
}

import { sql } from 'kysely'
import { formatBytes } from '../../core/byte-size.ts'
import { type Finding, warning } from '../../core/finding.ts'
import type { ReadStorage } from '../db.ts'
import { check } from './check.ts'

const mebi = 2 ** 20

/** A file of this size has tables where the order of a join matters. */
const minAnalyzedBytes = 64 * mebi
/** The service copies its log into the file every 31 MiB, and the integrity check keeps it longer for a while. */
const maxLogBytes = 1100 * mebi

export type SqliteUpkeep = {
  /** Whether the planner knows how many rows the tables have. */
  isAnalyzed: boolean
  sizes: Awaited<ReturnType<ReadStorage['sizes']>>
}

export async function sqliteUpkeep({ heavy, sizes }: ReadStorage): Promise<SqliteUpkeep> {
  const { rows } = await sql<{ found: number }>`
    select count(*) as found from sqlite_schema where name = 'sqlite_stat1'`.execute(heavy)
  return { isAnalyzed: rows[0]!.found > 0, sizes: await sizes() }
}

export function sqliteFindings({ isAnalyzed, sizes: { data, log = 0 } }: SqliteUpkeep): Finding[] {
  const findings: Finding[] = []
  if (!isAnalyzed && data >= minAnalyzedBytes) {
    findings.push(
      warning(check, {
        message: `No table of its ${formatBytes(data)} was ever analyzed.`,
        reason:
          'SQLite guesses how many rows a condition leaves, and may read a large table in place of an index.',
        remedy: `stop the service and run: sqlite3 svc.sqlite 'analyze'`,
      }),
    )
  }
  if (log > maxLogBytes) {
    findings.push(
      warning(check, {
        message: `Its write-ahead log has ${formatBytes(log)}.`,
        reason:
          'A program that keeps a read open, or a full disk, keeps it from starting over; reads become slower.',
        remedy: 'end other programs that have svc.sqlite open (lsof svc.sqlite), or restart the service',
      }),
    )
  }
  return findings
}

import { type Finding, passed } from '../../core/finding.ts'
import type { Db, ReadStorage } from '../db.ts'
import { check } from './check.ts'
import { postgresUpkeep } from './postgres.ts'
import { postgresFindings } from './postgres-findings.ts'
import { sqliteFindings, sqliteUpkeep } from './sqlite.ts'

/** What makes a database slower with time: statements, plans, indexes, and what its own maintenance has left undone. */
export type Upkeep = {
  findings: Finding[]
  /** How many of each kind, at most five. */
  undone: Readonly<Record<string, number>>
  /** Transactions since the oldest row that is not frozen; 0 where rows need not be. */
  transactionAge: number
  /** Bytes of the write-ahead log that the replication slot farthest behind keeps. */
  slotBytes: number
}

export async function upkeepOf(storage: ReadStorage): Promise<Upkeep> {
  const upkeep = await (storage.dialect === 'sqlite' ? ofSqlite(storage) : ofPostgres(storage.heavy))
  if (upkeep.findings.every(({ state }) => state === 'ok'))
    upkeep.findings.push(passed(check, 'Nothing is left undone'))
  return upkeep
}

async function ofSqlite(storage: ReadStorage): Promise<Upkeep> {
  const upkeep = await sqliteUpkeep(storage)
  const undone = { unanalyzed: upkeep.isAnalyzed ? 0 : 1 }
  return { findings: sqliteFindings(upkeep), undone, transactionAge: 0, slotBytes: 0 }
}

async function ofPostgres(db: Db): Promise<Upkeep> {
  const upkeep = await postgresUpkeep(db)
  const { statements, scanned, unanalyzed, dead, unused, invalid, outdated, transactionAge, slots } = upkeep
  return {
    findings: postgresFindings(upkeep),
    undone: {
      slow_statements: statements?.length ?? 0,
      scanned: scanned.length,
      unanalyzed: unanalyzed.length,
      dead: dead.length,
      unused: unused.length,
      invalid: invalid.length,
      outdated: outdated.length,
    },
    transactionAge,
    slotBytes: Math.max(0, ...slots.map(({ bytes }) => bytes)),
  }
}

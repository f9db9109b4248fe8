import { setTimeout as sleep } from 'node:timers/promises'
import { classifyDatabaseError } from '../database-errors.ts'
import { openReader } from './file.ts'

/*
 * One integrity check in a process of its own: SQLite reads the whole file in calls that only the end of the process
 * can interrupt. The path of the file is an argument; the reply goes to standard output.
 */

export type IntegrityReply = { found: string[] } | { error: { message: string; code: string | undefined } }

/** Most damaged tables that are reported. */
const maxFound = 20
/** Longest pause after a table, in milliseconds; it lasts as long as the check of the table. */
const maxPauseMs = 1000

const parent = process.ppid

/**
 * Checks table by table, each with its indexes. The write-ahead log can start over only when nobody reads, so there is
 * a pause after each table. `quick_check` reads every page; it does not compare each row with each index, which takes
 * ten times as long.
 */
async function check(file: string): Promise<string[]> {
  const found: string[] = []
  try {
    const database = openReader(file)
    const tables = database
      .prepare<[], string>(`select name from sqlite_schema where type = 'table' order by name`)
      .pluck()
      .all()
    const ask = database.prepare<[string], string>('select quick_check from pragma_quick_check(?)').pluck()
    // The check of `sqlite_schema` includes unused pages.
    for (const table of ['sqlite_schema', ...tables]) {
      const begun = performance.now()
      const fault = faultIn(() => ask.get(table))
      if (fault !== undefined) found.push(`${table}: ${fault}`)
      if (found.length === maxFound) break
      await sleep(Math.min(performance.now() - begun, maxPauseMs))
      // The parent has ended: it can neither end this process nor read the reply.
      if (process.ppid !== parent) process.exit(1)
    }
  } catch (error) {
    // Damage found before this error is reported.
    if (found.length === 0) found.push(damageIn(error))
  }
  return found
}

function faultIn(ask: () => string | undefined): string | undefined {
  try {
    const said = ask()
    return said === 'ok' ? undefined : String(said)
  } catch (error) {
    return damageIn(error)
  }
}

/** @throws an error that says nothing about the pages: a disk that fails to read, a lock */
function damageIn(error: unknown): string {
  const { cause = error } = error as Error
  if (classifyDatabaseError(cause) !== 'damaged') throw cause
  return (cause as Error).message
}

let reply: IntegrityReply
try {
  reply = { found: await check(process.argv[2]!) }
} catch (error) {
  const { message, code } = error as Error & { code?: string }
  reply = { error: { message, code } }
}
process.stdout.write(JSON.stringify(reply))

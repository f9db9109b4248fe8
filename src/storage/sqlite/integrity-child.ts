import { setTimeout as sleep } from 'node:timers/promises'
import { classifyDatabaseError } from '../database-errors.ts'
import { openReader } from './file.ts'

/*
 * One integrity check in a process of its own: SQLite reads the whole file in calls that nothing but the end of a process
 * can interrupt. The file comes in the arguments, the reply goes to standard output.
 */

export type IntegrityReply = { found: string[] } | { error: { message: string; code: string | undefined } }

/** Of so many tables it is told what is wrong with them. */
const mostFound = 20
/** Milliseconds between two tables, at most: as long as the one before took. */
const mostRest = 1000

const parent = process.ppid

/**
 * Table by table, with its indexes: the write-ahead log can start over only when nobody reads, so there is a rest between
 * two of them. `quick_check` reads every page, and leaves out the comparison of each row with each index, which takes ten
 * times as long.
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
    // With the table of tables go the pages that nobody uses.
    for (const table of ['sqlite_schema', ...tables]) {
      const begun = performance.now()
      const fault = faultIn(() => ask.get(table))
      if (fault !== undefined) found.push(`${table}: ${fault}`)
      if (found.length === mostFound) break
      await sleep(Math.min(performance.now() - begun, mostRest))
      // Nobody is left who would end it, or wants to know.
      if (process.ppid !== parent) process.exit(1)
    }
  } catch (error) {
    // What was found before stands.
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

/** @throws what says nothing of the pages: a disk that fails to read, a lock. */
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

import { accessSync, chmodSync, closeSync, constants, openSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import Database from 'better-sqlite3'
import { SetupError } from '../../core/errors.ts'
import { fold } from '../../core/fold.ts'
import { makeFolder } from '../../core/make-folder.ts'
import { compileRe2 } from '../../core/re2.ts'
import { QueryDeadline } from './query-deadline.ts'

export function sqliteFile(dataDir: string): string {
  return join(dataDir, 'svc.sqlite')
}

/** Bytes of the database and of its write-ahead log. A file that is not there has none: readiness reports one that should be. */
export async function sizesOf(file: string): Promise<{ data: number; log: number }> {
  const bytesOf = (path: string) =>
    stat(path).then(
      ({ size }) => size,
      () => 0,
    )
  return { data: await bytesOf(file), log: await bytesOf(`${file}-wal`) }
}

/** Opens the one connection that writes, creating directory (0700) and file (0600) where missing. */
export function openWriter(file: string): Database.Database {
  try {
    makeFolder(dirname(file))
    closeSync(openSync(file, 'a', 0o600))
    chmodSync(file, 0o600)
  } catch (error) {
    throw explained(error, file)
  }
  return open(file, false, (database) => {
    // Of a new file, or of one that is vacuumed next (vacuum.ts): it can give free pages back.
    database.pragma('auto_vacuum = incremental')
    database.pragma('journal_mode = wal')
    // Each commit that must be durable is synced by wal-sync.ts, away from the event loop.
    database.pragma('synchronous = normal')
    database.pragma('foreign_keys = on')
    // So that "insert or replace" cannot delete a row without its delete trigger.
    database.pragma('recursive_triggers = on')
    // The log gives what is beyond back when it starts over.
    database.pragma('journal_size_limit = 67108864')
    // 80 MiB: copied in the middle of a commit, if the log was not copied before (wal-checkpointer.ts).
    database.pragma('wal_autocheckpoint = 20000')
  })
}

export const inUse = (dataDir: string): string =>
  `Another svc serve, svc db restore or svc db copy uses ${dataDir}: wait for it to end, or end its process if it hangs.`

export function openReader(file: string): Database.Database {
  return open(file, true, (database) => database.pragma('query_only = on'))
}

/**
 * For a thread that reads many rows at once. Each commit of another connection empties its page cache, so the cache
 * serves only one query: it is small enough to fit in a core's cache, since a scan refills it over and over.
 */
export function openInterruptibleReader(file: string, deadline: QueryDeadline): Database.Database {
  const database = open(file, true, (opened) => opened.pragma('query_only = on'), deadline)
  database.pragma('cache_size = -2048')
  return database
}

function open(
  file: string,
  readonly: boolean,
  prepare: (database: Database.Database) => void,
  deadline = new QueryDeadline(),
) {
  let database: Database.Database | undefined
  try {
    database = new Database(file, { readonly, timeout: 5000 })
    prepare(database)
    database.pragma('temp_store = memory')
    database.pragma('cache_size = -32768')
    addFold(database)
    database.function('re2', { deterministic: true }, (pattern: unknown, text: unknown) => {
      deadline.check()
      return text === null ? null : compileRe2(String(pattern)).test(String(text)) ? 1 : 0
    })
    database.function('check_deadline', () => {
      deadline.check()
      return 1
    })
    database.prepare('select count(*) from sqlite_schema').get()
    return database
  } catch (error) {
    database?.close()
    throw explained(error, file)
  }
}

/** What search indexes and their triggers call. */
export function addFold(database: Database.Database): void {
  database.function('fold', { deterministic: true }, (text: unknown) =>
    text === null ? null : fold(String(text)),
  )
}

function explained(error: unknown, file: string): Error {
  const code = error instanceof Database.SqliteError ? error.code : ''
  if (code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB') {
    return new SetupError(
      `The database file ${file} is damaged or is not a SQLite database (${code}). Restore it from a backup, or move it away to start empty.`,
      { cause: error },
    )
  }
  // Another process hangs in the middle of a write, or begins or ends: others wait for its log.
  const isBusy = code.startsWith('SQLITE_BUSY')
  const isUnopened = /^SQLITE_(CANTOPEN|READONLY)/.test(code)
  const reason =
    (isUnopened && whyNotWritable(dirname(file))) || (error instanceof Error ? error.message : String(error))
  const text = isBusy ? inUse(dirname(file)) : `Cannot open the database file ${file}: ${reason}`
  const failure = new SetupError(text, { cause: error })
  // Requests that need the file are told to retry: a thread that is started later may find it.
  return Object.assign(failure, { code: code || 'SQLITE_CANTOPEN' })
}

/** SQLite says of a reader only that it cannot open the file: it has to make the index of the log beside it. */
function whyNotWritable(directory: string): string | undefined {
  try {
    accessSync(directory, constants.W_OK)
    return undefined
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const reason = { EROFS: 'its file system is read-only', EACCES: 'this user may not write its directory' }[
      code ?? ''
    ]
    return reason && `${reason}, and SQLite needs to write there in order to read`
  }
}

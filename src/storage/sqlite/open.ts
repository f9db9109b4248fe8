import { existsSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Database } from 'better-sqlite3'
import { SetupError } from '../../core/errors.ts'
import { CommitListeners } from '../commit-listeners.ts'
import { CommitVersion } from '../commit-version.ts'
import type { Db, ReadQuerySettings, Storage } from '../db.ts'
import { lockDirectory } from '../directory-lock.ts'
import type { PoolName, StorageObserver } from '../observer.ts'
import { dialectTraits } from '../traits.ts'
import { ReadingConnection, SqliteConnection } from './connection.ts'
import { openReader, openWriter, sizesOf, sqliteFile } from './file.ts'
import { incrementalVacuum } from './free-pages.ts'
import { checkFreeSpace } from './free-space.ts'
import { GroupCommit } from './group-commit.ts'
import { checkSqliteIntegrity } from './integrity-check.ts'
import { interruptibleKyselyOver, kyselyOver } from './kysely.ts'
import { OpenFiles } from './open-files.ts'
import { type OnQuery, ReaderPool } from './reader-pool.ts'
import { WalCheckpointer } from './wal-checkpointer.ts'
import { WalSync } from './wal-sync.ts'

export async function openSqlite(
  dataDir: string,
  {
    alone,
    readerThreads,
    readQueries,
    observer,
  }: { alone: boolean; readerThreads: number; readQueries: ReadQuerySettings; observer: StorageObserver },
): Promise<Storage> {
  const file = sqliteFile(dataDir)
  if (alone) assertNoRestoreBegan(file)
  const database = openWriter(file)
  const unlock = alone ? lockOr(database, dataDir) : undefined
  const writer = new SqliteConnection(database, observer)
  const reader = new ReadingConnection(openReader(file), writer, observer)
  const onQuery =
    (pool: PoolName): OnQuery =>
    (sql, { waitedMs, ranMs, trace }) => {
      observer.waited(pool, waitedMs)
      observer.ran(sql, ranMs, trace)
    }
  const readers = new ReaderPool(file, readerThreads, { onQuery: onQuery('heavy') })
  const readQueryReaders = new ReaderPool(file, readQueries.atOnce, {
    timeoutMs: readQueries.timeoutMs,
    onQuery: onQuery('questions'),
  })
  const checkpointer = new WalCheckpointer(file, writer.database)
  const walSync = new WalSync(file)
  const files = new OpenFiles(file, database)
  const commits = new CommitListeners()
  const versions = new CommitVersion(writer.database)
  const queue = new GroupCommit(writer, {
    ready() {
      walSync.check()
      files.checkBetweenWrites()
      return checkpointer.finishing
    },
    async sync() {
      await walSync.sync()
      files.check()
    },
    committed: (touched) => versions.committed(touched),
    settled(touched) {
      checkpointer.go()
      if (touched) commits.announce(touched)
    },
    waited: (milliseconds) => observer.waited('writes', milliseconds),
  })

  const ending = new AbortController()
  let closing: Promise<void> | undefined
  async function close(): Promise<void> {
    ending.abort(new Error('The storage is closed'))
    await queue.close()
    await checkpointer.close()
    walSync.close()
    await Promise.all([readers.close(), readQueryReaders.close()])
    reader.database.close()
    // Last, because closing the last connection folds the write-ahead log back into the file.
    writer.database.close()
    unlock?.()
  }

  return {
    dialect: 'sqlite',
    traits: dialectTraits.sqlite,
    read: kyselyOver(reader),
    heavy: kyselyOver(readers),
    readQueries: interruptibleKyselyOver(readQueryReaders),
    write: (work, options) => queue.write(work, options?.unsynced ?? false),
    onCommit: (listener, tables) => commits.listen(listener, tables),
    version: () => versions.ask(),
    signals: undefined,
    check: async () => {
      walSync.check()
      files.check()
      await checkFreeSpace(writer.database, dataDir)
      reader.run('select count(*) from sqlite_schema', [])
      const probe = (tx: Db) => tx.updateTable('probes').set({ at: new Date().toISOString() }).execute()
      await queue.write(probe, true)
    },
    checkIntegrity: (signal) => checkSqliteIntegrity(file, AbortSignal.any([signal, ending.signal])),
    usage: () => ({
      writes: queue.usage(),
      heavy: readers.usage(),
      questions: readQueryReaders.usage(),
    }),
    sizes: () => sizesOf(file),
    giveSpaceBack: () => incrementalVacuum(writer, queue, ending.signal),
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

/** The beginning of a restore, which was interrupted before it became the database. */
function assertNoRestoreBegan(file: string): void {
  if (!existsSync(`${file}.restore`) || existsSync(file)) return
  throw new SetupError(
    `A restore into ${dirname(file)} did not finish: repeat svc db restore, which starts over by itself.`,
  )
}

/** The directory exists only after its database was opened. */
function lockOr(database: Database, dataDir: string): () => void {
  try {
    return lockDirectory(dataDir)
  } catch (error) {
    database.close()
    throw error
  }
}

import type { Database } from 'better-sqlite3'
import { Commits } from './commits.ts'
import type { Db, QuestionSettings, Storage } from './db.ts'
import { GroupCommit } from './group-commit.ts'
import { LogCopier } from './log-copier.ts'
import { LogSync } from './log-sync.ts'
import { Readers } from './readers.ts'
import { ReadingConnection, SqliteConnection } from './sqlite-connection.ts'
import { openReader, openWriter, sqliteFile } from './sqlite-file.ts'
import { kyselyOver, questionsOver } from './sqlite-kysely.ts'
import { lockDirectory } from './sqlite-lock.ts'
import { checkRoom } from './sqlite-room.ts'
import { Versions } from './versions.ts'

export async function openSqlite(
  dataDir: string,
  { alone, readerThreads, questions }: { alone: boolean; readerThreads: number; questions: QuestionSettings },
): Promise<Storage> {
  const file = sqliteFile(dataDir)
  const database = openWriter(file)
  const unlock = alone ? lockOr(database, dataDir) : undefined
  const writer = new SqliteConnection(database)
  const reader = new ReadingConnection(openReader(file), writer)
  const readers = new Readers(file, readerThreads)
  const asked = new Readers(file, questions.atOnce, questions.timeoutMs)
  const copier = new LogCopier(file, writer.database)
  const disk = new LogSync(file)
  const commits = new Commits()
  const versions = new Versions(writer.database)
  const queue = new GroupCommit(writer, {
    ready() {
      disk.check()
      return copier.finishing
    },
    sync: () => disk.sync(),
    committed: (touched) => versions.committed(touched),
    settled(touched) {
      copier.go()
      if (touched) commits.announce(touched)
    },
  })

  let closing: Promise<void> | undefined
  async function close(): Promise<void> {
    await queue.close()
    await copier.close()
    disk.close()
    await Promise.all([readers.close(), asked.close()])
    reader.database.close()
    // Last, because the last connection to go folds the write-ahead log back into the file.
    writer.database.close()
    unlock?.()
  }

  return {
    dialect: 'sqlite',
    read: kyselyOver(reader),
    heavy: kyselyOver(readers),
    questions: questionsOver(asked),
    write: (work, options) => queue.write(work, options?.unsynced ?? false),
    onCommit: (listener, tables) => commits.listen(listener, tables),
    version: () => versions.ask(),
    signals: undefined,
    check: async () => {
      await checkRoom(writer.database, dataDir)
      reader.run('select count(*) from sqlite_schema', [])
      disk.check()
      const probe = (tx: Db) => tx.updateTable('probes').set({ at: new Date().toISOString() }).execute()
      await queue.write(probe, true)
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

/** The directory is there only once its database was opened. */
function lockOr(database: Database, dataDir: string): () => void {
  try {
    return lockDirectory(dataDir)
  } catch (error) {
    database.close()
    throw error
  }
}

import type { Database } from 'better-sqlite3'
import { Commits } from './commits.ts'
import type { Storage } from './db.ts'
import { GroupCommit } from './group-commit.ts'
import { Readers } from './readers.ts'
import { SqliteConnection } from './sqlite-connection.ts'
import { openReader, openWriter, sqliteFile } from './sqlite-file.ts'
import { kyselyOver } from './sqlite-kysely.ts'

export async function openSqlite(dataDir: string, readerThreads: number): Promise<Storage> {
  const file = sqliteFile(dataDir)
  const writer = new SqliteConnection(openWriter(file))
  const reader = new SqliteConnection(openReader(file))
  const readers = new Readers(file, readerThreads)
  const commits = new Commits()
  const queue = new GroupCommit(writer, () => commits.announce())

  const foreign = foreignCommits(reader.database)

  let closing: Promise<void> | undefined
  async function close(): Promise<void> {
    await queue.close()
    await readers.close()
    reader.database.close()
    // Last, because the last connection to go folds the write-ahead log back into the file.
    writer.database.close()
  }

  return {
    dialect: 'sqlite',
    read: kyselyOver(reader),
    heavy: kyselyOver(readers),
    write: (work, options) => queue.write(work, options?.unsynced ?? false),
    onCommit: (listener) => commits.listen(listener),
    version: () => commits.count + foreign(),
    check: async () => {
      reader.run('select count(*) from sqlite_schema', [])
      if (!writer.database.open) throw new Error('The database is closed')
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

/** How stale the answer about other processes may be, in milliseconds. */
const foreignPatience = 20

/**
 * A number that grows when another process has written. To ask takes a lock of the file, a tenth of a small
 * request, so it is asked now and then: our own commits are counted as they happen.
 */
function foreignCommits(database: Database): () => number {
  const question = database.prepare('pragma data_version').pluck()
  let asked = Number.NEGATIVE_INFINITY
  let answer = 0
  return () => {
    const now = performance.now()
    if (now - asked > foreignPatience) {
      asked = now
      answer = question.get() as number
    }
    return answer
  }
}

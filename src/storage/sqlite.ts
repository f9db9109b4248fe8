import { Commits } from './commits.ts'
import type { Storage } from './db.ts'
import { GroupCommit } from './group-commit.ts'
import { LogCopier } from './log-copier.ts'
import { LogSync } from './log-sync.ts'
import { Readers } from './readers.ts'
import { ReadingConnection, SqliteConnection } from './sqlite-connection.ts'
import { openReader, openWriter, sqliteFile } from './sqlite-file.ts'
import { kyselyOver } from './sqlite-kysely.ts'
import { Versions } from './versions.ts'

export async function openSqlite(dataDir: string, readerThreads: number): Promise<Storage> {
  const file = sqliteFile(dataDir)
  const writer = new SqliteConnection(openWriter(file))
  const reader = new ReadingConnection(openReader(file), writer)
  const readers = new Readers(file, readerThreads)
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
    onCommit: (listener, tables) => commits.listen(listener, tables),
    version: () => versions.ask(),
    signals: undefined,
    check: async () => {
      reader.run('select count(*) from sqlite_schema', [])
      disk.check()
      if (!writer.database.open) throw new Error('The database is closed')
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

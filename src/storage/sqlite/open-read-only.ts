import type { ReadStorage } from '../db.ts'
import { dialectTraits } from '../traits.ts'
import { openReader, sizesOf, sqliteFile } from './file.ts'
import { checkSqliteIntegrity } from './integrity-check.ts'
import { kyselyOver } from './kysely.ts'
import { ReaderPool } from './reader-pool.ts'

/**
 * Never changes the database or its write-ahead log: the connections cannot write, so the last of them does not copy the log
 * into the file when it closes. SQLite may leave an empty log and its index beside a database that nobody serves.
 */
export async function openSqliteReadOnly(dataDir: string): Promise<ReadStorage> {
  const file = sqliteFile(dataDir)
  // Fails here, with a sentence, when the file cannot be read.
  openReader(file).close()
  const ending = new AbortController()
  const readers = new ReaderPool(file, 1)
  const db = kyselyOver(readers)
  return {
    dialect: 'sqlite',
    traits: dialectTraits.sqlite,
    read: db,
    heavy: db,
    checkIntegrity: (signal) => checkSqliteIntegrity(file, AbortSignal.any([signal, ending.signal])),
    sizes: () => sizesOf(file),
    close: async () => {
      ending.abort(new Error('The storage is closed'))
      await readers.close()
    },
  }
}

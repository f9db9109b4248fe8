import { existsSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { formatBytes } from '../../core/byte-size.ts'
import { SetupError } from '../../core/errors.ts'
import { noDatabase } from '../no-database.ts'
import { SqliteConnection } from './connection.ts'
import { openReader, sqliteFile } from './file.ts'
import { kyselyOver } from './kysely.ts'

/** Pages of one step, after which others have their turn. */
const stepPages = 1000

/** Opens a database for reading alone: not even its write-ahead log is copied into the file. */
export function openWithoutWriting(dataDir: string) {
  const file = sqliteFile(dataDir)
  if (!existsSync(file)) throw noDatabase(dataDir)
  const database = openReader(file)
  const bytes = () =>
    (database.pragma('page_count', { simple: true }) as number) *
    (database.pragma('page_size', { simple: true }) as number)
  return { database, read: kyselyOver(new SqliteConnection(database)), bytes, close: () => database.close() }
}

/** Returns what is needed, twice the database: a migration may write all of it again. @throws SetupError */
export async function assertSpace(folder: string, bytes: number, purpose: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  const [free, needed] = [bavail * bsize, bytes * 2]
  if (free >= needed) return needed
  throw new SetupError(
    `${folder} has ${formatBytes(free)} left, and the ${purpose} may need ${formatBytes(needed)}, twice the database: name another directory with --scratch.`,
  )
}

/** Copies the database as it is now into a folder; others go on writing to it. */
export async function copySqlite(
  { database }: ReturnType<typeof openWithoutWriting>,
  folder: string,
  { signal, onProgress }: { signal: AbortSignal; onProgress(done: number, total: number): void },
): Promise<void> {
  // With a transaction of its own the copy is of one moment; without, each write of the service would begin it anew.
  database.exec('begin')
  database.prepare('select count(*) from sqlite_schema').get()
  await database.backup(sqliteFile(folder), {
    progress: ({ totalPages, remainingPages }) => {
      signal.throwIfAborted()
      onProgress(totalPages - remainingPages, totalPages)
      return stepPages
    },
  })
}

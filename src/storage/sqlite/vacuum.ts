import { existsSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { formatBytes } from '../../core/byte-size.ts'
import { SetupError } from '../../core/errors.ts'
import { lockDirectory } from '../directory-lock.ts'
import { noDatabase } from '../no-database.ts'
import { openWriter, sizesOf, sqliteFile } from './file.ts'

export type Vacuumed = { before: number; after: number; milliseconds: number }

/** Bytes of the database, and bytes of the disk that a vacuum needs besides: a whole copy, and the log of writing it back. */
export type VacuumNeeds = { bytes: number; needed: number }

export async function vacuumNeeds(dataDir: string): Promise<VacuumNeeds> {
  const file = sqliteFile(dataDir)
  if (!existsSync(file)) throw noDatabase(dataDir)
  const { data, log } = await sizesOf(file)
  return { bytes: data + log, needed: 2 * (data + log) }
}

/**
 * Rewrites the file without free pages, and turns on incremental vacuum. Nothing else may have it open. @throws SetupError while the service runs, or without enough room
 */
export async function vacuumSqlite(dataDir: string): Promise<Vacuumed> {
  const { bytes: before, needed } = await vacuumNeeds(dataDir)
  const { bavail, bsize } = await statfs(dataDir)
  const free = bavail * bsize
  if (free < needed) {
    throw new SetupError(
      `${dataDir} has ${formatBytes(free)} left, and this needs ${formatBytes(needed)}, twice the database: free some, or move the database.`,
    )
  }
  const unlock = lockDirectory(dataDir)
  try {
    const database = openWriter(sqliteFile(dataDir))
    try {
      const begun = performance.now()
      // The copy is made beside the database, whose disk has the room, and not in memory.
      database.pragma('temp_store = file')
      database.exec('vacuum')
      database.pragma('wal_checkpoint(truncate)')
      const milliseconds = Math.round(performance.now() - begun)
      const { data, log } = await sizesOf(sqliteFile(dataDir))
      return { before, after: data + log, milliseconds }
    } finally {
      database.close()
    }
  } finally {
    unlock()
  }
}

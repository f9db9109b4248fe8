import { statfs } from 'node:fs/promises'
import type { Database } from 'better-sqlite3'

/** With less than this a larger write may fail, though a small one still fits. */
const minBytes = 2 ** 20

/**
 * Checks for free space. Updating an existing row needs none while the log has bytes to overwrite, so its success
 * proves little. Deleted pages count as free, also on a full disk.
 * @throws as SQLite does when it finds none
 */
export async function checkFreeSpace(database: Database, dataDir: string): Promise<void> {
  const ask = (pragma: string) => database.pragma(pragma, { simple: true }) as number
  const minPages = minBytes / ask('page_size')
  const free = ask('freelist_count')
  if (free >= minPages) return
  const more = ask('max_page_count') - ask('page_count')
  if (free + more < minPages) throw full(`the database may have ${Math.max(0, more)} more pages`)
  const { bavail, bsize } = await statfs(dataDir)
  if (bavail * bsize < minBytes) throw full(`the disk has ${bavail * bsize} bytes left`)
}

const full = (why: string): Error => Object.assign(new Error(why), { code: 'SQLITE_FULL' })

import { statfs } from 'node:fs/promises'
import type { Database } from 'better-sqlite3'

/** With less than this a write of some size may fail, though a small one still finds a place. */
const leastBytes = 2 ** 20

/**
 * Whether there is room for more. A change of a row that is there needs none for as long as the log has bytes to write over,
 * so that one that succeeds tells little. What was deleted is room, also on a disk that has no more.
 * @throws as SQLite does when it finds none
 */
export async function checkFreeSpace(database: Database, dataDir: string): Promise<void> {
  const ask = (pragma: string) => database.pragma(pragma, { simple: true }) as number
  const least = leastBytes / ask('page_size')
  const free = ask('freelist_count')
  if (free >= least) return
  const more = ask('max_page_count') - ask('page_count')
  if (free + more < least) throw full(`the database may have ${Math.max(0, more)} more pages`)
  const { bavail, bsize } = await statfs(dataDir)
  if (bavail * bsize < leastBytes) throw full(`the disk has ${bavail * bsize} bytes left`)
}

const full = (why: string): Error => Object.assign(new Error(why), { code: 'SQLITE_FULL' })

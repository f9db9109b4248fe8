import { setTimeout as sleep } from 'node:timers/promises'
import type { SqliteConnection } from './connection.ts'
import type { GroupCommit } from './group-commit.ts'

/** Milliseconds that one step may take, and bounds of its pages. */
const targetMs = 8
const maxPages = 512
/** Free pages that stay for new rows: a part of the file, and at least this many, 16 MiB. */
const keptShare = 0.05
const minKept = 4096

/**
 * Gives free pages at the end of the file back to the disk, in transactions short enough for the event loop, and rests
 * after each for as long as it took. Only where the file was made for it, or vacuumed.
 */
export async function incrementalVacuum(
  writer: SqliteConnection,
  queue: Pick<GroupCommit, 'write'>,
  signal: AbortSignal,
): Promise<void> {
  const ask = (pragma: string) => writer.database.pragma(pragma, { simple: true }) as number
  const incremental = 2
  if (ask('auto_vacuum') !== incremental) return
  for (let pages = 4; !signal.aborted; ) {
    const excess = ask('freelist_count') - Math.max(minKept, ask('page_count') * keptShare)
    if (excess < 1) return
    const count = Math.min(pages, Math.ceil(excess))
    let took = 0
    const step = async () => {
      const begun = performance.now()
      writer.exec(`pragma incremental_vacuum(${count})`)
      took = performance.now() - begun
    }
    // What a crash undoes is done again.
    await queue.write(step, true)
    if (took > targetMs) pages = Math.max(1, Math.floor(pages / 2))
    else if (took < targetMs / 2) pages = Math.min(maxPages, pages * 2)
    await sleep(Math.ceil(took))
  }
}

import { readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { makeFolder } from '../../core/make-folder.ts'

export type Segment = { number: number; size: number }

export const segmentName = (number: number): string => `${String(number).padStart(10, '0')}.ndjson`

/** The segments of a spool, oldest first. Creates the directory if it is missing. */
export function listSegments(directory: string) {
  const all: Segment[] = []
  for (const name of namesIn(directory)) {
    const [, number] = /^(\d{10})\.ndjson$/.exec(name) ?? []
    const stats =
      number === undefined ? undefined : statSync(join(directory, name), { throwIfNoEntry: false })
    if (stats?.isFile()) all.push({ number: Number(number), size: stats.size })
  }
  all.sort((a, b) => a.number - b.number)
  return {
    all,
    last: all.at(-1)?.number ?? 0,
    remove: ({ number }: Segment): void => {
      try {
        rmSync(join(directory, segmentName(number)), { force: true })
      } catch {
        // On a file system that became read-only the file stays.
      }
    },
  }
}

function namesIn(directory: string): string[] {
  try {
    makeFolder(directory)
    return readdirSync(directory)
  } catch {
    // A folder that cannot be read: what is written to it fails as well, and stays in memory.
    return []
  }
}

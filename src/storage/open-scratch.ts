import { formatBytes } from '../core/byte-size.ts'
import type { DatabaseLocation } from './backup/restore-target.ts'
import { explainDiskFull, type Purpose, type Scratch } from './scratch.ts'

type ScratchRequest = {
  purpose: Purpose
  /** On SQLite: where the copy is going to be. */
  folder: string
  /** Gets what is needed, where nobody but the server knows how much is free. */
  note(text: string): void
}

/** @throws SetupError when there is no room, or the role may not create a database */
export async function openScratch(
  { dataDir, databaseUrl }: DatabaseLocation,
  { purpose, folder, note }: ScratchRequest,
): Promise<Scratch> {
  if (databaseUrl !== undefined) {
    const { createScratchDatabase } = await import('./postgres/scratch-database.ts')
    return createScratchDatabase(databaseUrl, { purpose, note })
  }
  const { assertSpace, openWithoutWriting } = await import('./sqlite/copy.ts')
  const original = openWithoutWriting(dataDir)
  try {
    const needed = await assertSpace(folder, original.bytes(), purpose)
    const full = `${folder} is full: the ${purpose} may need ${formatBytes(needed)} there: name another directory with --scratch.`
    return { databaseUrl: undefined, explain: explainDiskFull(full), drop: async () => {} }
  } finally {
    original.close()
  }
}

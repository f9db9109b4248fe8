import { mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { newId } from '../../core/new-id.ts'

/**
 * The last checkpoint of each chain, outside the database: whoever puts an older database in place of the one
 * that was signed does not reach it.
 */
export type Kept = {
  /** Where a person finds that of a chain. */
  fileOf(chain: string): string
  read(chain: string): Promise<string | undefined>
  write(chain: string, note: string): Promise<void>
}

export function keptIn(folder: string): Kept {
  const fileOf = (chain: string): string => join(folder, chain)
  return {
    fileOf,
    async read(chain) {
      try {
        return await readFile(fileOf(chain), 'utf8')
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
        throw error
      }
    },
    async write(chain, note) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      await replace(folder, fileOf(chain), note)
    },
  }
}

/** At once and on the disk, without a wait of the event loop for it: there is the old note or the new one. */
async function replace(folder: string, path: string, text: string): Promise<void> {
  const draft = `${path}.${newId()}`
  try {
    const file = await open(draft, 'wx', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
  if (process.platform === 'win32') return
  const directory = await open(folder, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}

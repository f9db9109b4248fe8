import { open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isId } from '../../core/ids.ts'
import { makeFolder } from '../../core/make-folder.ts'
import { newId } from '../../core/new-id.ts'
import { isChain } from '../rules.ts'

/**
 * The last checkpoint of each chain, stored outside the database: an attacker who replaces the database with an
 * older one does not reach it.
 */
export type LocalCopies = {
  /** Path of a chain's checkpoint, for people. */
  fileOf(chain: string): string
  read(chain: string): Promise<string | undefined>
  write(chain: string, note: string): Promise<void>
  /** The chains that have a local copy; the database has to know each of them. */
  list(): Promise<string[]>
}

/** A draft is renamed at once: an older one was left by a process that died. */
const staleDraftMs = 3_600_000

export function localCopiesIn(folder: string): LocalCopies {
  const fileOf = (chain: string): string => join(folder, chain)
  return {
    fileOf,
    async read(chain) {
      if (!isChain(chain)) return undefined
      try {
        return await readFile(fileOf(chain), 'utf8')
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
        throw error
      }
    },
    async write(chain, note) {
      if (!isChain(chain)) throw new Error(`${JSON.stringify(chain)} is the name of no chain`)
      makeFolder(folder)
      await replaceFile(folder, fileOf(chain), note)
    },
    async list() {
      const names = await listNames(folder)
      for (const name of names) if (isDraft(name)) await removeStaleDraft(join(folder, name))
      return names.filter(isChain)
    },
  }
}

async function listNames(folder: string): Promise<string[]> {
  try {
    return await readdir(folder)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function isDraft(name: string): boolean {
  const [chain, id, ...more] = name.split('.')
  return isChain(chain!) && id !== undefined && isId(id) && more.length === 0
}

async function removeStaleDraft(draft: string): Promise<void> {
  // Its process has finished or removed it.
  const found = await stat(draft).catch(() => undefined)
  if (found && Date.now() - found.mtimeMs > staleDraftMs) await rm(draft, { force: true })
}

/**
 * Replaces a file atomically and durably, without blocking the event loop: the file has the old note or the new
 * one.
 */
async function replaceFile(folder: string, path: string, text: string): Promise<void> {
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

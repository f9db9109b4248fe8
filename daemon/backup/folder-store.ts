import { createReadStream, createWriteStream, existsSync, rmSync } from 'node:fs'
import { open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { SetupError } from '../../src/core/errors.ts'
import { syncDirectory } from '../../src/core/sync-directory.ts'
import { isArchiveName } from './archive-name.ts'
import type { ArchiveStore } from './archive-store.ts'

export function folderStore(folder: string): ArchiveStore {
  const placeOf = (name: string) => join(folder, name)
  return {
    placeOf,
    async list() {
      const found = await reading(folder, readdir(folder, { withFileTypes: true }))
      const names = found.filter((one) => one.isFile() && isArchiveName(one.name)).map(({ name }) => name)
      return Promise.all(
        names
          .sort()
          .reverse()
          .map(async (name) => ({ name, place: placeOf(name), bytes: await this.bytesOf(name) })),
      )
    },
    async write(name, chunks) {
      const file = placeOf(name)
      if (!existsSync(folder)) throw new SetupError(`--out: there is no directory ${folder}`)
      assertNew(file)
      await writeWhole(file, chunks)
      return { bytes: await this.bytesOf(name) }
    },
    bytesOf: async (name) => (await reading(placeOf(name), stat(placeOf(name)))).size,
    async read(name, bytes) {
      const file = await reading(placeOf(name), open(placeOf(name)))
      return createReadStream('', { fd: file, ...(bytes !== undefined && { end: bytes - 1 }) })
    },
    remove: (name) => rm(placeOf(name)),
    async sweep(before) {
      for (const name of await reading(folder, readdir(folder))) {
        const [, of = ''] = /^\.(.+)\.\d+\.part$/.exec(name) ?? []
        if (!isArchiveName(of)) continue
        // Its run has finished or removed it.
        const left = await stat(placeOf(name)).catch(() => undefined)
        if (left !== undefined && left.mtime < before) await rm(placeOf(name), { force: true })
      }
    },
  }
}

async function reading<T>(path: string, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new SetupError(`Cannot read ${path}: ${code === 'ENOENT' ? 'there is no such file' : code}`, {
      cause: error,
    })
  }
}

function assertNew(file: string): void {
  if (existsSync(file)) throw new SetupError(`${file} exists already: a backup overwrites nothing`)
}

/** The file appears under its name when it is complete and on disk. */
async function writeWhole(file: string, chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const folder = join(file, '..')
  const draft = join(folder, `.${basename(file)}.${process.pid}.part`)
  const discard = () => {
    try {
      rmSync(draft, { force: true })
    } catch {
      // There is none in a folder that this user may not enter.
    }
  }
  // Ctrl-C ends the process at once.
  process.once('exit', discard)
  try {
    const sink = createWriteStream(draft, { flags: 'wx', mode: 0o600, flush: true })
    await pipeline(Readable.from(chunks, { objectMode: false }), sink)
    assertNew(file)
    await rename(draft, file)
    syncDirectory(folder)
  } catch (error) {
    discard()
    throw explained(error, file)
  } finally {
    process.removeListener('exit', discard)
  }
}

function explained(error: unknown, file: string): unknown {
  const { code, syscall = '' } = error as NodeJS.ErrnoException
  if (code === undefined || !['open', 'write', 'fsync', 'rename'].includes(syscall)) return error
  return new SetupError(`Cannot write ${file}: ${code === 'ENOSPC' ? 'the disk is full' : code}`, {
    cause: error,
  })
}

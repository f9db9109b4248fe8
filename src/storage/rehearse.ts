import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { sql } from 'kysely'
import { SetupError } from '../core/errors.ts'
import { type Migration, migrate, pendingMigrations, unknownMigrations } from './migrate.ts'
import { openStorage, type Storage, type StorageOptions } from './open.ts'
import { openScratch } from './open-scratch.ts'

export type Rehearsal = {
  /** undefined when nothing was pending, and so nothing was copied. */
  copy: { ms: number; bytes: number } | undefined
  migrations: { name: string; ms: number; bytes: number; addedBytes: number }[]
  ms: number
}

type Place = Pick<StorageOptions, 'dataDir' | 'databaseUrl'>
type Options = {
  /** On SQLite: where the folder of the copy is made; beside the data directory by default. */
  scratch?: string | undefined
  version: string
  folder?: URL
  signal: AbortSignal
  onProgress(what: string, done: number, total: number): void
  note(text: string): void
}
type Copy = { place: Place; explain(error: unknown): unknown; remove(): Promise<void> }

/** Applies pending migrations to a copy, which is removed afterwards, and measures them. The original stays as it is. */
export async function rehearse(
  place: Place,
  migrations: readonly Migration[],
  options: Options,
): Promise<Rehearsal> {
  const begun = performance.now()
  const { folder, signal } = options
  const sources = folder && { folder }
  const original = await openOriginal(place)
  let copy: Copy | undefined
  let failure: unknown
  // `finally` removes it too, and throws what fails.
  const abort = () => void copy?.remove().catch(() => {})
  try {
    const pending = await pendingMigrations(original.storage, migrations, {
      ...sources,
      version: options.version,
    })
    const unknown = await unknownMigrations(original.storage, migrations)
    if (unknown.length > 0)
      throw new SetupError(
        `A later version has applied ${unknown.join(', ')}: rehearse with that version or a later one.`,
      )
    if (pending.length === 0) return { copy: undefined, migrations: [], ms: performance.now() - begun }
    copy = await reserve(place, options)
    signal.addEventListener('abort', abort)
    signal.throwIfAborted()
    const applied = migrations.filter(({ name }) => !pending.includes(name))
    const copying = performance.now()
    await original.copyTo(copy, applied, options)
    const storage = await openStorage({ ...copy.place, postgres: { statementMs: 0 } })
    try {
      const copied = { ms: performance.now() - copying, bytes: await bytesOf(storage) }
      const list = [...applied]
      const measured: Rehearsal['migrations'] = []
      let before = copied.bytes
      for (const [n, name] of pending.entries()) {
        signal.throwIfAborted()
        options.onProgress(name, n, pending.length)
        list.push(migrations.find((one) => one.name === name)!)
        const from = performance.now()
        await migrate(storage, list, sources)
        const ms = performance.now() - from
        const bytes = await bytesOf(storage)
        measured.push({ name, ms, bytes, addedBytes: bytes - before })
        before = bytes
      }
      return { copy: copied, migrations: measured, ms: performance.now() - begun }
    } finally {
      await storage.close()
    }
  } catch (error) {
    failure = copy?.explain(error) ?? error
    throw failure
  } finally {
    signal.removeEventListener('abort', abort)
    await copy?.remove().catch((error: unknown) => {
      if (failure === undefined) throw error
    })
    await original.close()
  }
}

/** An empty place for the copy. @throws SetupError when there is none */
async function reserve(original: Place, { scratch = original.dataDir, note }: Options): Promise<Copy> {
  try {
    const wanted = { purpose: 'rehearsal', folder: scratch, note } as const
    const { databaseUrl, explain, drop } = await openScratch(original, wanted)
    if (databaseUrl !== undefined) return { place: { ...original, databaseUrl }, explain, remove: drop }
    const dataDir = await mkdtemp(join(scratch, 'rehearsal-'))
    return { place: { dataDir }, explain, remove: () => rm(dataDir, { recursive: true, force: true }) }
  } catch (error) {
    if (error instanceof SetupError || original.databaseUrl !== undefined) throw error
    const { code, message } = error as NodeJS.ErrnoException
    throw new SetupError(
      `Cannot make a folder in ${scratch} (${code ?? message}): name another one with --scratch.`,
    )
  }
}

type Original = {
  storage: Pick<Storage, 'dialect' | 'read' | 'write'>
  copyTo(copy: Copy, applied: readonly Migration[], options: Options): Promise<void>
  close(): Promise<void>
}

async function openOriginal(place: Place): Promise<Original> {
  const { dataDir, databaseUrl } = place
  return databaseUrl === undefined
    ? openSqliteOriginal(dataDir)
    : openPostgresOriginal({ dataDir, databaseUrl })
}

async function openSqliteOriginal(dataDir: string): Promise<Original> {
  const { openWithoutWriting, copySqlite } = await import('./sqlite/copy.ts')
  const original = openWithoutWriting(dataDir)
  const write = () => Promise.reject(new Error('The original of a rehearsal is only read'))
  return {
    storage: { dialect: 'sqlite', read: original.read, write },
    async copyTo({ place }, _, { signal, onProgress }) {
      await copySqlite(original, place.dataDir, {
        signal,
        onProgress: (...at) => onProgress('copying', ...at),
      })
    },
    close: async () => void original.close(),
  }
}

async function openPostgresOriginal(place: { dataDir: string; databaseUrl: string }): Promise<Original> {
  const { copyRows } = await import('./postgres/copy.ts')
  const storage = await openStorage({ ...place, postgres: { statementMs: 0 } })
  return {
    storage,
    async copyTo(copy, applied, { folder, signal, onProgress }) {
      const made = await openStorage({ ...copy.place, postgres: { statementMs: 0 } })
      await migrate(made, applied, folder && { folder }).finally(() => made.close())
      // Of an empty database there is nothing to copy.
      if (applied.length === 0) return
      const progress = { signal, onProgress: (...at: [number, number]) => onProgress('copying', ...at) }
      await copyRows(place.databaseUrl, copy.place.databaseUrl!, progress)
    },
    close: () => storage.close(),
  }
}

async function bytesOf({ dialect, read }: Storage): Promise<number> {
  const { rows } = await (dialect === 'sqlite'
    ? sql<{ bytes: number }>`select page_count * page_size as bytes from pragma_page_count, pragma_page_size`
    : sql<{ bytes: number }>`select pg_database_size(current_database()) as bytes`
  ).execute(read)
  return rows[0]!.bytes
}

import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Cipher } from '../../src/core/cipher.ts'
import type { Instant } from '../../src/core/time.ts'
import type { TableShape } from '../../src/storage/backup/catalog.ts'
import { rowPages } from '../../src/storage/backup/row-pages.ts'
import type { Snapshot } from '../../src/storage/backup/snapshot.ts'
import type { Db } from '../../src/storage/open.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import type { TableName } from '../../src/storage/schema/tables.ts'
import { secretsFileName } from '../secrets/file.ts'
import { isExcluded, isKept, isKeptFile, type keptFolders } from './contents.ts'
import { EncryptionCheck } from './encryption-check.ts'
import { formatName, type Head, rowLines, type Tail, tailLine } from './format.ts'

export type KeptFile = { path: string; content: Buffer }

/**
 * The files of the folders that are kept. They are read before the snapshot begins: a checkpoint must not be newer than the
 * chain that it is of.
 */
export async function readCheckpointCopies(dataDir: string): Promise<KeptFile[]> {
  const copies: KeptFile[] = []
  for await (const copy of filesIn(dataDir, 'checkpoints')) copies.push(copy)
  return copies
}

async function* filesIn(dataDir: string, folder: (typeof keptFolders)[number]): AsyncGenerator<KeptFile> {
  const names = await ignoreMissing(readdir(join(dataDir, folder)))
  for (const name of names?.sort() ?? []) {
    const path = `${folder}/${name}`
    const content = isKeptFile(path) ? await ignoreMissing(readFile(join(dataDir, path))) : undefined
    if (content !== undefined) yield { path, content }
  }
}

async function ignoreMissing<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

export async function headOf(
  { db, source, tables, counters, migrations }: Snapshot,
  made: { version: string; madeAt: Instant },
): Promise<Head> {
  const names = new Set(tables.map(({ name }) => name))
  const keys = names.has('key_prints')
    ? await db.selectFrom('key_prints').select(['name', 'print']).orderBy('name').execute()
    : []
  const heads = await db
    .selectFrom('audit_heads')
    .select(['chain', 'seq', 'checksum'])
    .orderBy('chain')
    .execute()
  const left: Record<string, number> = {}
  for (const { name } of tables) {
    if (isExcluded(name)) left[name] = await countRowsOf(db.selectFrom(name as TableName))
  }
  return { format: formatName, ...made, source, migrations, keys, counters, heads, left }
}

/** Rows of all tables that are kept. */
export async function countRows({ db, tables }: Snapshot): Promise<number> {
  let rows = 0
  for (const { name } of tables) if (isKept(name)) rows += await countRowsOf(db.selectFrom(name as TableName))
  return rows
}

type Progress = (rows: number) => void

/** The lines of an archive, in pieces of a quarter of a megabyte or so; `ended` gets its tail. */
export async function* archiveLines(
  snapshot: Snapshot,
  head: Head,
  parts: {
    dataDir: string
    files: readonly KeptFile[]
    secrets: Buffer | undefined
    /** Decrypts encrypted values, to count those that do not open; undefined where the key is not known here. */
    cipher: Cipher | undefined
  },
  { rows: onRows, ended }: { rows: Progress; ended(tail: Tail): void },
): AsyncGenerator<Buffer> {
  const whole = createHash('sha256')
  const tail: Tail = { tables: {}, files: {}, sha256: '' }
  const line = (value: unknown): Buffer => {
    const bytes = Buffer.from(`${JSON.stringify(value)}\n`)
    whole.update(bytes)
    return bytes
  }
  const fileLine = ({ path, content }: KeptFile) => {
    tail.files[path] = { bytes: content.length, sha256: createHash('sha256').update(content).digest('hex') }
    return line({ file: path, content: content.toString('base64') })
  }
  yield line(head)
  for (const file of parts.files) yield fileLine(file)
  if (parts.secrets !== undefined) yield fileLine({ path: secretsFileName, content: parts.secrets })
  let done = 0
  const encrypted = parts.cipher && new EncryptionCheck(parts.cipher)
  for (const table of snapshot.tables) {
    if (!isKept(table.name)) continue
    yield line({ table: table.name, columns: table.columns.map(({ name }) => name) })
    const own = createHash('sha256')
    let rows = 0
    for await (const page of rowPages(snapshot.db, table)) {
      encrypted?.rows(table, page)
      const bytes = Buffer.from(rowLines(page))
      own.update(bytes)
      whole.update(bytes)
      rows += page.length
      yield bytes
      done += page.length
      onRows(done)
    }
    tail.tables[table.name] = { rows, sha256: own.digest('hex') }
  }
  const { unreadable } = encrypted ?? {}
  if (unreadable !== undefined && Object.keys(unreadable).length > 0) tail.unreadable = unreadable
  tail.sha256 = whole.digest('hex')
  ended(tail)
  yield tailLine(tail)
}

/** The count and digest of a table, as the tail of an archive has them. */
export async function tableDigest(db: Db, table: TableShape): Promise<{ rows: number; sha256: string }> {
  const own = createHash('sha256')
  let rows = 0
  for await (const page of rowPages(db, table)) {
    own.update(rowLines(page))
    rows += page.length
  }
  return { rows, sha256: own.digest('hex') }
}

import { createHash } from 'node:crypto'
import { SetupError } from '../../src/core/errors.ts'
import type { TableShape } from '../../src/storage/backup/catalog.ts'
import { type Cell, inRange, type KeyRange, keyOf, rowPages } from '../../src/storage/backup/row-pages.ts'
import {
  type Chunk,
  countCopied,
  readChunks,
  recordChunk,
  unwritten,
} from '../../src/storage/copy/progress.ts'
import type { CopyTarget } from '../../src/storage/copy/target.ts'
import { violatedUniqueKey } from '../../src/storage/database-errors.ts'
import type { Db } from '../../src/storage/open.ts'
import { rowLines } from '../backup/format.ts'

/**
 * - first: what no chunk has yet is copied, while others write to the source
 * - again: chunks that differ from the source by now are copied anew, too
 * - last: the same; nobody else writes to the source any more, so the target is equal after it
 */
export type CopyPass = 'first' | 'again' | 'last'

type Parts = {
  source: Db
  target: CopyTarget
  pass: CopyPass
  /** All rows of the source, in the order of a backup; not in the first pass. */
  seen?: (table: TableShape, rows: readonly Cell[][]) => void
  /** Rows that were read or skipped. */
  progress(rows: number): void
}

export type Rewritten = { chunks: number; rows: number }

/**
 * Copies one table. Rows that differ are first removed from all chunks and then written: a value that must be unique may have
 * gone from one row to another since.
 */
export async function copyTable(parts: Parts, table: TableShape): Promise<Rewritten> {
  const { source, target, pass, progress } = parts
  const rewritten: Rewritten = { chunks: 0, rows: 0 }
  if (pass === 'first') progress(await countCopied(target.db, table.name))
  else await removeChanged(parts, table)

  const chunks = await readChunks(target.db, table.name)
  const write = async (
    chunk: Chunk,
    range: KeyRange,
    pages: AsyncIterable<Cell[][]> | Iterable<Cell[][]>,
  ) => {
    const rows = await writeChunk(parts, table, { chunk, range, pages })
    rewritten.chunks += 1
    rewritten.rows += rows
  }
  for (const [at, chunk] of chunks.entries()) {
    const range = { after: chunks[at - 1]?.last, upTo: chunk.last }
    if (chunk.digest === unwritten) await write(chunk, range, rowPages(source, table, range))
  }
  const after = chunks.at(-1)?.last
  let before = after
  let place = chunks.length
  for await (const page of rowPages(source, table, { after })) {
    parts.seen?.(table, page)
    const last = keyOf(table, page.at(-1)!)
    await write({ place, last, rows: 0, digest: unwritten }, { after: before, upTo: last }, [page])
    progress(page.length)
    before = last
    place += 1
  }
  return rewritten
}

/** Removes the rows of chunks that are no longer those of the source. */
async function removeChanged({ source, target, seen, progress }: Parts, table: TableShape): Promise<void> {
  let after: Cell[] | undefined
  for (const chunk of await readChunks(target.db, table.name)) {
    const range = { after, upTo: chunk.last }
    const digest = createHash('sha256')
    for await (const page of rowPages(source, table, range)) {
      digest.update(rowLines(page))
      seen?.(table, page)
      progress(page.length)
    }
    if (chunk.digest !== unwritten && digest.digest('hex') !== chunk.digest) {
      await target.transaction(async () => {
        await target.db.deleteFrom(table.name).where(inRange(table, range)).execute()
        await recordChunk(target.db, table.name, { ...chunk, rows: 0, digest: unwritten })
      })
    }
    after = chunk.last
  }
}

type Writing = { chunk: Chunk; range: KeyRange; pages: AsyncIterable<Cell[][]> | Iterable<Cell[][]> }

/** Writes the rows of a chunk and its record, and reads them back. Returns how many. */
async function writeChunk(
  { target, pass }: Parts,
  table: TableShape,
  { chunk, range, pages }: Writing,
): Promise<number> {
  const { name } = table
  const work = async () => {
    const sent = createHash('sha256')
    let rows = 0
    for await (const page of pages) {
      if (!target.acceptsNul) assertNoNul(table, page)
      sent.update(rowLines(page))
      await target.insert(table, page)
      rows += page.length
    }
    const digest = sent.digest('hex')
    const found = createHash('sha256')
    for await (const page of rowPages(target.db as unknown as Db, table, range)) found.update(rowLines(page))
    if (found.digest('hex') !== digest) throw new Error(`The rows of ${name} are not what was written`)
    await recordChunk(target.db, name, { ...chunk, rows, digest })
    return rows
  }
  try {
    return await target.transaction(work)
  } catch (error) {
    if (pass === 'last' || violatedUniqueKey(error) === undefined) throw error
    // The value was still that of a row which was copied before it changed: a later pass writes both.
    await recordChunk(target.db, name, { ...chunk, rows: 0, digest: unwritten })
    return 0
  }
}

/** @throws SetupError for what Postgres cannot store */
function assertNoNul({ name, columns }: TableShape, rows: readonly Cell[][]): void {
  for (const row of rows) {
    const at = row.findIndex((cell) => typeof cell === 'string' && cell.includes('\0'))
    if (at === -1) continue
    throw new SetupError(
      `A row of ${name} has a NUL character in ${columns[at]!.name}, which Postgres cannot store: remove it first, or copy to SQLite.`,
    )
  }
}

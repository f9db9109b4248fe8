import type { TableShape } from '../../src/storage/backup/catalog.ts'
import { rowPages } from '../../src/storage/backup/row-pages.ts'
import type { CopySource } from '../../src/storage/copy/source.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import type { TableName } from '../../src/storage/schema/tables.ts'
import { rowLines } from '../backup/format.ts'

export type CopyEstimate = { rows: number; bytes: number; seconds: { first: number; last: number } }

const sampleMs = 1000
/**
 * Writing a row and reading it back takes so many times as long as reading it, as measured
 * (docs/decisions/0041-move-of-an-installation.md).
 */
const writingFactor = 4

/** What there is to copy, and how long it will take: the rows of the largest table are read for a second. */
export async function estimateCopy(source: CopySource, tables: readonly TableShape[]): Promise<CopyEstimate> {
  let rows = 0
  let largest = { rows: 0, table: tables[0]! }
  for (const table of tables) {
    const own = await countRowsOf(source.read.selectFrom(table.name as TableName))
    rows += own
    if (own > largest.rows) largest = { rows: own, table }
  }
  const since = performance.now()
  let sampled = 0
  for await (const page of rowPages(source.read, largest.table)) {
    sampled += rowLines(page).length > 0 ? page.length : 0
    if (performance.now() - since > sampleMs) break
  }
  const reading = (((performance.now() - since) / Math.max(1, sampled)) * rows) / 1000
  return {
    rows,
    bytes: await source.bytes(),
    seconds: { first: Math.ceil(reading * writingFactor), last: Math.ceil(reading + 3) },
  }
}

import { isId } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { escapeToOneLine } from '../core/terminal.ts'
import { type Column, columnTitle, formatValue, valueAt } from './columns.ts'
import type { Display } from './display.ts'
import { colorStatus } from './style.ts'
import { displayWidth, truncate } from './text-width.ts'
import { isTimeField, relativeTime, shortInstant } from './times.ts'

export { displayWidth, escapeToOneLine }

export type TableOptions = Display & {
  header: boolean
  /** The columns stay in the order in which they were requested; else names come before ids on a terminal. */
  isArranged?: boolean
  /** Columns that are left out before all others, the last one first. */
  secondary?: readonly Column[]
  /** The rows are all records that an id could mean, so that ids of a terminal may be cut to a unique beginning. */
  hasAllIds?: boolean
}

const gap = 2
/** The first column names the row: it keeps more of its text than the others. */
export const minFirstWidth = 20
export const minOtherWidth = 14

/**
 * Aligned columns. Cells are cut only on a terminal, and never an id, a time or a short address. Columns without room are left out, the
 * last and least important first: wrapped lines would break the table.
 */
export function renderTable(
  rows: readonly unknown[],
  wanted: readonly Column[],
  options: TableOptions,
): { text: string; hidden: Column[] } {
  const { header, style, width } = options
  const all = layoutColumns(rows, wanted, options)
  const kept = width === undefined ? all : dropColumns(all, width)
  const widths = width === undefined ? kept.map(({ widest }) => widest) : shrinkColumns(kept, width)
  const line = (texts: string[], styled: (text: string, shown: string) => string) =>
    `${texts
      .map((text, i) => {
        const shown = truncate(text, widths[i]!)
        const padding = i === texts.length - 1 ? '' : ' '.repeat(widths[i]! - displayWidth(shown) + gap)
        return styled(text, shown) + padding
      })
      .join('')
      .trimEnd()}\n`
  const head = header
    ? line(
        kept.map(({ title }) => title),
        (_, shown) => style.heading(shown),
      )
    : ''
  const body = rows.map((_, row) =>
    line(
      kept.map(({ cells }) => cells[row] ?? ''),
      (text, shown) => colorStatus(style, text, shown),
    ),
  )
  const hidden = all.filter((one) => !kept.includes(one)).map(({ column }) => column)
  return { text: head + body.join(''), hidden }
}

/** Whether a table of these rows has room for every cell as a whole. */
export function fitsTable(
  rows: readonly unknown[],
  columns: readonly Column[],
  options: TableOptions,
): boolean {
  const widths = layoutColumns(rows, columns, options).map(({ widest }) => widest)
  return options.width === undefined || totalOf(widths) <= options.width
}

/** How much room a column takes. */
export type ColumnRoom = {
  column: Column
  widest: number
  min: number
  /** Columns with the highest rank are left out first. */
  rank: number
}

export const isIdColumn = (column: Column): boolean =>
  column === 'id' || column.endsWith('Id') || column.endsWith('.id')

function layoutColumns(rows: readonly unknown[], wanted: readonly Column[], options: TableOptions) {
  const { width, isArranged, secondary = [] } = options
  const names = wanted.filter((column) => !isIdColumn(column))
  const ids = wanted.filter(isIdColumn)
  const isFree = width !== undefined && !isArranged
  const shown = isFree ? [...names, ...ids] : wanted
  // The id of the row itself says how to go on; those of other records are the first to go.
  const own = ids.filter((column) => column === 'id')
  const usual = isArranged ? wanted : [...names.slice(0, 1), ...own, ...names.slice(1), ...ids]
  const ranked = [...usual.filter((column) => !secondary.includes(column)), ...secondary]
  return shown.map((column, at) => ({
    ...layoutColumn(rows, column, at === 0 ? minFirstWidth : minOtherWidth, options),
    rank: ranked.indexOf(column),
  }))
}

function layoutColumn(
  rows: readonly unknown[],
  column: Column,
  min: number,
  { header, width, now, hasAllIds }: TableOptions,
) {
  const title = escapeToOneLine(columnTitle(column))
  const texts = rows.map((row) => escapeToOneLine(cellOf(valueAt(row, column))) || '-')
  const isTime =
    width !== undefined && texts.every((text) => text === '-' || shortInstant(text) !== undefined)
  const time = (text: string) =>
    now !== undefined && isTimeField(column) ? relativeTime(text, now) : shortInstant(text)!
  const cells = isTime
    ? texts.map((text) => (text === '-' ? text : time(text)))
    : hasAllIds && width !== undefined && column === 'id'
      ? shortenIds(texts)
      : texts
  const widest = cells.reduce(
    (max, text) => Math.max(max, displayWidth(text)),
    header ? displayWidth(title) : 1,
  )
  const isAddress = column === 'url' && widest <= maxAddressWidth
  const isWhole = isTime || isAddress || isIdColumn(column)
  return { column, title, cells, widest, min: isWhole ? widest : Math.min(widest, min) }
}

/** An address that is cut leads elsewhere, or nowhere. */
const maxAddressWidth = 40

const minIdWidth = 8
/** An id that would keep most of its characters stays whole. */
const maxIdWidth = 20

/** The beginnings of ids in which no two are equal. */
function shortenIds(ids: string[]): string[] {
  if (!ids.every(isId)) return ids
  const sorted = [...new Set(ids)].sort()
  const shared = sorted.map((id, at) => {
    const next = sorted[at + 1] ?? ''
    let same = 0
    while (same < next.length && id[same] === next[same]) same += 1
    return same
  })
  const length = Math.max(minIdWidth, ...shared.map((same) => same + 1))
  return length > maxIdWidth ? ids : ids.map((id) => `${id.slice(0, length)}…`)
}

/** For reading: a list of plain values, and counts by name, are said with commas. */
function cellOf(value: unknown): string {
  const isList = Array.isArray(value) && value.every((one) => one === null || typeof one !== 'object')
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (isCounts(value)) return countsOf(value)
  return isList ? value.map(formatValue).join(', ') : formatValue(value)
}

const isCounts = (value: unknown): value is Record<string, number> => {
  const counts = isJsonObject(value) ? Object.values(value) : []
  return counts.length > 0 && counts.every((one) => typeof one === 'number')
}

/** Counts by name, without those that are nothing. */
const countsOf = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .filter(([, count]) => count !== 0)
    .map(([name, count]) => `${name} ${count}`)
    .join(', ')

const totalOf = (widths: number[]): number => widths.reduce((sum, one) => sum + one + gap, -gap)

/** Whether every column fits at its minimum width. */
const fits = (columns: ColumnRoom[], width: number): boolean =>
  totalOf(columns.map(({ min }) => min)) <= width

/** Leaves out columns by rank until the others fit. One stays. */
export function dropColumns<C extends ColumnRoom>(columns: C[], width: number): C[] {
  const kept = [...columns]
  while (kept.length > 1 && !fits(kept, width)) {
    const rank = Math.max(...kept.map((one) => one.rank))
    kept.splice(
      kept.findIndex((one) => one.rank === rank),
      1,
    )
  }
  return kept
}

/** Takes width from the widest columns until the line fits. */
export function shrinkColumns(columns: ColumnRoom[], width: number): number[] {
  const fitted = columns.map(({ widest }) => widest)
  for (let excess = totalOf(fitted) - width; excess > 0; excess -= 1) {
    const at = fitted.reduce(
      (best, one, i) => (one > columns[i]!.min && (best === -1 || one > fitted[best]!) ? i : best),
      -1,
    )
    if (at === -1) break
    fitted[at] = fitted[at]! - 1
  }
  return fitted
}

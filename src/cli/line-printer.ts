import { type Column, columnTitle, formatValue, selectColumns, valueAt } from './columns.ts'
import { type Display, displayOf } from './display.ts'
import { usageError } from './exit-codes.ts'
import { type Output, printNote, rowPrinter, writeJson, writeStdout } from './print.ts'
import { colorStatus, type Style } from './style.ts'
import {
  type ColumnRoom,
  displayWidth,
  dropColumns,
  escapeToOneLine,
  isIdColumn,
  minFirstWidth,
  minOtherWidth,
  shrinkColumns,
} from './table.ts'
import { truncate } from './text-width.ts'
import { isTimeField, shortInstant } from './times.ts'

const widest = 48
/** A column that is never cut has room for a short sentence before it wraps. */
const minMessageWidth = 32

/** How rows are shown on a terminal. */
export type TerminalRows = {
  /** Columns that are left out before all others, the last one first. */
  secondary?: readonly Column[]
  /** The last column is what a person reads the rows for: it is never cut, and a long one wraps. */
  isLastWhole?: boolean
  /** The style of a cell; `text` is what `shown` may be cut from. */
  paint?: Paint
}

type Paint = (style: Style, column: Column, text: string, shown: string) => string

const paintStatus: Paint = (style, _, text, shown) => colorStatus(style, text, shown)

/**
 * Prints an unbounded sequence of rows: JSON is one object per line, a table is printed row by row. On a terminal a row
 * takes one line; elsewhere it is complete.
 */
export function linePrinter(output: Output, usual: Column[], known: Column[], terminal: TerminalRows = {}) {
  if (output.format === 'yaml') throw usageError('This prints rows as they arrive', 'use -o ndjson')
  const columns = selectColumns(output, known, output.format === 'csv' ? known : usual)
  if (output.jq !== undefined) {
    return async (rows: unknown[]) => {
      for (const row of rows) await writeJson(output, row)
    }
  }
  if (output.format !== 'plain' && output.format !== 'table') {
    const format = output.format === 'json' ? 'ndjson' : output.format
    const { rows } = rowPrinter({ ...output, format }, columns)
    return async (some: unknown[]) => {
      if (some.length > 0) await rows(some)
    }
  }
  const print = tablePrinter(output, columns, terminal)
  return async (rows: unknown[]) => {
    if (rows.length > 0) await print(rows)
  }
}

function tablePrinter(
  output: Output,
  columns: Column[],
  { secondary = [], isLastWhole = false, paint = paintStatus }: TerminalRows,
) {
  const titles = columns.map((column) => escapeToOneLine(columnTitle(column)))
  /** Grow with the rows: those to come are not known. */
  const widths = titles.map(displayWidth)
  let shownBefore: string | undefined

  const cellOf = (row: unknown, column: Column, { width }: Display): string => {
    const text = formatValue(valueAt(row, column))
    const short = width !== undefined && !output.utc && isTimeField(column) ? shortInstant(text) : undefined
    return short ?? escapeToOneLine(text)
  }

  /** The columns for which a terminal has room. */
  const layout = (width: number): ColumnRoom[] => {
    const leftOut = output.columns === undefined ? secondary : []
    const ranked = [...columns.filter((column) => !leftOut.includes(column)), ...leftOut]
    const all = columns.map((column, n) => {
      const own = widths[n]!
      const isWhole = isTimeField(column) || isIdColumn(column)
      const isMessage = isLastWhole && n === columns.length - 1
      const some = isMessage ? minMessageWidth : n === 0 ? minFirstWidth : minOtherWidth
      const min = isWhole ? own : Math.min(own, some)
      return { column, widest: own, min, rank: ranked.indexOf(column) }
    })
    return dropColumns(all, width)
  }

  return async (rows: unknown[]): Promise<void> => {
    const display = displayOf(process.stdout, output)
    const { style, width } = display
    const cells = rows.map((row) => columns.map((column) => cellOf(row, column, display)))
    for (const row of cells) {
      for (const [n, cell] of row.entries())
        widths[n] = Math.max(widths[n]!, Math.min(widest, displayWidth(cell)))
    }
    const kept = width === undefined ? undefined : layout(width)
    const fitted = kept && shrinkColumns(kept, width!)
    const places = kept ? kept.map(({ column }) => columns.indexOf(column)) : columns.map((_, n) => n)
    const line = (row: string[], styled: (column: Column, text: string, shown: string) => string) => {
      const shown = places.map((place, at) => {
        const text = row[place]!
        const isLast = at === places.length - 1
        const room = fitted?.[at] ?? widths[place]!
        const cut = fitted && !(isLast && isLastWhole) ? truncate(text, room) : text
        return (
          styled(columns[place]!, text, cut) +
          (isLast ? '' : ' '.repeat(Math.max(0, room - displayWidth(cut))))
        )
      })
      return `${shown.join('  ').trimEnd()}\n`
    }
    const shown = places.join()
    const isNew = shown !== shownBefore
    const head = output.header && isNew ? line(titles, (_, __, title) => style.heading(title)) : ''
    shownBefore = shown
    const body = cells.map((row) => line(row, (column, text, cut) => paint(style, column, text, cut)))
    await writeStdout(head + body.join(''))
    const hidden = columns.filter((_, n) => !places.includes(n))
    if (isNew && hidden.length > 0)
      printNote(`Not shown at ${width} columns: ${hidden.join(', ')}. -o ndjson has every field`)
  }
}

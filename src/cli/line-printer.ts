import { type Column, columnTitle, formatValue, selectColumns, valueAt } from './columns.ts'
import { usageError } from './exit-codes.ts'
import { type Output, rowPrinter, writeJson, writeStdout } from './print.ts'
import { displayWidth, escapeToOneLine } from './table.ts'

const widest = 48

/** Prints an unbounded sequence of rows: JSON is one object per line, a table is printed row by row. */
export function linePrinter(output: Output, usual: Column[], known: Column[]) {
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
  const titles = columns.map((column) => escapeToOneLine(columnTitle(column)))
  const widths = titles.map(displayWidth)
  const line = (cells: string[]) =>
    `${cells
      .map((cell, n) => {
        const width = displayWidth(cell)
        widths[n] = Math.max(widths[n]!, Math.min(widest, width))
        return n === cells.length - 1 ? cell : cell + ' '.repeat(Math.max(0, widths[n]! - width))
      })
      .join('  ')
      .trimEnd()}\n`
  let headed = !output.header
  return async (rows: unknown[]) => {
    if (rows.length === 0) return
    const cells = rows.map((row) =>
      columns.map((column) => escapeToOneLine(formatValue(valueAt(row, column)))),
    )
    for (const row of cells) line(row)
    const head = headed ? '' : line(titles)
    headed = true
    await writeStdout(head + cells.map(line).join(''))
  }
}

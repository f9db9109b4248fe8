import { asText, type Column, columnsAmong, titleOf, valueAt } from './columns.ts'
import { usage } from './exit.ts'
import { type Output, rowPrinter, write, writeJson } from './print.ts'
import { escapeToOneLine } from './table.ts'

const widest = 48

/** Prints rows of which nobody knows how many will come: JSON is one object a line, a table has no end. */
export function linePrinter(output: Output, usual: Column[], known: Column[]) {
  if (output.format === 'yaml') throw usage('This prints rows as they come', 'use -o ndjson')
  const columns = columnsAmong(output, known, output.format === 'csv' ? known : usual)
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
  const titles = columns.map((column) => escapeToOneLine(titleOf(column)))
  const widths = titles.map((title) => title.length)
  const line = (cells: string[]) =>
    `${cells
      .map((cell, n) => {
        widths[n] = Math.max(widths[n]!, Math.min(widest, cell.length))
        return n === cells.length - 1 ? cell : cell.padEnd(widths[n]!)
      })
      .join('  ')
      .trimEnd()}\n`
  let headed = !output.header
  return async (rows: unknown[]) => {
    if (rows.length === 0) return
    const cells = rows.map((row) => columns.map((column) => escapeToOneLine(asText(valueAt(row, column)))))
    for (const row of cells) line(row)
    const head = headed ? '' : line(titles)
    headed = true
    await write(head + cells.map(line).join(''))
  }
}

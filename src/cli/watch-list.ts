import type { z } from 'zod'
import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { pollingClient } from './api-client.ts'
import type { CommandContext } from './base.ts'
import { type Column, schemaColumns, valueAt } from './columns.ts'
import { displayOf } from './display.ts'
import { linePrinter } from './line-printer.ts'
import { canRedraw, poll, quitHint, type ScreenSize, showLive } from './live-screen.ts'
import { fetchPages, type ListReply, type PageOptions } from './pages.ts'
import { type Output, toJson } from './print.ts'
import { formatNumber } from './progress.ts'
import { renderTable } from './table.ts'

const everyMs = 5000

type List = {
  entry: Endpoint
  input: RawInput
  flags: PageOptions
  columns: Column[]
  row: z.ZodType
  /** Columns that are left out first. */
  secondary: Column[] | undefined
  /** Whether all rows of the list are all records that an id could mean. */
  hasAllIds: boolean
}

type Rows = { rows: unknown[]; total: number | undefined }

/** Redraws a list on a terminal; in a pipe it prints the rows, and each again when it has changed. */
export async function watchList(session: CommandContext, list: List): Promise<void> {
  const { output } = session
  const client = pollingClient(session.clientOptions)
  const { entry, input, flags, columns, row, secondary } = list
  const read = async (): Promise<Rows> => {
    const rows: unknown[] = []
    let total: number | undefined
    for await (const page of fetchPages(client, entry, input, flags)) {
      rows.push(...page.rows)
      total ??= (page.reply as ListReply).pagination?.total
    }
    return { rows, total }
  }
  if ((output.format === 'plain' || output.format === 'table') && canRedraw())
    return showLive(read, everyMs, (now, size) => drawRows(now, list, output, size))
  const print = linePrinter(output, columns, schemaColumns(row), { ...(secondary && { secondary }) })
  const isWhole = output.columns === undefined && ['json', 'ndjson'].includes(output.format)
  let printed = new Set<string>()
  return poll({ read, everyMs }, async ({ rows }) => {
    const texts = rows.map((one) => toJson(isWhole ? one : columns.map((column) => valueAt(one, column))))
    await print(rows.filter((_, n) => !printed.has(texts[n]!)))
    printed = new Set(texts)
  })
}

function drawRows(
  { rows, total }: Rows,
  { columns, secondary, hasAllIds }: List,
  output: Output,
  { columns: width, rows: height }: ScreenSize,
): string[] {
  const display = { ...displayOf(process.stdout, output), width }
  const { header } = output
  const isArranged = output.columns !== undefined
  const room = Math.max(1, height - (header ? 3 : 2))
  const shown = Math.min(room, rows.length)
  const all = total !== undefined && total > rows.length ? total : rows.length
  const { text, hidden } = renderTable(rows.slice(0, room), columns, {
    ...display,
    header,
    isArranged,
    hasAllIds: hasAllIds && shown === all,
    ...(secondary && !isArranged && { secondary }),
  })
  const count = shown < all ? `${formatNumber(shown)} of ${formatNumber(all)}` : formatNumber(all)
  const clock = `${new Date().toISOString().slice(11, 19)}Z`
  const without = hidden.length > 0 ? `, without ${hidden.join(', ')}` : ''
  return [...text.trimEnd().split('\n'), '', display.style.dim(`${count} at ${clock}, ${quitHint}${without}`)]
}

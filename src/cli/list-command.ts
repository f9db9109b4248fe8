import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import { listShape, parseColumns, schemaColumns } from './columns.ts'
import type { CommandView, ParsedInput } from './command-view.ts'
import { fetchPages, type ListReply, needsSeveralPages, type PageOptions } from './pages.ts'
import { printNote, rowPrinter } from './print.ts'
import { withSpinner } from './progress.ts'

/** Prints the rows of a list, page by page. */
export async function runListCommand(
  { client, output }: CommandContext,
  entry: Endpoint,
  view: CommandView,
  input: RawInput,
  typed: ParsedInput,
): Promise<void> {
  const flags = typed.flags as PageOptions
  const { key, row } = listShape(entry.reply)!
  const usual = () => (output.format === 'csv' ? schemaColumns(row) : (view.columns ?? schemaColumns(row)))
  const printer = rowPrinter(
    output,
    output.columns === undefined ? usual() : parseColumns(output.columns, row),
  )
  let first: ListReply | undefined
  let last: ListReply = {}
  let shown = 0
  const steps = fetchPages(client, entry, input, flags)
  for (;;) {
    const step = await withSpinner('Waiting for the service', steps.next())
    if (step.done) break
    last = step.value.reply
    first ??= last
    shown += step.value.rows.length
    await printer.rows(step.value.rows)
  }
  const { pagination } = last
  const walked = needsSeveralPages(flags)
  await printer.end((rows) => ({
    ...last,
    [key]: rows,
    // Only the first page has the total.
    ...(pagination &&
      walked && { pagination: { ...pagination, ...counted(first), page: 1, limit: rows.length } }),
  }))
  if ((pagination?.total ?? 0) > shown && !walked && !['json', 'yaml'].includes(output.format)) {
    printNote(`${shown} of ${pagination?.total} shown, page ${pagination?.page}: --all shows every row`)
  }
}

function counted(first: ListReply | undefined): object {
  const { nextCursor: _, ...numbers } = first?.pagination ?? {}
  return numbers
}

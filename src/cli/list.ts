import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { Session } from './base.ts'
import { checkColumns, leavesOf, rowsOf } from './columns.ts'
import { type ListReply, type PageOptions, pages, walks } from './pages.ts'
import { rowPrinter, say } from './print.ts'
import { waiting } from './progress.ts'
import type { Typed, View } from './view.ts'

/** Prints the rows of a list, page by page. */
export async function list(
  { client, output }: Session,
  entry: Endpoint,
  view: View,
  input: RawInput,
  typed: Typed,
): Promise<void> {
  const flags = typed.flags as PageOptions
  const { key, row } = rowsOf(entry.reply)!
  const usual = () => (output.format === 'csv' ? leavesOf(row) : (view.columns ?? leavesOf(row)))
  const printer = rowPrinter(
    output,
    output.columns === undefined ? usual() : checkColumns(output.columns, row),
  )
  let first: ListReply | undefined
  let last: ListReply = {}
  let shown = 0
  const steps = pages(client, entry, input, flags)
  for (;;) {
    const step = await waiting('Waiting for the service', steps.next())
    if (step.done) break
    last = step.value.reply
    first ??= last
    shown += step.value.rows.length
    await printer.rows(step.value.rows)
  }
  const { pagination } = last
  const walked = walks(flags)
  await printer.end((rows) => ({
    ...last,
    [key]: rows,
    // Only the first page says how many there are.
    ...(pagination &&
      walked && { pagination: { ...pagination, ...counted(first), page: 1, limit: rows.length } }),
  }))
  if ((pagination?.total ?? 0) > shown && !walked && !['json', 'yaml'].includes(output.format)) {
    say(`${shown} of ${pagination?.total} shown, page ${pagination?.page}: --all shows every row`)
  }
}

function counted(first: ListReply | undefined): object {
  const { nextCursor: _, ...numbers } = first?.pagination ?? {}
  return numbers
}

import type { z } from 'zod'
import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import { listShape, parseColumns, schemaColumns, shapeOrEmpty } from './columns.ts'
import type { CommandView, ParsedInput } from './command-view.ts'
import { resourceOf } from './fields.ts'
import { fetchPages, type ListReply, needsSeveralPages, type PageOptions } from './pages.ts'
import { printNote, rowPrinter } from './print.ts'
import { withSpinner } from './progress.ts'

/** Prints the rows of a list, page by page. */
export async function runListCommand(
  session: CommandContext,
  entry: Endpoint,
  view: CommandView,
  input: RawInput,
  typed: ParsedInput,
): Promise<void> {
  const { client, output } = session
  const flags = typed.flags as PageOptions & { watch?: boolean }
  const { key, row } = listShape(entry.reply)!
  const usual = () => (output.format === 'csv' ? schemaColumns(row) : (view.columns ?? schemaColumns(row)))
  const columns = output.columns === undefined ? usual() : parseColumns(output.columns, row)
  if (flags.watch) {
    const { watchList } = await import('./watch-list.ts')
    const hasAllIds = await isSearchedForIds(session, entry, row, input)
    return watchList(session, { entry, input, flags, columns, row, secondary: view.secondary, hasAllIds })
  }
  const printer = rowPrinter(output, columns)
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
  const whole = (rows: unknown[]) => ({
    ...last,
    [key]: rows,
    // Only the first page has the total.
    ...(pagination &&
      walked && { pagination: { ...pagination, ...counted(first), page: 1, limit: rows.length } }),
  })
  const isComplete = shown >= (counted(first).total ?? pagination?.total ?? shown)
  await printer.end(whole, {
    secondary: view.secondary,
    hasAllIds: async () => isComplete && (await isSearchedForIds(session, entry, row, input)),
  })
  if ((pagination?.total ?? 0) > shown && !walked && !['json', 'yaml'].includes(output.format)) {
    printNote(`${shown} of ${pagination?.total} shown, page ${pagination?.page}: --all shows every row`)
  }
}

function counted(first: ListReply | undefined): { total?: number } {
  const { nextCursor: _, ...numbers } = first?.pagination ?? {}
  return numbers
}

/** Whether the beginning of an id is looked for in just these rows: nothing but the current organization narrows them. */
async function isSearchedForIds(
  { settings }: CommandContext,
  entry: Endpoint,
  row: z.ZodType,
  { params = {}, query = {} }: RawInput,
): Promise<boolean> {
  const isOwn = (key: string) => key === 'orgId' && settings.org.from !== 'flag'
  const narrowing = Object.entries({ ...params, ...query }).filter(
    ([key, value]) => value !== undefined && !isOwn(key),
  )
  if (narrowing.length > 0) return false
  const resource = resourceOf(shapeOrEmpty(row).id)
  if (resource === undefined) return false
  const { lookups } = await import('./resolve.ts')
  return (await lookups[resource]?.list()) === entry
}

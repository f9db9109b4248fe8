import type { z } from 'zod'
import { SearchResult, search } from '../search/contract.ts'
import type { CommandContext } from './base.ts'
import { schemaColumns, selectColumns } from './columns.ts'
import { currentOrg } from './current-org.ts'
import { rowPrinter } from './print.ts'
import { withSpinner } from './progress.ts'

export const resultTypes = SearchResult.shape.type.options

type Options = { type?: string | undefined; limit?: number | undefined }

export async function searchFor(session: CommandContext, q: string, options: Options): Promise<void> {
  const { client, output } = session
  const { type, limit } = options
  const columns = selectColumns(
    output,
    schemaColumns(SearchResult),
    output.format === 'csv' ? undefined : ['type', 'title', 'description', 'id'],
  )
  // The service gives each kind a part of the limit: for one kind alone, all that there can be of it is asked for.
  const asked = type === undefined ? limit : 50
  const orgId = await currentOrg(session)
  const query = { q, ...(orgId !== undefined && { orgId }), ...(asked !== undefined && { limit: asked }) }
  const reply = await withSpinner('Waiting for the service', client.request(search.everything, { query }))
  const { results } = reply as z.output<typeof search.everything.reply>
  const printer = rowPrinter(output, columns)
  await printer.rows(results.filter((one) => type === undefined || one.type === type).slice(0, limit))
  await printer.end((rows) => ({ results: rows }))
}

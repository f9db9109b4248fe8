import { keyAfter, toCursorPage } from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import { type HandlersOf, inSteps, type Preparation, type StreamReply } from '../../handler.ts'
import type { Storage } from '../../storage/open.ts'
import { type EntryFilter, listEntriesByIds, listNewestKeys } from '../entries.ts'
import { checkOrgAndNote } from '../handlers.ts'
import { sealPendingFor } from '../outbox.ts'
import {
  type auditExports as contract,
  type ExportColumn,
  type ExportFormat,
  maxExportEntries,
} from './contract.ts'
import { exportWriter, selectColumns } from './rules.ts'

type Exports = typeof contract

type ExportRequest = {
  format: ExportFormat
  filter: EntryFilter
  columns: ExportColumn[]
  cursor: string | undefined
  /** Where the cursor is in the request, for error messages. */
  cursorAt: string
}

const mediaTypes = {
  csv: 'text/csv; charset=utf-8',
  json: 'application/json',
  ndjson: 'application/x-ndjson',
} as const

/** Entries read at a time, as fast as the client reads. */
const batchSize = 500

/** Runs before the transaction of the audit entry: searching a whole log takes long. */
async function prepareExport(
  {
    storage,
    readQuery,
    scope,
    note,
  }: Pick<Preparation<Exports['create']>, 'storage' | 'readQuery' | 'scope' | 'note'>,
  { format, filter, columns, cursor, cursorAt }: ExportRequest,
): Promise<StreamReply> {
  const [timestamp, id] = (keyAfter({ cursor }, 2, cursorAt) ?? []).map(String)
  const { orgId } = filter
  await checkOrgAndNote({ storage, scope, note }, orgId)
  await sealPendingFor(storage, scope, orgId)
  const last: [string, string] | undefined =
    timestamp === undefined || id === undefined ? undefined : [timestamp, id]
  const found = await readQuery((on) => listNewestKeys(on, scope, filter, last, maxExportEntries + 1))
  const { data: keys, pagination } = toCursorPage(
    found,
    { page: 1, limit: maxExportEntries },
    (key) => key,
    undefined,
  )
  const { nextCursor } = pagination
  const cut = { total: keys.length, truncated: nextCursor !== null, nextCursor }
  note({
    after: null,
    details: { format, columns, filters: filter, entries: keys.length },
  })
  const ids = keys.map(([, id]) => id)
  return {
    type: mediaTypes[format],
    headers: {
      'content-disposition': `attachment; filename="audit-logs.${format}"`,
      'x-total-count': String(cut.total),
      'x-truncated': String(cut.truncated),
      ...(nextCursor !== null && { 'x-next-cursor': nextCursor }),
    },
    pieces: exportChunks(storage, scope, ids, exportWriter(format, columns, cut)),
  }
}

export const auditExports: HandlersOf<Exports> = {
  download: inSteps<Exports['download'], StreamReply>({
    prepare: ({ query, ...call }) => {
      const { format, columns, includeDetails = true, cursor, ...filter } = query
      return prepareExport(call, {
        format,
        filter,
        columns: selectColumns(columns, includeDetails),
        cursor,
        cursorAt: 'query.cursor',
      })
    },
    run: async (_, streamed) => streamed,
  }),
  create: inSteps<Exports['create'], StreamReply>({
    prepare: ({ query, body, ...call }) => {
      const { format, filters, dateRange, columns, includeDetails, cursor } = body
      const filter = { ...query, ...filters, ...dateRange }
      return prepareExport(call, {
        format,
        filter,
        columns: selectColumns(columns, includeDetails),
        cursor,
        cursorAt: 'body.cursor',
      })
    },
    run: async (_, streamed) => streamed,
  }),
}

async function* exportChunks(
  storage: Storage,
  scope: Scope,
  ids: string[],
  { begin, line, end }: ReturnType<typeof exportWriter>,
): AsyncGenerator<string> {
  yield begin
  for (let from = 0; from < ids.length; from += batchSize) {
    const entries = await listEntriesByIds(storage.heavy, scope, ids.slice(from, from + batchSize))
    yield entries.map((entry, at) => line(entry, from + at)).join('')
  }
  yield end
}

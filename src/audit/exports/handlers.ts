import { keyAfter, toCursorPage } from '../../core/page.ts'
import type { Scope } from '../../core/scope.ts'
import { type HandlersOf, inSteps, type Preparation, type Streamed } from '../../handler.ts'
import type { Storage } from '../../storage/open.ts'
import { entriesOf, type Filter, newestKeys } from '../entries.ts'
import { checked } from '../handlers.ts'
import { sealFor } from '../outbox.ts'
import { type auditExports as contract, type ExportColumn, type ExportFormat, exportCap } from './contract.ts'
import { columnsAsked, frameOf } from './rules.ts'

type Exports = typeof contract

type Asked = {
  format: ExportFormat
  filter: Filter
  columns: ExportColumn[]
  cursor: string | undefined
  /** Where in the request it stands. */
  cursorAt: string
}

const types = {
  csv: 'text/csv; charset=utf-8',
  json: 'application/json',
  ndjson: 'application/x-ndjson',
} as const

/** Entries read at a time, while the reader takes them. */
const batch = 500

/** Before the transaction of the audit entry: looking through a whole log takes its time. */
async function prepare(
  { storage, ask, scope, note }: Pick<Preparation<Exports['create']>, 'storage' | 'ask' | 'scope' | 'note'>,
  { format, filter, columns, cursor, cursorAt }: Asked,
): Promise<Streamed> {
  const [timestamp, id] = (keyAfter({ cursor }, 2, cursorAt) ?? []).map(String)
  const { orgId } = filter
  await checked({ storage, scope, note }, orgId)
  await sealFor(storage, scope, orgId)
  const last: [string, string] | undefined =
    timestamp === undefined || id === undefined ? undefined : [timestamp, id]
  const found = await ask((on) => newestKeys(on, scope, filter, last, exportCap + 1))
  const { data: keys, pagination } = toCursorPage(
    found,
    { page: 1, limit: exportCap },
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
    type: types[format],
    headers: {
      'content-disposition': `attachment; filename="audit-logs.${format}"`,
      'x-total-count': String(cut.total),
      'x-truncated': String(cut.truncated),
      ...(nextCursor !== null && { 'x-next-cursor': nextCursor }),
    },
    pieces: piecesOf(storage, scope, ids, frameOf(format, columns, cut)),
  }
}

export const auditExports: HandlersOf<Exports> = {
  download: inSteps<Exports['download'], Streamed>({
    prepare: ({ query, ...call }) => {
      const { format, columns, includeDetails = true, cursor, ...filter } = query
      return prepare(call, {
        format,
        filter,
        columns: columnsAsked(columns, includeDetails),
        cursor,
        cursorAt: 'query.cursor',
      })
    },
    run: async (_, streamed) => streamed,
  }),
  create: inSteps<Exports['create'], Streamed>({
    prepare: ({ query, body, ...call }) => {
      const { format, filters, dateRange, columns, includeDetails, cursor } = body
      const filter = { ...query, ...filters, ...dateRange }
      return prepare(call, {
        format,
        filter,
        columns: columnsAsked(columns, includeDetails),
        cursor,
        cursorAt: 'body.cursor',
      })
    },
    run: async (_, streamed) => streamed,
  }),
}

async function* piecesOf(
  storage: Storage,
  scope: Scope,
  ids: string[],
  { begin, line, end }: ReturnType<typeof frameOf>,
): AsyncGenerator<string> {
  yield begin
  for (let from = 0; from < ids.length; from += batch) {
    const entries = await entriesOf(storage.heavy, scope, ids.slice(from, from + batch))
    yield entries.map((entry, at) => line(entry, from + at)).join('')
  }
  yield end
}

import {
  type CursorPageQuery,
  fetchLimit,
  keyAfter,
  offsetOf,
  sequenceAfter,
  toCursorPage,
  totalFrom,
} from '../core/page.ts'
import type { PartnerScope, Scope } from '../core/scope.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { after, contains, jsonField, plainContains } from '../storage/query/expressions.ts'
import { newestOfEachOrg } from '../storage/query/newest-of-each.ts'
import { inScopeHistory, inScopeHistoryUnindexed } from '../storage/query/scope.ts'
import type { AuditLogRow } from '../storage/schema/tables.ts'
import type { AuditEntry } from './contract.ts'
import { chainOf, expandAction, expandActionSubstring } from './rules.ts'
import { edgeSeq, entriesIn, findHead, toEntriesWithNames } from './store.ts'

export type EntryFilter = {
  orgId?: string | undefined
  user?: string | undefined
  action?: string | undefined
  resource?: string | undefined
  excludeActions?: string | undefined
  from?: string | undefined
  to?: string | undefined
  q?: string | undefined
}

type Entries = ReturnType<typeof entriesIn>
type TimeRange = Pick<EntryFilter, 'orgId' | 'from' | 'to'>

/** The entries in a time range, in a scope or in one organization of it. */
export const entriesDuring = (db: Db, scope: Scope, range: TimeRange) => during(entriesIn(db, scope), range)

const during = (entries: Entries, { orgId, from, to }: TimeRange) =>
  entries
    .$if(orgId !== undefined, (it) => it.where('chain', '=', chainOf(orgId!)))
    .$if(from !== undefined, (it) => it.where('timestamp', '>=', from!))
    .$if(to !== undefined, (it) => it.where('timestamp', '<=', to!))

const filterEntries = (db: Db, scope: Scope, filter: EntryFilter) =>
  filtered(db, entriesIn(db, scope), filter)

function filtered(db: Db, entries: Entries, filter: EntryFilter) {
  const { user, action, resource, excludeActions, q } = filter
  const named = (part: string) =>
    db.selectFrom('users').select('users.id').where(contains('users.name', part))
  const excluded = (excludeActions ?? '')
    .split(',')
    .flatMap((one) => (one.trim() ? expandAction(one.trim()) : []))
  return during(entries, filter)
    .$if(excluded.length > 0, (it) => it.where('action', 'not in', excluded))
    .$if(Boolean(action), (it) =>
      it.where((eb) =>
        eb.or([
          plainContains('action', action!),
          ...expandActionSubstring(action!).map((one) => eb('action', '=', one)),
        ]),
      ),
    )
    .$if(Boolean(user), (it) =>
      it.where((eb) => eb.or([contains('actor_email', user!), eb('actor_id', 'in', named(user!))])),
    )
    .$if(Boolean(resource), (it) =>
      it.where((eb) => eb.or([contains('resource_type', resource!), contains('resource_name', resource!)])),
    )
    .$if(Boolean(q), (it) =>
      it.where((eb) =>
        eb.and([
          // This text contains everything that is searched, and scanning it is faster. It contains other fields
          // too, so the columns decide.
          contains('canonical', jsonEscape(q!)),
          eb.or([
            ...searchColumns.map((column) => contains(column, q!)),
            contains(jsonField('canonical', 'details', 'errorMessage'), jsonEscape(q!)),
          ]),
        ]),
      ),
    )
}

const searchColumns = ['action', 'actor_email', 'resource_type', 'resource_name'] as const

/** A text as it appears within a JSON string. */
const jsonEscape = (text: string): string => JSON.stringify(text).slice(1, -1)

const isUnfiltered = ({ orgId: _, ...filter }: EntryFilter): boolean =>
  Object.values(filter).every((one) => one === undefined || one === '')

/** The chain that a query lists in full; its entries are numbered without gaps. */
function wholeChain(scope: Scope, filter: EntryFilter): string | undefined {
  if (!isUnfiltered(filter)) return undefined
  if (filter.orgId !== undefined) return chainOf(filter.orgId)
  return scope.kind === 'organization' ? chainOf(scope.orgId) : undefined
}

const newestFirst = ['audit_logs.timestamp', 'audit_logs.id'] as const

export type ListQuery = EntryFilter & CursorPageQuery & { skipCount?: boolean | undefined }

/**
 * Lists entries, newest first. A whole chain is listed by sequence number, where every page costs as much as
 * the first; otherwise entries are ordered by time, and a cursor skips the rows before it. `total` is -1 when
 * it was not counted.
 */
export async function listEntries(db: Db, scope: Scope, query: ListQuery) {
  const { page, limit, cursor, skipCount, ...filter } = query
  const at = { page, limit, cursor }
  const chain = wholeChain(scope, filter)
  const found =
    chain === undefined ? await listByTime(db, scope, at, filter) : await listBySeq(db, scope, at, chain)
  const counted = async () => totalFrom(Math.min(found.length, limit), at) ?? countAll(db, scope, filter)
  const total = skipCount || cursor !== undefined ? -1 : await counted()
  const keyOf = (row: AuditLogRow) => (chain === undefined ? [row.timestamp, row.id] : [row.seq])
  const { data, pagination } = toCursorPage(found, at, keyOf, total)
  const totalPages = total < 0 ? -1 : Math.ceil(total / limit)
  return { data: await toEntriesWithNames(db, data), pagination: { ...pagination, total, totalPages } }
}

async function listBySeq(
  db: Db,
  scope: Scope,
  query: CursorPageQuery,
  chain: string,
): Promise<AuditLogRow[]> {
  const place = sequenceAfter(query)
  const last = async () => (await edgeSeq(db, scope, chain, 'desc')) - offsetOf(query) + 1
  return entriesIn(db, scope)
    .selectAll()
    .where('chain', '=', chain)
    .where('seq', '<', place ?? (await last()))
    .orderBy('seq', 'desc')
    .limit(fetchLimit(query))
    .execute()
}

/**
 * The entries of one chain after a sequence number, oldest first. Sequence numbers are assigned under a lock on
 * the head of the chain, so a caller that reads on from the last one misses no entry.
 */
export async function listEntriesAfter(
  db: Db,
  scope: Scope,
  chain: string,
  query: EntryFilter & CursorPageQuery & { after: number },
) {
  const { page, limit, cursor, after: start, ...filter } = query
  const at = { page, limit, cursor }
  const place = sequenceAfter(at)
  // Read before the entries, so the entries include all up to it.
  const head = (await findHead(db, scope, chain))?.seq ?? 0
  const found = await filterEntries(db, scope, filter)
    .selectAll()
    .where('chain', '=', chain)
    .where('seq', '>', place ?? start)
    .orderBy('seq')
    .limit(fetchLimit(at))
    .offset(place === undefined ? offsetOf(at) : 0)
    .execute()
  const { data, pagination } = toCursorPage(found, at, ({ seq }) => [seq], undefined)
  return {
    data: await toEntriesWithNames(db, data),
    pagination: { ...pagination, total: -1, totalPages: -1 },
    head,
  }
}

/** Entries looked up by their ids. */
const entriesById = (db: Db, scope: Scope) =>
  db.selectFrom('audit_logs').where(inScopeHistoryUnindexed(scope, 'audit_logs.chain'))

const inChains = { column: 'audit_logs.chain', time: 'audit_logs.timestamp', id: 'audit_logs.id' }

/** A filter may select few entries, so that a page of them is far down in the entries of all partners. */
const isOfSeveralOrgs = (
  scope: Scope,
  { orgId, from: _, to: __, ...filter }: EntryFilter,
): scope is PartnerScope =>
  scope.kind === 'partner' && scope.orgs.length > 0 && orgId === undefined && !isUnfiltered(filter)

type Page = { beyond: readonly (string | number)[] | undefined; limit: number; offset: number }

/** Time and id of the newest entries that a filter selects, from a place on: a table, in no order. */
function newest(db: Db, scope: Scope, filter: EntryFilter, { beyond, ...page }: Page) {
  const found = (entries: Entries) =>
    filtered(db, entries, filter).$if(beyond !== undefined, (it) =>
      it.where(after(newestFirst, beyond!, 'desc')),
    )
  if (isOfSeveralOrgs(scope, filter))
    return newestOfEachOrg(scope, inChains, page, (isOfOrg) =>
      found(db.selectFrom('audit_logs').where(isOfOrg)),
    ).as('newest')
  return found(entriesIn(db, scope))
    .select(['audit_logs.timestamp as time', 'audit_logs.id'])
    .orderBy('audit_logs.timestamp', 'desc')
    .orderBy('audit_logs.id', 'desc')
    .limit(page.limit)
    .offset(page.offset)
    .as('newest')
}

/** An index selects the first entries where it can; only the rows of the page are read. */
async function listByTime(
  db: Db,
  scope: Scope,
  query: CursorPageQuery,
  filter: EntryFilter,
): Promise<AuditLogRow[]> {
  const key = keyAfter(query, newestFirst.length)
  const page = { beyond: key, limit: fetchLimit(query), offset: key === undefined ? offsetOf(query) : 0 }
  const places = db.selectFrom(newest(db, scope, filter, page)).select('newest.id')
  return entriesById(db, scope)
    .selectAll()
    .where('audit_logs.id', 'in', places)
    .orderBy('audit_logs.timestamp', 'desc')
    .orderBy('audit_logs.id', 'desc')
    .execute()
}

/** The length of a whole chain follows from its sequence numbers. */
async function countAll(db: Db, scope: Scope, filter: EntryFilter): Promise<number> {
  if (!isUnfiltered(filter)) return countRowsOf(filterEntries(db, scope, filter))
  const chain = wholeChain(scope, filter)
  if (chain !== undefined) {
    const last = await edgeSeq(db, scope, chain, 'desc')
    return last === 0 ? 0 : last - (await edgeSeq(db, scope, chain, 'asc')) + 1
  }
  const { total } = await db
    .selectFrom('audit_heads')
    .select((eb) => {
      const first = eb
        .selectFrom('audit_logs')
        .select((log) => log.fn.min('seq').as('first'))
        .whereRef('audit_logs.chain', '=', 'audit_heads.chain')
      return eb.fn.sum<number | string | null>(eb(eb('seq', '-', first), '+', 1)).as('total')
    })
    .where(inScopeHistory(scope, 'audit_heads.chain'))
    .executeTakeFirstOrThrow()
  // Postgres returns the sum as text, since it may have any size. A damaged head may be anything.
  return Math.max(0, Number(total) || 0)
}

/** Position of an entry in the order of time. */
export type EntryKey = [timestamp: string, id: string]

/**
 * The keys of the newest entries that match a filter. The keys fix the selection, however slowly the entries
 * are read.
 */
export async function listNewestKeys(
  db: Db,
  scope: Scope,
  filter: EntryFilter,
  beyond: EntryKey | undefined,
  limit: number,
): Promise<EntryKey[]> {
  const rows = await db
    .selectFrom(newest(db, scope, filter, { beyond, limit, offset: 0 }))
    .select(['newest.time', 'newest.id'])
    .orderBy('newest.time', 'desc')
    .orderBy('newest.id', 'desc')
    .execute()
  return rows.map(({ time, id }) => [time, id])
}

/** The entries with these ids, in the order of the ids. */
export async function listEntriesByIds(db: Db, scope: Scope, ids: string[]): Promise<AuditEntry[]> {
  if (ids.length === 0) return []
  const rows = await entriesById(db, scope).selectAll().where('id', 'in', ids).execute()
  const entries = await toEntriesWithNames(db, rows)
  // By the id of the row: the id in the text of an entry may have been changed.
  const byId = new Map(rows.map(({ id }, at) => [id, entries[at]!]))
  return ids.flatMap((id) => byId.get(id) ?? [])
}

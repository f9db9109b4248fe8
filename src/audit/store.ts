import { Problem } from '../core/errors.ts'
import { ofOne, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { prepared } from '../storage/query/prepared.ts'
import { inScopeHistory } from '../storage/query/scope.ts'
import type { AuditLogRow } from '../storage/schema/tables.ts'
import {
  type ChainEntry,
  type ChainHead,
  checksumOf,
  entryLine,
  genesisChecksum,
  parseEntry,
  toChainHead,
} from './chain.ts'
import type { AuditEntry } from './contract.ts'
import { orgOfChain, systemChain, toEntry } from './rules.ts'

export const entriesIn = (db: Db, scope: Scope) =>
  db.selectFrom('audit_logs').where(inScopeHistory(scope, 'audit_logs.chain'))

/**
 * Sequence number of the first or last entry of a chain; 0 when it has none. It is read from the entries
 * themselves, so a tampered head hides no entry. The bound leaves out a text stored in place of a number, which
 * SQLite allows and sorts last.
 */
export async function edgeSeq(
  db: Db,
  scope: Scope,
  chain: string,
  direction: 'asc' | 'desc',
): Promise<number> {
  const row = await entriesIn(db, scope)
    .select('seq')
    .where('chain', '=', chain)
    .where('seq', '<=', Number.MAX_SAFE_INTEGER)
    .orderBy('seq', direction)
    .limit(1)
    .executeTakeFirst()
  return row?.seq ?? 0
}

/** @throws not_found, also for an entry outside the scope */
export async function getEntry(db: Db, scope: Scope, id: string): Promise<AuditEntry> {
  const rows = await entriesIn(db, ofOne(scope)).selectAll().where('id', '=', id).execute()
  const [entry] = await toEntriesWithNames(db, rows)
  if (!entry) throw new Problem('not_found', 'Audit log not found')
  return entry
}

/** Readers see the canonical text itself; only people's names are looked up. A damaged row is marked. */
export async function toEntriesWithNames(db: Db, rows: AuditLogRow[]): Promise<AuditEntry[]> {
  const read = rows.map((row) => ({ row, ...readRow(row) }))
  const ids = [...new Set(read.map(({ entry }) => entry.actorId))]
  const people =
    ids.length === 0
      ? []
      : await db.selectFrom('users').select(['id', 'name']).where('id', 'in', ids).execute()
  const names = new Map(people.map(({ id, name }) => [id, name]))
  return read.map(({ row, entry, damage }) => ({
    ...toEntry(entry, row.checksum, names.get(entry.actorId)),
    ...(damage && { damage }),
  }))
}

/** Reads the entry of a row. When its text is not an entry, the columns beside it are shown instead. */
function readRow(row: AuditLogRow): { entry: ChainEntry; damage?: AuditEntry['damage'] } {
  const entry = parseEntry(row.canonical)
  if (!entry) {
    const nothing = { actorType: 'system' as const, details: {}, ipAddress: null, userAgent: null }
    const errorMessage = 'This entry cannot be read: its stored text was changed'
    return { entry: { ...nothing, errorMessage, ...columnsOf(row) }, damage: 'unreadable' }
  }
  const altered = checksumOf(row.canonical) !== row.checksum || !matchesColumns(row, entry)
  return altered ? { entry, damage: 'altered' } : { entry }
}

/** How many chains there are, how many entries they have had, and the head of one of them. */
export async function sumHeadsIn(
  db: Db,
  scope: Scope,
  chain: string | undefined,
): Promise<{ chains: number; entries: number; head: ChainHead | null }> {
  const { chains, entries } = await db
    .selectFrom('audit_heads')
    .select(({ fn }) => [
      fn.countAll<number>().as('chains'),
      fn.sum<number | string | null>('seq').as('entries'),
    ])
    .where(inScopeHistory(scope, 'audit_heads.chain'))
    .where('seq', '>', 0)
    .executeTakeFirstOrThrow()
  const head = chain === undefined ? undefined : await findHead(db, scope, chain)
  return { chains, entries: Number(entries ?? 0), head: head ?? null }
}

export type ChainSummary = ChainHead & {
  orgId: string | null
  name: string
  slug: string | null
  deletedAt: Instant | null
}

/**
 * The chains within the scope: the system's first, then by organization name. A chain that has entries, or of
 * which something was signed, is listed even without a head: an attacker removed it.
 */
export async function listHeads(db: Db, scope: Scope, signed: readonly string[]): Promise<ChainSummary[]> {
  const rows = await db
    .selectFrom('audit_heads')
    .leftJoin('organizations', 'organizations.id', 'audit_heads.chain')
    .select(['chain', 'seq', 'checksum', 'name', 'slug', 'deleted_at'])
    .where(inScopeHistory(scope, 'audit_heads.chain'))
    .orderBy('name')
    .orderBy('chain')
    .execute()
  const heads = rows.map(({ chain, seq, checksum, name, slug, deleted_at: deletedAt }) => ({
    orgId: orgOfChain(chain),
    name: name ?? 'System',
    slug,
    deletedAt,
    ...toChainHead({ seq, checksum }),
  }))
  const all = [...heads, ...(await listHeadless(db, scope, new Set(rows.map(({ chain }) => chain)), signed))]
  return all.sort((a, b) => Number(a.orgId !== null) - Number(b.orgId !== null))
}

/** The chains that should have a head and have none. */
async function listHeadless(
  db: Db,
  scope: Scope,
  known: ReadonlySet<string>,
  signed: readonly string[],
): Promise<ChainSummary[]> {
  const lost = new Set(signed.filter((chain) => !known.has(chain)))
  const orgs = await db
    .selectFrom('organizations')
    .select(['id', 'name', 'slug', 'deleted_at as deletedAt'])
    .select(({ exists, selectFrom }) =>
      exists(selectFrom('audit_logs').select('seq').whereRef('audit_logs.chain', '=', 'organizations.id')).as(
        'hasEntries',
      ),
    )
    .where(inScopeHistory(scope, 'organizations.id'))
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('audit_heads').select('seq').whereRef('audit_heads.chain', '=', 'organizations.id'),
        ),
      ),
    )
    .orderBy('name')
    .orderBy('id')
    .execute()
  const none: ChainHead = { seq: 0, checksum: genesisChecksum }
  const heads = orgs
    .filter(({ id, hasEntries }) => lost.has(id) || Boolean(hasEntries))
    .map(({ id, name, slug, deletedAt }) => ({ orgId: id, name, slug, deletedAt, ...none }))
  if (scope.kind !== 'system') return heads
  const named = new Set(orgs.map(({ id }) => id))
  const nameless = [...lost].filter((chain) => !named.has(chain))
  return [
    ...heads,
    ...nameless.map((chain) => ({
      orgId: orgOfChain(chain),
      name: chain === systemChain ? 'System' : chain,
      slug: null,
      deletedAt: null,
      ...none,
    })),
  ]
}

export async function findHead(db: Db, scope: Scope, chain: string): Promise<ChainHead | undefined> {
  const row = await db
    .selectFrom('audit_heads')
    .select(['seq', 'checksum'])
    .where('chain', '=', chain)
    .where(inScopeHistory(scope, 'audit_heads.chain'))
    .executeTakeFirst()
  return row && toChainHead(row)
}

/** The stored entries of a chain after a sequence number, oldest first, for the service's own processing. */
export const storedEntriesAfter = prepared(
  (db, p: { chain: string; after: number; upTo: number; limit: number }) =>
    db
      .selectFrom('audit_logs')
      .select(['seq', 'canonical', 'checksum', 'prev_checksum'])
      .where('chain', '=', p.chain)
      .where('seq', '>', p.after)
      .where('seq', '<=', p.upTo)
      .orderBy('seq')
      .limit(p.limit),
)

const batchSize = 500

/**
 * Yields the lines of a chain's entries up to a head, oldest first, in pieces. It includes entries inserted
 * before the chain's beginning: the reader decides where the chain begins.
 */
export async function* chainLines(db: Db, scope: Scope, chain: string, upTo: number): AsyncGenerator<string> {
  for (let after = Number.MIN_SAFE_INTEGER; ; ) {
    const rows = await entriesIn(db, scope)
      .selectAll()
      .where('chain', '=', chain)
      .where('seq', '>', after)
      .where('seq', '<=', upTo)
      .orderBy('seq')
      .limit(batchSize)
      .execute()
    if (rows.length === 0) return
    yield rows.map((row) => entryLine(row.checksum, exportedText(row))).join('')
    after = rows.at(-1)!.seq
  }
}

/**
 * The canonical text of a row. When the text is sound but a column disagrees with it, the text is changed to
 * agree with the column, so that its checksum no longer matches. A tampered column, which filters see, is thus
 * found like a tampered text.
 */
export function exportedText(row: AuditLogRow): string {
  const entry = parseEntry(row.canonical)
  if (!entry || matchesColumns(row, entry) || checksumOf(row.canonical) !== row.checksum) return row.canonical
  return JSON.stringify({ ...entry, ...columnsOf(row) })
}

/** Whether the columns of a row match its entry. */
const matchesColumns = (row: AuditLogRow, entry: ChainEntry): boolean =>
  Object.entries(columnsOf(row)).every(([field, value]) => entry[field as keyof ChainEntry] === value)

const columnsOf = (row: AuditLogRow) => ({
  id: row.id,
  orgId: orgOfChain(row.chain),
  seq: row.seq,
  timestamp: row.timestamp,
  actorId: row.actor_id,
  actorEmail: row.actor_email,
  action: row.action,
  resourceType: row.resource_type,
  resourceId: row.resource_id,
  resourceName: row.resource_name,
  result: row.result as ChainEntry['result'],
  prevChecksum: row.prev_checksum,
})

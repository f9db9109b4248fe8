import { auditLogs } from '../audit/contract.ts'
import { chainOf } from '../audit/rules.ts'
import { entriesIn, toEntriesWithNames } from '../audit/store.ts'
import type { Scope } from '../core/scope.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Caller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { refusalOf } from './access.ts'
import { kinds, type Section } from './contract.ts'
import type { InnerCalls } from './ports.ts'
import type { Stored } from './rules.ts'

/** Who changed something, as the audit log says. */
type Culprit = { by: string; at: Instant; action: string; entryId: string; name: string | null }

/** Whether a caller may be told who did something: what the audit log says is for those who may read it. */
export const mayReadAudit = (calls: InnerCalls, caller: Caller): boolean =>
  refusalOf(calls, auditLogs.show, caller) === undefined

/** Most that are looked up of each kind: a refusal names no more. */
const most = 10

/**
 * Who last changed some objects, by id. Entries have the time of the change, so that they are found without a search. On Postgres
 * one of the last moment may not be sealed yet.
 */
export async function culpritsOf(
  db: Db,
  scope: Scope,
  changed: readonly Stored[],
): Promise<Map<string, Culprit>> {
  const found = new Map<string, Culprit>()
  for (const { id, orgId, record } of changed.slice(0, most)) {
    const rows = await entriesIn(db, scope)
      .selectAll()
      .where('chain', '=', chainOf(orgId))
      .where('timestamp', '=', String(record.updatedAt))
      .where('resource_id', '=', id)
      .orderBy('seq', 'desc')
      .limit(1)
      .execute()
    const [culprit] = await toCulprits(db, rows)
    if (culprit) found.set(id, culprit)
  }
  return found
}

/** How far back deletions are looked for, and among how many entries: on SQLite the service does nothing else meanwhile. */
const lookBack = { seconds: 3600, entries: 2000 }

/** What was deleted since a time, of some kinds, and by whom, as far as it is looked for. */
export async function deletedSince(
  db: Db,
  scope: Scope,
  sections: readonly Section[],
  { since, now }: { since: Instant; now: Instant },
): Promise<Culprit[]> {
  if (since < addSeconds(now, -lookBack.seconds)) return []
  const actions = new Set(sections.map(deletionOf))
  const newest = await entriesIn(db, scope)
    .select(['id', 'action', 'result'])
    .where('timestamp', '>', since)
    .orderBy('timestamp', 'desc')
    .limit(lookBack.entries)
    .execute()
  const deletions = newest.filter(({ action, result }) => result === 'success' && actions.has(action))
  const ids = deletions.slice(0, most).map(({ id }) => id)
  if (ids.length === 0) return []
  const rows = await entriesIn(db, scope)
    .selectAll()
    .where('id', 'in', ids)
    .orderBy('timestamp', 'desc')
    .execute()
  return toCulprits(db, rows)
}

/** The action of a deletion, as its endpoint records it. */
function deletionOf(section: Section): string {
  const { audit } = kinds[section].remove
  return audit !== undefined && 'action' in audit ? audit.action : ''
}

async function toCulprits(db: Db, rows: Parameters<typeof toEntriesWithNames>[1]): Promise<Culprit[]> {
  const entries = await toEntriesWithNames(db, rows)
  return entries.map(({ id, timestamp, user, action, resource }) => ({
    ...{ by: user.email ?? user.name, at: timestamp, action, entryId: id, name: resource.name },
  }))
}

export const saidOf = ({ by, at, entryId }: Culprit): string => `by ${by} at ${at}, audit entry ${entryId}`

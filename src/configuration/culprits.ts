import { auditLogs } from '../audit/contract.ts'
import { chainOf } from '../audit/rules.ts'
import { entriesIn, toEntriesWithNames } from '../audit/store.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
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

/** What was deleted since a time, of some kinds, and by whom. */
export async function deletedSince(
  db: Db,
  scope: Scope,
  sections: readonly Section[],
  time: Instant,
): Promise<Culprit[]> {
  const actions = sections.map((section) => `${kinds[section].resource}.delete`)
  const rows = await entriesIn(db, scope)
    .selectAll()
    .where('timestamp', '>', time)
    .where('action', 'in', actions)
    .where('result', '=', 'success')
    .orderBy('timestamp', 'desc')
    .limit(most)
    .execute()
  return toCulprits(db, rows)
}

async function toCulprits(db: Db, rows: Parameters<typeof toEntriesWithNames>[1]): Promise<Culprit[]> {
  const entries = await toEntriesWithNames(db, rows)
  return entries.map(({ id, timestamp, user, action, resource }) => ({
    ...{ by: user.email ?? user.name, at: timestamp, action, entryId: id, name: resource.name },
  }))
}

export const saidOf = ({ by, at, entryId }: Culprit): string => `by ${by} at ${at}, audit entry ${entryId}`

import type { Scope } from '../../core/scope.ts'
import type { Db } from '../../storage/open.ts'
import type { AuditEntry } from '../contract.ts'
import { entriesDuring, listEntriesByIds } from '../entries.ts'
import type { ActionCount } from '../rules.ts'

export type ReportQuery = { orgId?: string | undefined; from?: string | undefined; to?: string | undefined }

/** Count of each action, the most frequent first. Categories and sets are sums of these. */
export async function countActions(db: Db, scope: Scope, query: ReportQuery): Promise<ActionCount[]> {
  return entriesDuring(db, scope, query)
    .select((eb) => ['action', eb.fn.countAll<number>().as('count')])
    .groupBy('action')
    .orderBy('count', 'desc')
    .orderBy('action')
    .execute()
}

export type UserCount = { id: string; name: string; email: string; count: number; lastActivity: string }

const userEntries = (db: Db, scope: Scope, query: ReportQuery) =>
  entriesDuring(db, scope, query).innerJoin('users', 'users.id', 'audit_logs.actor_id')

/** The most active people, without other actors. */
export async function countUsers(
  db: Db,
  scope: Scope,
  query: ReportQuery,
  limit: number,
): Promise<UserCount[]> {
  return userEntries(db, scope, query)
    .select((eb) => [
      'users.id',
      'users.name',
      'users.email',
      eb.fn.countAll<number>().as('count'),
      eb.fn.max('audit_logs.timestamp').as('lastActivity'),
    ])
    .groupBy(['users.id', 'users.name', 'users.email'])
    .orderBy('count', 'desc')
    .orderBy('users.id')
    .limit(limit)
    .execute()
}

/** How many people acted, and how often in all. */
export async function countActivity(
  db: Db,
  scope: Scope,
  query: ReportQuery,
): Promise<{ totalUsers: number; totalEvents: number }> {
  return userEntries(db, scope, query)
    .select((eb) => [
      eb.fn.count<number>('audit_logs.actor_id').distinct().as('totalUsers'),
      eb.fn.countAll<number>().as('totalEvents'),
    ])
    .executeTakeFirstOrThrow()
}

/** The newest entries with these actions, or by people. */
export async function listRecentEntries(
  db: Db,
  scope: Scope,
  query: ReportQuery,
  which: readonly string[] | 'people',
  limit: number,
): Promise<AuditEntry[]> {
  const people = db.selectFrom('users').select('users.id')
  const rows = await entriesDuring(db, scope, query)
    .select('audit_logs.id')
    .$if(which === 'people', (it) => it.where('actor_id', 'in', people))
    .$if(which !== 'people', (it) => it.where('action', 'in', which as readonly string[]))
    .orderBy('audit_logs.timestamp', 'desc')
    .orderBy('audit_logs.id', 'desc')
    .limit(limit)
    .execute()
  return listEntriesByIds(
    db,
    scope,
    rows.map(({ id }) => id),
  )
}

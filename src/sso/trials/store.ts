import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { tokenHash } from '../../identity/sessions/tokens.ts'
import type { Db } from '../../storage/open.ts'
import { inScope } from '../../storage/query/scope.ts'
import type { SsoTestRow } from '../../storage/schema/tables.ts'
import type { Step } from '../trace.ts'

/** A test sign-in of an administrator. */
export type Trial = { id: string; providerId: string; redirectPath: string }
export type TrialStatus = 'pending' | 'passed' | 'failed'

export async function insertTrial(db: Db, trial: Omit<SsoTestRow, 'status' | 'steps'>): Promise<void> {
  await db
    .insertInto('sso_tests')
    .values({ ...trial, status: 'pending', steps: '[]' })
    .execute()
}

/** Finds a trial by the browser's token; until it is over, it may be started any number of times. */
export async function findTrial(db: Db, token: string, now: Instant): Promise<Trial | undefined> {
  const row = await db
    .selectFrom('sso_tests')
    .select(['id', 'provider_id', 'redirect_path'])
    .where('token_hash', '=', tokenHash(token))
    .where('status', '=', 'pending')
    .where('expires_at', '>', now)
    .executeTakeFirst()
  return row && { id: row.id, providerId: row.provider_id, redirectPath: row.redirect_path }
}

/** Stores the result. */
export async function saveTrial(
  db: Db,
  { id, status, steps }: { id: string; status: TrialStatus; steps: readonly Step[] },
): Promise<void> {
  await db
    .updateTable('sso_tests')
    .set({ status, steps: JSON.stringify(steps) })
    .where('id', '=', id)
    .where('status', '=', 'pending')
    .execute()
}

/** The result of a trial of a provider within the scope; undefined when there is none. */
export async function showTrial(
  db: Db,
  scope: Scope,
  { id, providerId }: { id: string; providerId: string },
): Promise<{ status: TrialStatus; steps: Step[] } | undefined> {
  const row = await db
    .selectFrom('sso_tests')
    .innerJoin('sso_providers', 'sso_providers.id', 'sso_tests.provider_id')
    .select(['sso_tests.status', 'sso_tests.steps'])
    .where('sso_tests.id', '=', id)
    .where('sso_tests.provider_id', '=', providerId)
    .where(inScope(scope, 'sso_providers.org_id'))
    .executeTakeFirst()
  return row && { status: row.status as TrialStatus, steps: JSON.parse(row.steps) as Step[] }
}

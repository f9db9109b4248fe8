import type { ExpressionBuilder } from 'kysely'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { countRowsOf } from '../../storage/query/counts.ts'
import { inScope } from '../../storage/query/scope.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import { lockTenantInUse } from '../../tenancy/access.ts'
import { contextOfScope } from '../rules.ts'
import { revokingSessions } from '../store.ts'
import { contextKey, insertSession, lockAccount, type NewSession, type UserEpochs } from './store.ts'

/**
 * Stores the session of a sign-in, unless its tenant has just become unusable or the sign-in has just been
 * invalidated.
 * @throws tenant_inactive, invalid_token
 */
export async function startSession(db: Db, session: NewSession & UserEpochs, now: Instant): Promise<void> {
  if (session.context.kind !== 'system') await lockTenantInUse(db, session.context)
  await lockAccount(db, session)
  await insertSession(db, session, now)
}

/** Ends the sessions in one organization that began with a password, and the pending sign-ins with one. */
export async function endPasswordSessions(db: Db, orgId: string, now: Instant): Promise<void> {
  const context = contextKey({ kind: 'organization', orgId })
  await revokingSessions(db, now)
    .where('context', '=', context)
    .where('sso_provider_id', 'is', null)
    .execute()
  await db.deleteFrom('login_challenges').where('context', '=', context).execute()
  await db
    .deleteFrom('device_authorizations')
    .where('context', '=', context)
    .where('sso_provider_id', 'is', null)
    .execute()
}

/** Sessions in a tenant itself that have not ended. */
export const countSessionsIn = (db: Db, scope: Scope, now: Instant): Promise<number> =>
  countRowsOf(
    db
      .selectFrom('sessions')
      .where('context', '=', contextKey(contextOfScope(scope)))
      .where('revoked_at', 'is', null)
      .where('expires_at', '>', now),
  )

/** Ends every session in a tenant or in an organization of it, and every pending sign-in to one. */
export async function endTenantSessions(db: Db, scope: Scope, now: Instant): Promise<void> {
  const [head = '', tail = ''] = contextKey({ kind: 'organization', orgId: '?' }).split('?')
  const own = contextKey(contextOfScope(scope))
  const below = db
    .selectFrom('organizations')
    .select((eb) =>
      eb(eb(eb.val(head), '||', eb.ref('organizations.id')), '||', eb.val(tail))
        .$castTo<string>()
        .as('context'),
    )
    .where(inScope(scope, 'organizations.id'))
  const inTenant = (
    eb: ExpressionBuilder<Tables, 'sessions' | 'login_challenges' | 'device_authorizations'>,
  ) => eb.or([eb('context', '=', own), eb('context', 'in', below)])
  await revokingSessions(db, now)
    .where((eb) => inTenant(eb as never))
    .execute()
  for (const table of ['login_challenges', 'device_authorizations'] as const) {
    await db
      .deleteFrom(table)
      .where((eb) => inTenant(eb as never))
      .execute()
  }
}

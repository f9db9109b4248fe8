import type { ExpressionBuilder } from 'kysely'
import { Problem } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { forShare, inScope } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import type { Tables } from '../../storage/tables.ts'
import { type Context, contextIn } from '../rules.ts'
import { contextText, insertSession, type NewSession } from './store.ts'

/**
 * Stores the session of a sign-in. Its tenant is held meanwhile: one that is being suspended or deleted would
 * otherwise miss this session, and let it come to life when the tenant is in use again.
 * @throws tenant_inactive
 */
export async function beginSession(db: Db, session: NewSession, now: Instant): Promise<void> {
  await holdTenant(db, session.context)
  await insertSession(db, session, now)
}

async function holdTenant(db: Db, context: Context): Promise<void> {
  if (context.kind === 'system') return
  const org =
    context.kind === 'organization'
      ? db
          .selectFrom('organizations')
          .select(['partner_id', 'status', 'deleted_at'])
          .where('id', '=', context.orgId)
      : undefined
  // The partner first, as deleting it does.
  const partnerId =
    context.kind === 'partner' ? context.partnerId : (await org?.executeTakeFirst())?.partner_id
  const partner = db
    .selectFrom('partners')
    .select(['status', 'deleted_at'])
    .where('id', '=', partnerId ?? '')
  const held = [await forShare(partner).executeTakeFirst()]
  if (org) held.push(await forShare(org).executeTakeFirst())
  for (const tenant of held) {
    const cut = !tenant || tenant.deleted_at !== null || ['suspended', 'churned'].includes(tenant.status)
    if (cut) throw new Problem('tenant_inactive')
  }
}

/** Ends every session that acts in a tenant, or in an organization of it, and every sign-in on its way there. */
export async function endSessionsIn(db: Db, scope: Scope, now: Instant): Promise<void> {
  const [head = '', tail = ''] = contextText({ kind: 'organization', orgId: '?' }).split('?')
  const own = contextText(contextIn(scope))
  const below = db
    .selectFrom('organizations')
    .select((eb) =>
      eb(eb(eb.val(head), '||', eb.ref('organizations.id')), '||', eb.val(tail))
        .$castTo<string>()
        .as('context'),
    )
    .where(inScope(scope, 'organizations.id'))
  const inTenant = (eb: ExpressionBuilder<Tables, 'sessions' | 'login_challenges'>) =>
    eb.or([eb('context', '=', own), eb('context', 'in', below)])
  await db
    .updateTable('sessions')
    .set({ revoked_at: now })
    .where('revoked_at', 'is', null)
    .where((eb) => inTenant(eb as never))
    .execute()
  await db
    .deleteFrom('login_challenges')
    .where((eb) => inTenant(eb as never))
    .execute()
}

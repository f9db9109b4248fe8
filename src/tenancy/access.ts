import { expressionBuilder } from 'kysely'
import { Problem } from '../core/errors.ts'
import type { Db } from '../storage/open.ts'
import { forShare } from '../storage/query/locks.ts'
import { prepared } from '../storage/query/prepared.ts'
import type { Tables } from '../storage/schema/tables.ts'
import { hasEnded, usableStatuses } from './rules.ts'

const eb = expressionBuilder<{ o: Tables['organizations']; p: Tables['partners'] }, 'o' | 'p'>()

/** `isTenantUsable` as a condition: of the organization `o` and its partner `p`. */
export const tenantIsUsable = eb.and([
  eb('o.status', 'in', usableStatuses),
  eb('o.deleted_at', 'is', null),
  eb('p.status', 'in', usableStatuses),
  eb('p.deleted_at', 'is', null),
])

const lockedPartner = prepared((db, p: { id: string }) =>
  forShare(db.selectFrom('partners as p').select(['p.status', 'p.deleted_at']).where('p.id', '=', p.id)),
)

/** The partner comes first in the query and is locked first, as in its deletion. */
const lockedOrg = prepared((db, p: { id: string }) =>
  forShare(
    db
      .selectFrom('partners as p')
      .innerJoin('organizations as o', 'o.partner_id', 'p.id')
      .select(['p.status', 'p.deleted_at', 'o.status as org_status', 'o.deleted_at as org_deleted_at'])
      .where('o.id', '=', p.id),
  ),
)

/**
 * Keeps a tenant in use until the transaction ends, for code that adds something that suspending or deleting
 * the tenant revokes: a concurrent suspension or deletion would otherwise miss it, and it would work once the
 * tenant is restored.
 * @throws tenant_inactive when it is suspended, churned or deleted already
 */
export async function lockTenantInUse(
  db: Db,
  tenant: { partnerId: string } | { orgId: string },
): Promise<void> {
  if ('partnerId' in tenant) {
    const [partner] = await lockedPartner(db, { id: tenant.partnerId })
    if (!partner || hasEnded(partner.status, partner.deleted_at)) throw new Problem('tenant_inactive')
    return
  }
  const [org] = await lockedOrg(db, { id: tenant.orgId })
  if (!org || hasEnded(org.status, org.deleted_at) || hasEnded(org.org_status, org.org_deleted_at)) {
    throw new Problem('tenant_inactive')
  }
}

import { Problem } from '../core/errors.ts'
import { forShare, prepared } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'

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
    if (!partner || isOutOfUse(partner.status, partner.deleted_at)) throw new Problem('tenant_inactive')
    return
  }
  const [held] = await lockedOrg(db, { id: tenant.orgId })
  if (!held || isOutOfUse(held.status, held.deleted_at) || isOutOfUse(held.org_status, held.org_deleted_at)) {
    throw new Problem('tenant_inactive')
  }
}

const isOutOfUse = (status: string, deletedAt: string | null): boolean =>
  deletedAt !== null || status === 'suspended' || status === 'churned'

import { Problem } from '../core/errors.ts'
import { forShare } from '../storage/dialect.ts'
import type { Db } from '../storage/open.ts'

/**
 * Keeps a tenant from going out of use until the transaction ends, for whoever adds what going out of use would
 * end: one that is being suspended or deleted would otherwise miss it, and let it come to life later.
 * @throws tenant_inactive when it is suspended, churned or deleted already
 */
export async function holdInUse(db: Db, tenant: { partnerId: string } | { orgId: string }): Promise<void> {
  const org =
    'orgId' in tenant
      ? db
          .selectFrom('organizations')
          .select(['partner_id', 'status', 'deleted_at'])
          .where('id', '=', tenant.orgId)
      : undefined
  // The partner first, as deleting it does.
  const partnerId = 'orgId' in tenant ? (await org?.executeTakeFirst())?.partner_id : tenant.partnerId
  const partner = db
    .selectFrom('partners')
    .select(['status', 'deleted_at'])
    .where('id', '=', partnerId ?? '')
  const held = [await forShare(partner).executeTakeFirst()]
  if (org) held.push(await forShare(org).executeTakeFirst())
  for (const one of held) {
    const cut = !one || one.deleted_at !== null || one.status === 'suspended' || one.status === 'churned'
    if (cut) throw new Problem('tenant_inactive')
  }
}

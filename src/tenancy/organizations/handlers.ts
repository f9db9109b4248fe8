import { assertNotEmptyChange } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { organizationScope } from '../../core/scope.ts'
import type { HandlersOf } from '../../handler.ts'
import { applyPartnerChange, checkOrgCap, normalizeOrder } from '../partners/rules.ts'
import { changePartner, lockPartner } from '../partners/store.ts'
import type { AccessOfTenants } from '../revoke-access.ts'
import { difference, endsAccess } from '../rules.ts'
import type * as contract from './contract.ts'
import * as rules from './rules.ts'
import * as store from './store.ts'

export const orgHandlers = ({
  revokeAccess,
  countAccess,
  forgetTenant,
}: AccessOfTenants): HandlersOf<typeof contract.orgs> => ({
  async deletion({ db, scope, params, now }) {
    const { id } = await store.getOrg(db, scope, params.id)
    return countAccess(db, organizationScope(id), now)
  },

  list: async ({ readQueryIfWide, scope }) => ({
    data: await readQueryIfWide((on) => store.listOrgs(on, scope)),
  }),

  page: ({ readQueryIfWide, scope, query }) => readQueryIfWide((on) => store.pageOrgs(on, scope, query)),

  async create({ db, scope, body, caller, now, note, quota }) {
    // Locked, so that the organization limit holds under parallel requests.
    const partner = await lockPartner(db, rules.resolvePartner(scope, body.partnerId))
    checkOrgCap(partner, await store.countOrgs(db, partner.id))
    await quota({ partnerId: partner.id })
    const org = rules.makeOrg(body, partner.id, { id: newId(), now })
    await store.insertOrg(db, org)
    await store.grantOrg(db, partner.id, caller.id, org.id)
    note({ orgId: org.id, details: { partnerId: partner.id, status: org.status, type: org.type } })
    return org
  },

  async order({ db, scope, body, now, note }) {
    const before = await lockPartner(db, scope.kind === 'partner' ? scope.partnerId : '')
    const wanted = body.organizationOrder ?? body.orderedIds ?? []
    const organizationOrder = normalizeOrder(wanted, await store.listOrgIds(db, scope))
    const after = applyPartnerChange(before, { settings: { organizationOrder } }, now)
    await changePartner(db, after)
    note({ resourceId: before.id, resourceName: before.name, ...difference(before, after) })
    return { organizationOrder }
  },

  show: ({ db, scope, params }) => store.getOrg(db, scope, params.id),

  async update({ db, scope, params, body, now, note }) {
    assertNotEmptyChange(body)
    const before = await store.lockOrg(db, scope, params.id)
    const after = rules.applyOrgChange(before, body, now)
    await store.changeOrg(db, scope, after)
    if (endsAccess(before, after)) await revokeAccess(db, organizationScope(after.id), now)
    note({ orgId: after.id, ...difference(before, after) })
    return after
  },

  async remove({ db, scope, params, now, note }) {
    const before = await store.lockOrg(db, scope, params.id)
    const after = rules.markOrgDeleted(before, now)
    await revokeAccess(db, organizationScope(before.id), now)
    await forgetTenant(db, organizationScope(before.id))
    await store.changeOrg(db, scope, after)
    note({ orgId: before.id, resourceName: before.name, ...difference(before, after) })
    return { success: true, message: 'Organization deleted successfully' }
  },
})

import { newId } from '../core/new-id.ts'
import type { HandlersOf } from '../handler.ts'
import type * as contract from './contract.ts'
import { checkMaySeeAll, checkOrgCap, makeOrg, makePartner, makeSite, partnerOfNewOrg } from './rules.ts'
import * as store from './store.ts'

export const partners: HandlersOf<typeof contract.partners> = {
  list: ({ db, query }) => store.listPartners(db, query),

  async create({ db, body, now }) {
    const partner = makePartner(body, { id: newId(), now })
    await store.insertPartner(db, partner)
    return partner
  },

  show: ({ db, params }) => store.getPartner(db, params.id),
}

export const orgs: HandlersOf<typeof contract.orgs> = {
  list: async ({ db, scope }) => ({ data: await store.listOrgs(db, scope) }),

  page: ({ db, scope, query }) => store.pageOrgs(db, scope, query),

  async create({ db, scope, body, caller, now, note }) {
    // Locked, so that its cap holds when many are created at once.
    const partner = await store.lockPartner(db, partnerOfNewOrg(scope, body.partnerId))
    checkOrgCap(partner, await store.countOrgs(db, partner.id))
    const org = makeOrg(body, partner.id, { id: newId(), now })
    await store.insertOrg(db, org)
    await store.grantOrg(db, partner.id, caller.id, org.id)
    note({ orgId: org.id, details: { partnerId: partner.id, status: org.status, type: org.type } })
    return org
  },

  show: ({ db, scope, params }) => store.getOrg(db, scope, params.id),
}

export const sites: HandlersOf<typeof contract.sites> = {
  async list({ db, scope, query: { organizationId, orgId = organizationId, ...page } }) {
    if (orgId !== undefined) await store.checkOrg(db, scope, orgId)
    return store.listSites(db, scope, { orgId, ...page })
  },

  async create({ db, scope, body, now }) {
    await store.checkOrg(db, scope, body.orgId)
    checkMaySeeAll(scope)
    const site = makeSite(body, { id: newId(), now })
    await store.insertSite(db, site)
    return site
  },

  show: ({ db, scope, params }) => store.getSite(db, scope, params.id),
}

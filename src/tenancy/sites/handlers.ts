import { assertNotEmptyChange } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { HandlersOf } from '../../handler.ts'
import { checkOrg, shareLockOrg } from '../organizations/store.ts'
import { difference } from '../rules.ts'
import type * as contract from './contract.ts'
import * as rules from './rules.ts'
import * as store from './store.ts'

export const siteHandlers: HandlersOf<typeof contract.sites> = {
  async list({ db, readQueryIfWide, scope, query: { organizationId, orgId = organizationId, ...page } }) {
    if (orgId !== undefined) await checkOrg(db, scope, orgId)
    return readQueryIfWide((on) => store.listSites(on, scope, { orgId, ...page }))
  },

  async create({ db, scope, body, now, quota }) {
    await shareLockOrg(db, scope, body.orgId)
    rules.checkSeesAllSites(scope)
    const site = rules.makeSite(body, { id: newId(), now })
    await quota(site)
    await store.insertSite(db, site)
    return site
  },

  show: ({ db, scope, params }) => store.getSite(db, scope, params.id),

  async update({ db, scope, params, body, now, note }) {
    assertNotEmptyChange(body)
    const before = await store.lockSite(db, scope, params.id)
    const after = rules.applySiteChange(before, body, now)
    await store.changeSite(db, scope, after)
    note(difference(before, after))
    return after
  },

  async remove({ db, scope, params, note }) {
    const site = await store.lockSite(db, scope, params.id)
    rules.checkUnused(await store.countUse(db, scope, site))
    await store.removeSite(db, scope, site.id)
    const { orgId, name, timezone } = site
    note({ orgId, resourceName: name, before: { name, timezone } })
    return { success: true, message: 'Site deleted successfully' }
  },
}

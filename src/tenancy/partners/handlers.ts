import { assertNotEmptyChange } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { HandlersOf } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { countOrgs, listOrgIds, removeOrgs } from '../organizations/store.ts'
import type { AccessOfTenants } from '../revoke-access.ts'
import { difference, endsAccess } from '../rules.ts'
import type * as contract from './contract.ts'
import * as rules from './rules.ts'
import * as store from './store.ts'

const wholeOf = (partnerId: string): Scope => ({ kind: 'partner', partnerId, orgs: 'all' })

/** The caller's own partner; the contract admits partner scope only. */
const ownOf = (scope: Scope): string => (scope.kind === 'partner' ? scope.partnerId : '')

async function change(
  db: Db,
  id: string,
  body: contract.PartnerChange,
  now: Instant,
): Promise<{ before: contract.Partner; after: contract.Partner }> {
  assertNotEmptyChange(body)
  const before = await store.lockPartner(db, id)
  const known = body.settings?.organizationOrder ? await listOrgIds(db, wholeOf(id)) : []
  const normalized = body.settings
    ? { ...body, settings: rules.withNormalizedOrder(body.settings, known) }
    : body
  const after = rules.applyPartnerChange(before, normalized, now)
  await store.changePartner(db, after)
  return { before, after }
}

export const partnerHandlers = ({
  revokeAccess,
  countAccess,
  forgetTenant,
}: AccessOfTenants): HandlersOf<typeof contract.partners> => ({
  async deletion({ db, params, now }) {
    const { id } = await store.getPartner(db, params.id)
    return { organizations: await countOrgs(db, id), ...(await countAccess(db, wholeOf(id), now)) }
  },

  list: ({ readQuery, query }) => readQuery((on) => store.listPartners(on, query)),

  async create({ db, body, now, quota }) {
    await quota({})
    const partner = rules.makePartner(body, { id: newId(), now })
    await store.insertPartner(db, partner)
    return partner
  },

  me: ({ readQuery, scope }) =>
    readQuery(async (on) => {
      const partner = await store.getPartner(on, ownOf(scope))
      return rules.visiblePartner(partner, await listOrgIds(on, scope))
    }),

  async changeMe({ db, scope, body, now, note }) {
    const { before, after } = await change(db, ownOf(scope), body, now)
    const changes = difference(before, after)
    const settings = 'settings' in changes.after || 'settings' in changes.before
    note({ ...changes, action: settings ? 'partner.settings.update' : 'partner.update' })
    return rules.visiblePartner(after, await listOrgIds(db, scope))
  },

  show: ({ db, params }) => store.getPartner(db, params.id),

  async update({ db, params, body, now, note }) {
    const { before, after } = await change(db, params.id, body, now)
    if (endsAccess(before, after)) await revokeAccess(db, wholeOf(after.id), now)
    note(difference(before, after))
    return after
  },

  async remove({ db, params, now, note }) {
    const before = await store.lockPartner(db, params.id)
    const scope = wholeOf(before.id)
    await revokeAccess(db, scope, now)
    await forgetTenant(db, scope)
    const organizations = await removeOrgs(db, scope, now)
    const after = rules.markPartnerDeleted(before, now)
    await store.changePartner(db, after)
    note({ resourceName: before.name, details: { organizations }, ...difference(before, after) })
    return { success: true, message: 'Partner deleted successfully' }
  },
})

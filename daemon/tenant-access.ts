import { deleteApplies } from '../src/configuration/history/store.ts'
import { deleteSets } from '../src/configuration/store.ts'
import { countUsableApiKeys, revokeApiKeys } from '../src/credentials/api-keys/store.ts'
import { countLiveEnrollmentKeys, expireEnrollmentKeys } from '../src/credentials/enrollment-keys/store.ts'
import { countDevicesIn } from '../src/devices/store.ts'
import { countFiltersIn } from '../src/filters/saved/store.ts'
import { countGroupsIn } from '../src/groups/store.ts'
import { countRolesIn } from '../src/identity/roles/store.ts'
import { endTenantSessions } from '../src/identity/sessions/tenants.ts'
import { countMembersIn } from '../src/identity/users/store.ts'
import { countScriptsIn } from '../src/scripts/store.ts'
import { countProvidersIn } from '../src/sso/store.ts'
import type { AccessOfTenants } from '../src/tenancy/revoke-access.ts'
import { countSitesIn } from '../src/tenancy/store.ts'
import { countTrustPoliciesIn, revokeWorkloads } from '../src/trust/store.ts'
import { countWebhooksIn } from '../src/webhooks/store.ts'

/** What ends with a tenant in the capabilities after tenancy. */
export const accessOfTenants: AccessOfTenants = {
  async revokeAccess(db, scope, now) {
    await revokeApiKeys(db, scope)
    await expireEnrollmentKeys(db, scope, now)
    await revokeWorkloads(db, scope)
    await endTenantSessions(db, scope, now)
  },

  countAccess: async (db, scope, now) => ({
    devices: await countDevicesIn(db, scope),
    apiKeys: await countUsableApiKeys(db, scope, now),
    enrollmentKeys: await countLiveEnrollmentKeys(db, scope, now),
    members: await countMembersIn(db, scope),
    sites: await countSitesIn(db, scope),
    roles: await countRolesIn(db, scope),
    filters: await countFiltersIn(db, scope),
    deviceGroups: await countGroupsIn(db, scope),
    scripts: await countScriptsIn(db, scope),
    webhooks: await countWebhooksIn(db, scope),
    ssoProviders: await countProvidersIn(db, scope),
    trustPolicies: await countTrustPoliciesIn(db, scope),
  }),

  async forgetTenant(db, scope) {
    await deleteSets(db, scope)
    await deleteApplies(db, scope)
  },
}

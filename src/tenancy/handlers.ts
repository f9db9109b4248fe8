import { orgHandlers } from './organizations/handlers.ts'
import { partnerHandlers } from './partners/handlers.ts'
import type { AccessOfTenants } from './revoke-access.ts'
import { siteHandlers } from './sites/handlers.ts'

/** Everything below /orgs. */
export const tenancyHandlers = (deps: AccessOfTenants) => ({
  partners: partnerHandlers(deps),
  orgs: orgHandlers(deps),
  sites: siteHandlers,
})

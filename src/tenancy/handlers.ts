import { orgHandlers } from './organizations/handlers.ts'
import { partnerHandlers } from './partners/handlers.ts'
import type { RevokeAccess } from './revoke-access.ts'
import { siteHandlers } from './sites/handlers.ts'

/** Everything below /orgs. */
export const tenancyHandlers = (deps: { revokeAccess: RevokeAccess }) => ({
  partners: partnerHandlers(deps),
  orgs: orgHandlers(deps),
  sites: siteHandlers,
})

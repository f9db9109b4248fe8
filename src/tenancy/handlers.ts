import { orgHandlers } from './organizations/handlers.ts'
import { partnerHandlers } from './partners/handlers.ts'
import type { RevokeAccess } from './revoke-access.ts'
import { siteHandlers } from './sites/handlers.ts'

/** Everything below /orgs. */
export const tenancyHandlers = (given: { revokeAccess: RevokeAccess }) => ({
  partners: partnerHandlers(given),
  orgs: orgHandlers(given),
  sites: siteHandlers,
})

import type { Cut } from './cut.ts'
import { orgHandlers } from './organizations/handlers.ts'
import { partnerHandlers } from './partners/handlers.ts'
import { siteHandlers } from './sites/handlers.ts'

/** Everything below /orgs. */
export const tenancyHandlers = (given: { cut: Cut }) => ({
  partners: partnerHandlers(given),
  orgs: orgHandlers(given),
  sites: siteHandlers,
})

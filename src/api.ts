import { agents } from './agents/contract.ts'
import { auditLogs } from './audit/contract.ts'
import type { Contract } from './core/endpoint.ts'
import { enrollmentKeys } from './credentials/contract.ts'
import { devices } from './devices/contract.ts'
import { auth } from './identity/contract.ts'
import { service } from './service/contract.ts'
import { orgs, partners, sites } from './tenancy/contract.ts'

/** The whole product on one page. */
export const api = {
  service,
  partners,
  orgs,
  sites,
  auth,
  enrollmentKeys,
  devices,
  agents,
  auditLogs,
} satisfies Contract

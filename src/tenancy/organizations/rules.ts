import { invalid, Problem } from '../../core/errors.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { mergeSettings } from '../rules.ts'
import type { NewOrganization, Organization, OrganizationChange } from './contract.ts'

export function makeOrg(
  wanted: NewOrganization,
  partnerId: string,
  { id, now }: { id: string; now: Instant },
): Organization {
  const stamps = { createdAt: now, updatedAt: now, deletedAt: null }
  const settings = mergeSettings({}, wanted.settings)
  return { id, ...wanted, partnerId, settings, ssoConfig: null, billingContact: null, ...stamps }
}

export function applyOrgChange(org: Organization, change: OrganizationChange, now: Instant): Organization {
  const { settings, ...rest } = change
  return {
    ...org,
    ...(rest as Partial<Organization>),
    settings: settings ? mergeSettings(org.settings, settings) : org.settings,
    updatedAt: now,
  }
}

export const markOrgDeleted = (org: Organization, now: Instant): Organization => ({
  ...org,
  status: 'churned',
  updatedAt: now,
  deletedAt: now,
})

/**
 * The partner a new organization belongs to.
 * @throws invalid_request, partner_mismatch
 */
export function resolvePartner(scope: Scope, wanted: string | undefined): string {
  if (scope.kind === 'system') {
    if (wanted === undefined) throw noPartner('partnerId is required for system scope')
    return wanted
  }
  if (scope.kind !== 'partner') throw noPartner('Partner context required to create organizations')
  if (wanted !== undefined && wanted !== scope.partnerId) throw new Problem('partner_mismatch')
  return scope.partnerId
}

const noPartner = (message: string): Problem => invalid([{ path: 'body.partnerId', message }], message)

import { invalid, Problem } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { NewOrganization, NewPartner, NewSite, Organization, Partner, Site } from './contract.ts'

type Made = { id: string; now: Instant }

export function makePartner(wanted: NewPartner, { id, now }: Made): Partner {
  const stamps = { createdAt: now, updatedAt: now, deletedAt: null }
  return { id, ...wanted, status: 'active', settings: {}, ssoConfig: null, ...stamps }
}

export function makeOrg(wanted: NewOrganization, partnerId: string, { id, now }: Made): Organization {
  const stamps = { createdAt: now, updatedAt: now, deletedAt: null }
  return { id, ...wanted, partnerId, ssoConfig: null, billingContact: null, ...stamps }
}

export function makeSite(wanted: NewSite, { id, now }: Made): Site {
  return { id, ...wanted, createdAt: now, updatedAt: now }
}

/**
 * The partner a new organization belongs to (spec, "Errors").
 * @throws invalid_request, partner_mismatch
 */
export function partnerOfNewOrg(scope: Scope, wanted: string | undefined): string {
  if (scope.kind === 'system') {
    if (wanted === undefined) throw noPartner('partnerId is required for system scope')
    return wanted
  }
  if (scope.kind !== 'partner') throw noPartner('Partner context required to create organizations')
  if (wanted !== undefined && wanted !== scope.partnerId) throw new Problem('partner_mismatch')
  return scope.partnerId
}

const noPartner = (message: string): Problem => invalid([{ path: 'body.partnerId', message }], message)

/**
 * Refuses what concerns all sites of an organization to a member who sees only some of them.
 * @throws site_access_denied
 */
export function checkMaySeeAll(scope: Scope): void {
  if (scope.kind !== 'organization' || scope.siteIds === null) return
  throw new Problem('site_access_denied', 'Your access is limited to some sites')
}

/** @throws organization_limit_reached */
export function checkOrgCap(partner: Partner, organizations: number): void {
  const { maxOrganizations } = partner
  if (maxOrganizations === null || organizations < maxOrganizations) return
  throw new Problem('organization_limit_reached', 'Organization limit reached', {
    details: { currentOrganizations: organizations, maxOrganizations },
  })
}

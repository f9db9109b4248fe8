import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import { mergePatch } from '../rules.ts'
import type { NewPartner, Partner, PartnerChange, PartnerSettings } from './contract.ts'

export function makePartner(wanted: NewPartner, { id, now }: { id: string; now: Instant }): Partner {
  const stamps = { createdAt: now, updatedAt: now, deletedAt: null }
  return { id, ...wanted, status: 'active', settings: {}, ssoConfig: null, ...stamps }
}

export function applyPartnerChange(partner: Partner, change: PartnerChange, now: Instant): Partner {
  const { settings, ...rest } = change
  return {
    ...partner,
    ...(rest as Partial<Partner>),
    settings: settings ? mergePatch(partner.settings, settings) : partner.settings,
    updatedAt: now,
  }
}

export const markPartnerDeleted = (partner: Partner, now: Instant): Partner => ({
  ...partner,
  status: 'churned',
  updatedAt: now,
  deletedAt: now,
})

/**
 * The stored form of an order of organizations: unknown ids are dropped, missing ones follow in the order of
 * registration.
 */
export function normalizeOrder(wanted: readonly string[], known: readonly string[]): string[] {
  const live = new Set(known)
  const named = new Set(wanted.map((id) => id.toLowerCase()).filter((id) => live.has(id)))
  return [...named, ...known.filter((id) => !named.has(id))]
}

/** Settings with the stored form of their order of organizations. */
export const withNormalizedOrder = (settings: PartnerSettings, known: readonly string[]): PartnerSettings =>
  settings.organizationOrder
    ? { ...settings, organizationOrder: normalizeOrder(settings.organizationOrder, known) }
    : settings

/** The partner as shown to a user who may not see all its organizations. */
export function visiblePartner(partner: Partner, orgs: readonly string[]): Partner {
  const { organizationOrder } = partner.settings
  if (!Array.isArray(organizationOrder)) return partner
  const inSight = new Set(orgs)
  const order = organizationOrder.filter((id) => inSight.has(id))
  return { ...partner, settings: { ...partner.settings, organizationOrder: order } }
}

/** @throws organization_limit_reached */
export function checkOrgCap(partner: Partner, organizations: number): void {
  const { maxOrganizations } = partner
  if (maxOrganizations === null || organizations < maxOrganizations) return
  throw new Problem('organization_limit_reached', 'Organization limit reached', {
    details: { currentOrganizations: organizations, maxOrganizations },
  })
}

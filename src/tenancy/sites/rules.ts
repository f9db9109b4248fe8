import { Problem } from '../../core/errors.ts'
import { pluralize } from '../../core/finding.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { mergeSettings } from '../rules.ts'
import type { NewSite, Site, SiteChange } from './contract.ts'

export function makeSite(wanted: NewSite, { id, now }: { id: string; now: Instant }): Site {
  return { id, ...wanted, createdAt: now, updatedAt: now }
}

export function applySiteChange(site: Site, change: SiteChange, now: Instant): Site {
  const { settings, ...rest } = change
  return {
    ...site,
    ...(rest as Partial<Site>),
    settings: settings ? mergeSettings(site.settings, settings) : site.settings,
    updatedAt: now,
  }
}

/**
 * Refuses an action on all sites of an organization to a member who sees only some of them.
 * @throws site_access_denied
 */
export function checkSeesAllSites(scope: Scope): void {
  if (scope.kind !== 'organization' || scope.siteIds === null) return
  throw new Problem('site_access_denied', 'Your access is limited to some sites')
}

/** How many records still belong to a site. */
export type SiteUse = {
  devices: number
  enrollmentKeys: number
  deviceGroups: number
  memberships: number
  filters: number
}

const nouns: Record<keyof SiteUse, string> = {
  devices: 'device',
  enrollmentKeys: 'enrollment key',
  deviceGroups: 'device group',
  memberships: 'membership',
  filters: 'saved filter',
}

/** @throws site_in_use */
export function checkUnused(use: SiteUse): void {
  const counted = (Object.keys(nouns) as (keyof SiteUse)[]).filter((kind) => use[kind] > 0)
  if (counted.length === 0) return
  const parts = counted.map((kind) => pluralize(use[kind], nouns[kind]))
  throw new Problem('site_in_use', `Site is still used by ${parts.join(', ')}`, { details: use })
}

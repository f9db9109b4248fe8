import { invalid, Problem } from '../core/errors.ts'
import { pluralize } from '../core/finding.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { ConditionGroup } from '../filters/contract.ts'
import type { DeviceGroup, GroupUpdate, NewGroup } from './contract.ts'

export function makeGroup(
  wanted: NewGroup & { orgId: string },
  { id, now }: { id: string; now: Instant },
): DeviceGroup {
  const { orgId, siteId, name, type, filterId, parentId } = wanted
  const empty = { deviceCount: 0, evaluatedAt: null, evaluationError: null }
  return { id, orgId, siteId, name, type, filterId, parentId, ...empty, createdAt: now, updatedAt: now }
}

export function applyChange(group: DeviceGroup, change: GroupUpdate, now: Instant): DeviceGroup {
  const { name = group.name, filterId = group.filterId, parentId = group.parentId } = change
  return { ...group, name, filterId, parentId, updatedAt: now }
}

/**
 * Groups determine what some members may see, so members restricted to groups change none: they could extend their
 * own access, or each other's. Members restricted to sites change groups of their sites, which contain devices of
 * these sites only. @throws site_access_denied
 */
export function checkMayChange(scope: Scope, siteId: string | null): void {
  if (scope.kind !== 'organization') return
  if (scope.groupIds !== null) {
    throw new Problem('site_access_denied', 'Your access is limited to some device groups')
  }
  if (scope.siteIds === null || (siteId !== null && scope.siteIds.includes(siteId))) return
  throw new Problem(
    'site_access_denied',
    'Your access is limited to some sites: the group must belong to one of them',
  )
}

/** @throws invalid_request unless dynamic groups, and only they, have a filter */
export function checkFilterRequired(
  type: DeviceGroup['type'],
  filterId: string | null | undefined,
  path = 'body.filterId',
): void {
  if (type === 'dynamic' && filterId === null) {
    throw invalid([{ path, message: 'is required for a dynamic group' }])
  }
  if (type === 'static' && filterId) {
    throw invalid([{ path, message: 'is for dynamic groups only' }])
  }
}

/** Groups that depend on each other might never settle. @throws invalid_request */
export function checkNoGroupCondition(conditions: ConditionGroup, path: string): void {
  if (!hasGroupCondition(conditions)) return
  throw invalid([{ path, message: 'uses groupId, which the filter of a dynamic group cannot use' }])
}

const hasGroupCondition = ({ conditions }: ConditionGroup): boolean =>
  conditions.some((one) => ('conditions' in one ? hasGroupCondition(one) : one.field === 'groupId'))

/** @throws conflict for a dynamic group */
export function checkStatic(group: DeviceGroup): void {
  if (group.type === 'static') return
  throw new Problem('conflict', 'A filter selects the devices of this group: pin or unpin a device instead')
}

/** @throws conflict for a static group */
export function checkDynamic(group: DeviceGroup): void {
  if (group.type === 'dynamic') return
  throw new Problem(
    'conflict',
    'Devices can be pinned only in a dynamic group: in a static one they stay anyway',
  )
}

export type GroupUse = { memberships: number; groups: number; filters: number }

/**
 * Deleting a group must not lift the restrictions of members, nor leave groups without their parent, nor filters with a
 * condition that nothing fulfills. @throws conflict
 */
export function checkUnused({ memberships, groups, filters }: GroupUse): void {
  const parts = [
    memberships > 0 && `${pluralize(memberships, 'member is', 'members are')} limited to it`,
    groups > 0 && `${pluralize(groups, 'group is', 'groups are')} under it`,
    filters > 0 && `${pluralize(filters, 'saved filter has', 'saved filters have')} a condition on it`,
  ].filter((part) => part !== false)
  if (parts.length === 0) return
  throw new Problem('conflict', `The group is in use: ${parts.join(', ')}`, {
    details: { memberships, groups, filters },
  })
}

/** The fields in which two records differ, before and after. */
export function difference(before: DeviceGroup, after: DeviceGroup) {
  const keys = (['name', 'filterId', 'parentId'] as const).filter((key) => before[key] !== after[key])
  const only = (one: DeviceGroup) => Object.fromEntries(keys.map((key) => [key, one[key]]))
  return { before: only(before), after: only(after) }
}

export const deviceCountText = (n: number): string => `${n} ${n === 1 ? 'device' : 'devices'}`

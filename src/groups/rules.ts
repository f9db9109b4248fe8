import { invalid, Problem } from '../core/errors.ts'
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
 * What is in a group is what some members may see, so those who are narrowed to groups change none: they
 * could widen themselves, or each other. Those who are narrowed to sites change groups of their sites, which
 * hold devices of these sites only.
 * @throws site_access_denied
 */
export function checkMayChange(scope: Scope, siteId: string | null): void {
  if (scope.kind !== 'organization') return
  if (scope.groupIds !== null) {
    throw new Problem('site_access_denied', 'Your access is limited to some device groups')
  }
  if (scope.siteIds === null || (siteId !== null && scope.siteIds.includes(siteId))) return
  throw new Problem('site_access_denied', 'Your access is limited to some sites: the group has to be of one')
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

/**
 * Groups that depend on groups could chase each other for ever.
 * @throws invalid_request
 */
export function checkNoGroupCondition(conditions: ConditionGroup, path: string): void {
  if (!hasGroupCondition(conditions)) return
  throw invalid([{ path, message: 'asks for groupId, which the filter of a dynamic group cannot' }])
}

const hasGroupCondition = ({ conditions }: ConditionGroup): boolean =>
  conditions.some((one) => ('conditions' in one ? hasGroupCondition(one) : one.field === 'groupId'))

/** @throws conflict for a group that a filter fills */
export function checkStatic(group: DeviceGroup): void {
  if (group.type === 'static') return
  throw new Problem('conflict', 'A filter decides which devices are in this group: pin or unpin a device')
}

/** @throws conflict for a group that people fill */
export function checkDynamic(group: DeviceGroup): void {
  if (group.type === 'dynamic') return
  throw new Problem(
    'conflict',
    'Only devices of a dynamic group are pinned: those of a static one stay anyway',
  )
}

/**
 * A group that goes must take nobody's limits with it, nor leave groups without their parent.
 * @throws conflict
 */
export function checkUnused({ memberships, groups }: { memberships: number; groups: number }): void {
  const parts = [
    memberships > 0 && `${memberships} ${memberships === 1 ? 'member is' : 'members are'} limited to it`,
    groups > 0 && `${groups} ${groups === 1 ? 'group is' : 'groups are'} under it`,
  ].filter((part) => part !== false)
  if (parts.length === 0) return
  throw new Problem('conflict', `The group is in use: ${parts.join(', ')}`, {
    details: { memberships, groups },
  })
}

/** The fields in which two records differ, as they were and as they are. */
export function difference(before: DeviceGroup, after: DeviceGroup) {
  const keys = (['name', 'filterId', 'parentId'] as const).filter((key) => before[key] !== after[key])
  const only = (one: DeviceGroup) => Object.fromEntries(keys.map((key) => [key, one[key]]))
  return { before: only(before), after: only(after) }
}

export const deviceCountText = (n: number): string => `${n} ${n === 1 ? 'device' : 'devices'}`

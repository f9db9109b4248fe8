import { Problem } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { ConditionGroup } from '../filters/contract.ts'
import type { FilterHooks } from '../filters/handlers.ts'
import {
  type DynamicGroup,
  evaluateFilter,
  type FilterResult,
  listGroupsOfFilter,
  refreshGroups,
} from './dynamic.ts'
import { checkMayChange, checkNoGroupCondition } from './rules.ts'

function checkMayFill(scope: Scope, groups: readonly DynamicGroup[], conditions: ConditionGroup): void {
  for (const { siteId } of groups) checkMayChange(scope, siteId)
  checkNoGroupCondition(conditions, 'body.conditions')
}

/** How changes of saved filters affect device groups. */
export const filterHooks: FilterHooks<FilterResult> = {
  async prepareChange({ storage, readQuery, scope, now }, filter) {
    const groups = await listGroupsOfFilter(storage.read, scope, filter)
    if (groups.length === 0) return undefined
    checkMayFill(scope, groups, filter.conditions)
    return readQuery((on) => evaluateFilter(on, filter, now))
  },

  /**
   * A caller who must not change a group must not change its filter either: they could add devices that they cannot
   * see, or themselves gain access.
   */
  async onChange(db, scope, filter, answer, now) {
    const groups = await listGroupsOfFilter(db, scope, filter)
    if (groups.length === 0) return
    checkMayFill(scope, groups, filter.conditions)
    await refreshGroups(db, groups, answer, now)
  },

  async onRemove(db, scope, filter) {
    const { length } = await listGroupsOfFilter(db, scope, filter)
    if (length === 0) return
    const who = length === 1 ? '1 device group takes its' : `${length} device groups take their`
    throw new Problem('conflict', `${who} devices from this filter`, { details: { deviceGroups: length } })
  },
}

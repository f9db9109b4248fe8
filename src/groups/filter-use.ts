import { Problem } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { ConditionGroup } from '../filters/contract.ts'
import type { FilterUse } from '../filters/handlers.ts'
import { type Answer, type Dynamic, findAnswer, listFilledBy, refresh } from './dynamic.ts'
import { checkAsksNoGroup, checkMayChange } from './rules.ts'

function checkMayFill(scope: Scope, groups: readonly Dynamic[], conditions: ConditionGroup): void {
  for (const { siteId } of groups) checkMayChange(scope, siteId)
  checkAsksNoGroup(conditions, 'body.conditions')
}

/** What saved filters mean to device groups. */
export const filterUse: FilterUse<Answer> = {
  async changing({ storage, ask, scope, now }, filter) {
    const groups = await listFilledBy(storage.read, scope, filter)
    if (groups.length === 0) return undefined
    checkMayFill(scope, groups, filter.conditions)
    return ask((on) => findAnswer(on, filter, now))
  },

  /**
   * Whoever may not change a group may not change the filter that fills it either: they could let themselves
   * into what they are kept out of.
   */
  async changed(db, scope, filter, answer, now) {
    const groups = await listFilledBy(db, scope, filter)
    if (groups.length === 0) return
    checkMayFill(scope, groups, filter.conditions)
    for (const group of groups) await refresh(db, group, answer, now)
  },

  async removing(db, scope, filter) {
    const { length } = await listFilledBy(db, scope, filter)
    if (length === 0) return
    const who = length === 1 ? '1 device group takes its' : `${length} device groups take their`
    throw new Problem('conflict', `${who} devices from this filter`, { details: { deviceGroups: length } })
  },
}

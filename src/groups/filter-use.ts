import { Problem } from '../core/errors.ts'
import type { FilterUse } from '../filters/handlers.ts'
import { listFilledBy, refresh } from './dynamic.ts'
import { checkAsksNoGroup, checkMayChange } from './rules.ts'

/** What saved filters mean to device groups. */
export const filterUse: FilterUse = {
  /**
   * Whoever may not change a group may not change the filter that fills it either: they could let themselves
   * into what they are kept out of.
   */
  async changed(db, scope, filter, now) {
    const groups = await listFilledBy(db, scope, filter)
    if (groups.length === 0) return
    for (const { siteId } of groups) checkMayChange(scope, siteId)
    checkAsksNoGroup(filter.conditions, 'body.conditions')
    for (const group of groups) await refresh(db, group, now)
  },

  async removing(db, scope, filter) {
    const { length } = await listFilledBy(db, scope, filter)
    if (length === 0) return
    const who = length === 1 ? '1 device group takes its' : `${length} device groups take their`
    throw new Problem('conflict', `${who} devices from this filter`, { details: { deviceGroups: length } })
  },
}

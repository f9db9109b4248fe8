import { fold } from '../core/fold.ts'
import { hasPermission } from '../core/permissions.ts'
import type { HandlersOf } from '../handler.ts'
import { scopeWithin } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import { findSettings, maxPerType } from './rules.ts'
import * as store from './store.ts'

export const search: HandlersOf<typeof contract.search> = {
  async everything({ db, readQuery, scope, caller, query: { orgId, ...query } }) {
    const { permissions } = caller
    const seen = await scopeWithin(db, scope, orgId)
    const [needle, max] = [fold(query.q), maxPerType(query.limit)]
    const [devices, scripts, alerts] = await readQuery((on) =>
      Promise.all([
        hasPermission(permissions, 'devices:read') ? store.findDevices(on, seen, needle, max) : [],
        hasPermission(permissions, 'scripts:read') ? store.findScripts(on, seen, needle, max) : [],
        hasPermission(permissions, 'alerts:read') ? store.findAlerts(on, seen, needle, max) : [],
      ]),
    )
    const settings = findSettings(needle, permissions).slice(0, max)
    return { results: [...devices, ...scripts, ...alerts, ...settings].slice(0, query.limit) }
  },
}

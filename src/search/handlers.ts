import { fold } from '../core/fold.ts'
import { hasPermission } from '../core/permissions.ts'
import type { HandlersOf } from '../handler.ts'
import type * as contract from './contract.ts'
import { findSettings, maxPerType } from './rules.ts'
import * as store from './store.ts'

export const search: HandlersOf<typeof contract.search> = {
  async everything({ ask, scope, caller, query }) {
    const { permissions } = caller
    const [needle, most] = [fold(query.q), maxPerType(query.limit)]
    const [devices, scripts, alerts] = await ask((on) =>
      Promise.all([
        hasPermission(permissions, 'devices:read') ? store.findDevices(on, scope, needle, most) : [],
        hasPermission(permissions, 'scripts:read') ? store.findScripts(on, scope, needle, most) : [],
        hasPermission(permissions, 'alerts:read') ? store.findAlerts(on, scope, needle, most) : [],
      ]),
    )
    const settings = findSettings(needle, permissions).slice(0, most)
    return { results: [...devices, ...scripts, ...alerts, ...settings].slice(0, query.limit) }
  },
}

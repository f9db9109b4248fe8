import { invalid } from '../core/errors.ts'
import { offsetOf } from '../core/page.ts'
import type { Instant } from '../core/time.ts'
import { lockDeviceCaps } from '../credentials/enrollment-keys/store.ts'
import { emit } from '../events/outbox.ts'
import type { HandlersOf } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { checkOrg, getSite } from '../tenancy/store.ts'
import { changeTags, lockDevice, lockDevices, removeDevice, saveDevice } from './changes.ts'
import type * as contract from './contract.ts'
import { emitChanged, emitTagged } from './events.ts'
import { getDeviceRecord, listSoftware } from './records.ts'
import {
  applyChange,
  checkDecommissioned,
  checkMayMove,
  decommission,
  difference,
  restore,
  setMaintenance,
  tooManyTags,
} from './rules.ts'
import * as store from './store.ts'
import { withNextWindow } from './windows/rules.ts'

type Settings = {
  offlineAfterSeconds: number
  /** Called after a device moved to another site, in the same transaction. */
  moved(db: Db, now: Instant, deviceId: string): Promise<void>
}

export const deviceHandlers = (settings: Settings): HandlersOf<typeof contract.devices> => ({
  async list({ db, readQuery, scope, query }) {
    const { orgId, siteId, page: _, limit: __, cursor: ___, ...looked } = query
    if (orgId !== undefined) await checkOrg(db, scope, orgId)
    // Above one organization devices are found among all of them. Filters without a matching index order may read every visible
    // device, and a late page skips as many.
    const isLong =
      scope.kind !== 'organization' ||
      Object.values(looked).some((one) => one !== undefined && one !== '') ||
      (query.cursor === undefined && offsetOf(query) > store.countedAtOnce)
    return isLong
      ? readQuery((on) => store.listDevices(on, scope, query))
      : store.listDevices(db, scope, query, readQuery)
  },

  show: async ({ db, scope, params, now }) =>
    withNextWindow(await getDeviceRecord(db, scope, params.id), now),

  software: ({ db, scope, params, query }) => listSoftware(db, scope, params.id, query),

  async update({ db, scope, params, body, now, note }) {
    const device = await lockDevice(db, scope, params.id)
    const after = applyChange(device, body, now)
    if (body.siteId !== undefined) {
      const site = body.siteId === null ? null : await getSite(db, scope, body.siteId)
      checkMayMove(device, site, scope)
    }
    await saveDevice(db, device, after)
    if (after.siteId !== device.siteId) await settings.moved(db, now, device.id)
    await emitChanged(db, device, after, now)
    note(difference(device, after))
    return after
  },

  async tag({ db, scope, body, now, note }) {
    const rows = await lockDevices(db, scope, body.deviceIds)
    const [first] = rows
    if (rows.some((row) => row.org_id !== first!.org_id)) {
      throw invalid([{ path: 'body.deviceIds', message: 'must be devices of one organization' }])
    }
    if (body.add.length + body.remove.length === 0) {
      throw invalid([{ path: 'body', message: 'must change something' }], 'No updates provided')
    }
    const ids = rows.map(({ id }) => id)
    if (!(await changeTags(db, ids, body, now))) throw tooManyTags('body.add')
    await emitTagged(db, rows, now)
    note({ orgId: first!.org_id })
    if (rows.length === 1) note({ resourceId: first!.id, resourceName: first!.hostname })
    return { success: true, devices: rows.length }
  },

  async maintenance({ db, scope, params, body, now, note }) {
    const device = await lockDevice(db, scope, params.id)
    const isZoneNeeded = body.window != null && body.window.timezone === undefined && device.siteId !== null
    const siteZone = isZoneNeeded ? (await getSite(db, scope, device.siteId!)).timezone : 'UTC'
    const after = setMaintenance(device, body, { now, siteZone, ...settings })
    await saveDevice(db, device, after)
    await emitChanged(db, device, after, now)
    note(difference(device, after))
    return withNextWindow(after, now)
  },

  async decommission({ db, scope, params, caller, now, note }) {
    const device = await lockDevice(db, scope, params.id)
    const after = decommission(device, now)
    await saveDevice(db, device, after)
    const { id: deviceId, orgId, hostname } = device
    const data = { deviceId, hostname, decommissionedBy: caller.id }
    await emit(db, { orgId, type: 'device.decommissioned', data }, now)
    note(difference(device, after))
    return after
  },

  async restore({ db, scope, params, now, note }) {
    const { orgId } = await store.getDevice(db, scope, params.id)
    // Locks the tenant first, as enrollment does: its caps hold under concurrent restores and enrollments.
    const tenant = await lockDeviceCaps(db, orgId)
    const device = await lockDevice(db, scope, params.id)
    const after = restore(device, now)
    await store.checkDeviceCaps(db, tenant!)
    await saveDevice(db, device, after)
    await emitChanged(db, device, after, now)
    note(difference(device, after))
    return after
  },

  async remove({ db, scope, params, note }) {
    const device = await lockDevice(db, scope, params.id)
    checkDecommissioned(device)
    await removeDevice(db, device.id)
    const { hostname, displayName, siteId, agentId, tags, customFields } = device
    note({
      orgId: device.orgId,
      resourceName: hostname,
      before: { hostname, displayName, siteId, agentId, tags, customFields },
    })
    return { success: true, message: `Device ${hostname} deleted` }
  },
})

import type { HandlersOf } from '../handler.ts'
import { checkOrg } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import * as store from './store.ts'

export const devices: HandlersOf<typeof contract.devices> = {
  async list({ db, storage, scope, query }) {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    // Looking for a part of a name reads every device in sight.
    return store.listDevices(query.search ? storage.heavy : db, scope, query)
  },

  async show({ db, scope, params }) {
    const device = await store.getDevice(db, scope, params.id)
    return { ...device, ...(await store.getInventory(db, device)) }
  },
}

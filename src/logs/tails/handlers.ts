import type { HandlersOf } from '../../handler.ts'
import { scopeWithin } from '../../tenancy/store.ts'
import type * as contract from './contract.ts'
import * as store from './store.ts'

export const logTails: HandlersOf<typeof contract.logTails> = {
  async heads({ db, readQuery, scope, query: { orgId, ...query } }) {
    const seen = await scopeWithin(db, scope, orgId)
    return readQuery((on, checkTime) => store.listLogHeads(on, seen, query, checkTime))
  },

  async read({ db, readQuery, scope, query: { orgId, after, limit, ...filter } }) {
    const seen = await scopeWithin(db, scope, orgId)
    return readQuery(async (on, checkTime) =>
      after === undefined
        ? { ...(await store.newestLogs(on, seen, filter, limit, checkTime)), places: [] }
        : store.logsAfter(on, seen, after, filter, limit, checkTime),
    )
  },
}

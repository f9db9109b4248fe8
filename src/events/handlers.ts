import type { HandlersOf } from '../handler.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import type * as contract from './contract.ts'
import { emit } from './outbox.ts'

export const events: HandlersOf<typeof contract.events> = {
  async create({ db, scope, body, now, note }) {
    const orgId = await resolveOrg(db, scope, body.orgId)
    const { type, data } = body
    const id = await emit(db, { orgId, type, data }, now)
    note({ orgId, resourceId: orgId, details: { eventId: id, type } })
    return { id, type, timestamp: now, orgId }
  },
}

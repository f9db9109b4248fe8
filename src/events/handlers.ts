import type { HandlersOf } from '../handler.ts'
import { orgOfNew } from '../tenancy/org-of-new.ts'
import type * as contract from './contract.ts'
import { emit } from './outbox.ts'

export const events: HandlersOf<typeof contract.events> = {
  async create({ db, scope, body, now, note }) {
    const orgId = await orgOfNew(db, scope, body.orgId)
    const { type, data } = body
    const id = await emit(db, { orgId, type, data }, now)
    note({ orgId, resourceId: orgId, details: { eventId: id, type } })
    return { id, type, timestamp: now, orgId }
  },
}

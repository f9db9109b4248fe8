import type { HandlersOf } from '../../handler.ts'
import type * as contract from './contract.ts'
import { applyUpdateStatus } from './status.ts'

export const agentUpdates: HandlersOf<typeof contract.agentUpdates> = {
  async status({ db, caller, body, ...origin }) {
    await applyUpdateStatus(db, caller, body, origin)
    return { success: true }
  },
}

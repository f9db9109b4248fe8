import type { HandlersOf } from '../../handler.ts'
import type * as contract from './contract.ts'
import { checkIsCurrent, checkMayConfirm, confirmRotation, newAgentToken, stageRotation } from './rules.ts'
import { lockTokenStanding } from './standing.ts'
import * as store from './store.ts'

export const agentTokens: HandlersOf<typeof contract.agentTokens> = {
  async rotate({ db, caller, now, note }) {
    note({ resourceId: caller.deviceId, resourceName: caller.device.hostname })
    const { tokens: before, standingChange } = await lockTokenStanding(db, caller, now)
    checkIsCurrent(standingChange)
    const tokens = { agent: newAgentToken(), watchdog: newAgentToken() }
    const next = stageRotation(before, tokens, now)
    await store.saveRotation(db, caller.deviceId, next)
    const { pending_until: pendingExpiresAt } = next
    note({ details: { pendingExpiresAt } })
    return {
      authToken: tokens.agent,
      watchdogAuthToken: tokens.watchdog,
      confirmationRequired: true,
      pendingExpiresAt,
    }
  },

  async confirm({ db, caller, now, note }) {
    note({ resourceId: caller.deviceId, resourceName: caller.device.hostname })
    const { tokens, standingChange } = await lockTokenStanding(db, caller, now)
    if (checkMayConfirm(standingChange, tokens, now) === 'done') {
      note({ unchanged: true })
      return { success: true }
    }
    const after = confirmRotation(tokens, now)
    await store.saveActiveTokens(db, caller.deviceId, after.current)
    await store.saveRotation(db, caller.deviceId, after.rotation)
    return { success: true }
  },
}

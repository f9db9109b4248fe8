import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { AgentCaller, HandlersOf } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import type * as contract from './contract.ts'
import {
  checkMayConfirm,
  checkMayRotate,
  confirmRotation,
  matchToken,
  newAgentToken,
  stageRotation,
} from './rules.ts'
import * as store from './store.ts'

export const agentTokens: HandlersOf<typeof contract.agentTokens> = {
  async rotate({ db, caller, now, note }) {
    note({ resourceId: caller.deviceId, resourceName: caller.device.hostname })
    const { tokens: before, stood } = await lock(db, caller, now)
    checkMayRotate(stood)
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
    const { tokens, stood } = await lock(db, caller, now)
    if (checkMayConfirm(stood, tokens, now) === 'done') {
      note({ unchanged: true })
      return { success: true }
    }
    const after = confirmRotation(tokens, now)
    await store.saveActiveTokens(db, caller.deviceId, after.current)
    await store.saveRotation(db, caller.deviceId, after.rotation)
    return { success: true }
  },
}

/** Locks and reads the tokens again: a concurrent request may have changed them since authentication. */
async function lock(db: Db, { deviceId, tokenHash, standing }: AgentCaller, now: Instant) {
  const tokens = await store.lockTokens(db, deviceId)
  if (!tokens) throw new Problem('invalid_agent_credentials')
  return { tokens, stood: { before: standing, now: matchToken(tokens, tokenHash, now)?.standing } }
}

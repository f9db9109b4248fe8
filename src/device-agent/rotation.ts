import { agentTokens } from '../agents/tokens/contract.ts'
import { ApiError } from '../core/client.ts'
import { safeParse } from '../core/schema.ts'
import type { Agent } from './agent.ts'
import type { IdentityHolder } from './identity-holder.ts'
import { StagedTokens } from './replies.ts'
import { scheduleTask } from './schedule.ts'
import type { Identity } from './state.ts'

/**
 * Replaces the tokens in two steps, so that no crash leaves the agent without a valid one: the new ones are stored
 * beside the old ones before they are confirmed with the service. Each request can be repeated.
 */
export function tokenRotator(agent: Agent, identity: IdentityHolder) {
  const params = (): { id: string } => ({ id: identity.current().agentId })

  async function rotate(): Promise<void> {
    if (!identity.current().staged) {
      const client = agent.connect(() => identity.current().authToken)
      const staged = safeParse(StagedTokens, await client.call(agentTokens.rotate, { params: params() }))
      if (!staged.success) return
      // Tokens that could not be stored are not confirmed.
      identity.save({ staged: staged.data })
    }
    await confirm()
  }

  async function confirm(): Promise<void> {
    const { staged, watchdogAuthToken, deviceId } = identity.current()
    if (!staged) return
    try {
      await agent.connect(() => staged.authToken).call(agentTokens.confirm, { params: params() })
    } catch (error) {
      // The reply to an earlier attempt was lost: the tokens are active already.
      const isActive = error instanceof ApiError && error.code === 'pending_token_required'
      if (!isActive && error instanceof ApiError && (error.status === 401 || error.status === 409)) {
        return identity.change({ staged: undefined })
      }
      if (!isActive) throw error
    }
    const change: Partial<Identity> = {
      authToken: staged.authToken,
      watchdogAuthToken: staged.watchdogAuthToken ?? watchdogAuthToken,
      staged: undefined,
    }
    // Where this fails they are on disk as staged tokens, which the next attempt or start confirms.
    identity.save(change)
    agent.report({ event: 'token', deviceId })
  }

  const rotateWhenDue = scheduleTask(agent, 'rotation', 0, rotate)
  return {
    rotate: () => rotateWhenDue(),
    /** After a crash between the two steps either token may be the active one. Returns whether the token changed. */
    async resume(): Promise<boolean> {
      const { authToken } = identity.current()
      await scheduleTask(agent, 'rotation', 0, confirm)()
      return identity.current().authToken !== authToken
    },
  }
}
export type TokenRotator = ReturnType<typeof tokenRotator>

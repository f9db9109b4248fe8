import { agentTokens } from '../agents/tokens/contract.ts'
import { ApiError } from '../core/client.ts'
import { safeParse } from '../core/schema.ts'
import type { Agent } from './agent.ts'
import { whenDue } from './due.ts'
import type { IdentityKeeper } from './keeper.ts'
import { StagedTokens } from './replies.ts'
import type { Identity } from './state.ts'

/**
 * Replaces the tokens in two steps, so that no crash leaves an agent without one that counts: new ones are kept beside the
 * old before the service is told, with the new one, that they were. Whatever was said last can be said again.
 */
export function rotationOf(agent: Agent, me: IdentityKeeper) {
  const params = (): { id: string } => ({ id: me.now().agentId })

  async function rotate(): Promise<void> {
    if (!me.now().staged) {
      const client = agent.connect(() => me.now().authToken)
      const staged = safeParse(StagedTokens, await client.call(agentTokens.rotate, { params: params() }))
      if (!staged.success) return
      try {
        me.save({ staged: staged.data })
      } catch {
        // Tokens that would not survive this process are not confirmed.
        return
      }
    }
    await confirm()
  }

  async function confirm(): Promise<void> {
    const { staged, watchdogAuthToken, deviceId } = me.now()
    if (!staged) return
    try {
      await agent.connect(() => staged.authToken).call(agentTokens.confirm, { params: params() })
    } catch (error) {
      // The answer to an earlier try got lost: they count already.
      const counts = error instanceof ApiError && error.code === 'pending_token_required'
      if (!counts && error instanceof ApiError && (error.status === 401 || error.status === 409)) {
        return me.change({ staged: undefined })
      }
      if (!counts) throw error
    }
    const change: Partial<Identity> = {
      authToken: staged.authToken,
      watchdogAuthToken: staged.watchdogAuthToken ?? watchdogAuthToken,
      staged: undefined,
    }
    try {
      me.save(change)
    } catch {
      // The disk has them as the staged ones, which the next start confirms.
      return
    }
    agent.report({ event: 'token', deviceId })
  }

  const rotateWhenDue = whenDue(agent, 'rotation', 0, rotate)
  return {
    rotate: () => rotateWhenDue(),
    /** After a crash between the two steps either token may be the one that counts. Whether it is another one now. */
    async resume(): Promise<boolean> {
      const { authToken } = me.now()
      await whenDue(agent, 'rotation', 0, confirm)()
      return me.now().authToken !== authToken
    },
  }
}
export type Rotation = ReturnType<typeof rotationOf>

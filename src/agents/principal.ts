import { Problem } from '../core/errors.ts'
import type { Instant } from '../core/time.ts'
import { agentIdPattern as wellFormed } from '../devices/contract.ts'
import type { AgentCaller } from '../handler.ts'
import { batchReads } from '../storage/batching.ts'
import type { Db, Storage } from '../storage/open.ts'
import { isTenantGone } from './rules.ts'
import { findAgents, findTokenStates, isAgentToken } from './store.ts'
import { agentTokenHash, matchActive, matchToken } from './tokens/rules.ts'
import { findTokens } from './tokens/store.ts'

type AuthOptions = { now: Instant; unknown?: 'not_found' | undefined; lapsed?: true | undefined }

export type AgentAuthenticator = (agentId: string, token: string, asked: AuthOptions) => Promise<AgentCaller>

/**
 * Returns the agent of a bearer token, for the agent id in the path. A suspended organization still lets its agents
 * report; a churned or deleted one does not. The state of a rotation is read only for a token that is not an active
 * one; `lapsed` admits a new token that was not confirmed in time. @throws invalid_agent_credentials (or `unknown`,
 * to another agent), device_decommissioned, device_quarantined
 */
export function agentAuthenticator({ read }: Pick<Storage, 'read'>): AgentAuthenticator {
  const find = batchReads((agentIds: readonly string[]) => findAgents(read, agentIds))
  return async (agentId, token, { now, unknown, lapsed }) => {
    // The path is not validated yet: authentication comes first.
    const row = wellFormed.test(agentId) ? await find(agentId) : undefined
    const tokenHash = agentTokenHash(token)
    const stands =
      row && (matchActive(row, tokenHash) ?? (await matchRotationOf(read, row.id, tokenHash, now)))
    if (!stands || (stands.standing === 'lapsed' && !lapsed)) {
      if (unknown && !stands && (await isAgentToken(read, tokenHash))) {
        throw new Problem(unknown, 'No device has this agent id and token')
      }
      throw new Problem('invalid_agent_credentials')
    }
    if (isTenantGone(row)) throw new Problem('invalid_agent_credentials')
    if (row.status === 'decommissioned') throw new Problem('device_decommissioned')
    if (row.status === 'quarantined') throw new Problem('device_quarantined')
    return {
      ...stands,
      kind: 'agent',
      tokenHash,
      deviceId: row.id,
      orgId: row.org_id,
      partnerId: row.partner_id,
      agentId,
      device: row,
    }
  }
}

async function matchRotationOf(db: Db, deviceId: string, tokenHash: string, now: Instant) {
  const tokens = await findTokens(db, deviceId)
  return tokens && matchToken(tokens, tokenHash, now)
}

/** An agent that was authenticated some time ago. */
export type AuthenticatedAgent = { agentId: string; orgId: string; tokenHash: string }

/** For each agent, why it would no longer be authenticated; undefined where it still would. */
export async function recheckAgents(
  db: Db,
  agents: readonly AuthenticatedAgent[],
  now: Instant,
): Promise<('decommissioned' | 'moved' | 'refused' | undefined)[]> {
  const rows = await findTokenStates(
    db,
    agents.map(({ agentId }) => agentId),
  )
  const byAgentId = new Map(rows.map((row) => [row.agent_id, row]))
  return agents.map(({ agentId, orgId, tokenHash }) => {
    const row = byAgentId.get(agentId)
    if (!row || row.status === 'decommissioned') return 'decommissioned'
    const stands = matchToken(row, tokenHash, now)
    const isLetIn = stands?.role === 'agent' && stands.standing !== 'lapsed'
    if (!isLetIn || row.status === 'quarantined' || isTenantGone(row)) return 'refused'
    return row.org_id === orgId ? undefined : 'moved'
  })
}

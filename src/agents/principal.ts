import { timingSafeEqual } from 'node:crypto'
import { Problem } from '../core/errors.ts'
import { agentId as wellFormed } from '../devices/contract.ts'
import type { AgentCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { agentTokenHash } from './rules.ts'
import { type AgentRow, findAgent, findAgents } from './store.ts'

/**
 * The agent behind a bearer token, for the agent id in the path. An organization that is suspended still
 * lets its agents report; a churned or deleted one does not (decisions.md, Tenancy).
 * @throws invalid_agent_credentials (or `unknown`, for an id that no device has), device_decommissioned, device_quarantined
 */
export async function findAgentCaller(
  db: Db,
  agentId: string,
  token: string,
  unknown?: 'not_found',
): Promise<AgentCaller> {
  // The path was not looked at yet: who calls comes first.
  const row = wellFormed.test(agentId) ? await findAgent(db, agentId) : undefined
  const stated = Buffer.from(agentTokenHash(token))
  const right = row !== undefined && timingSafeEqual(Buffer.from(row.token_hash), stated)
  if (!right && unknown) throw new Problem(unknown, 'No device has this agent id and token')
  if (!right) throw new Problem('invalid_agent_credentials')
  if (isTenantGone(row)) throw new Problem('invalid_agent_credentials')
  if (row.status === 'decommissioned') throw new Problem('device_decommissioned')
  if (row.status === 'quarantined') throw new Problem('device_quarantined')
  return { kind: 'agent', deviceId: row.id, orgId: row.org_id, agentId, device: row }
}

const isTenantGone = (row: AgentRow): boolean =>
  row.org_deleted_at !== null ||
  row.partner_deleted_at !== null ||
  row.org_status === 'churned' ||
  row.partner_status === 'churned'

/** An agent that was let in some time ago. */
export type KnownAgent = { agentId: string; orgId: string; tokenHash: string }

/** For each, why it would not be let in as it was; undefined where it would. */
export async function reviseAgents(
  db: Db,
  agents: readonly KnownAgent[],
): Promise<('decommissioned' | 'moved' | 'refused' | undefined)[]> {
  const rows = await findAgents(
    db,
    agents.map(({ agentId }) => agentId),
  )
  const byAgentId = new Map(rows.map((row) => [row.agent_id, row]))
  return agents.map(({ agentId, orgId, tokenHash }) => {
    const row = byAgentId.get(agentId)
    if (!row || row.status === 'decommissioned') return 'decommissioned'
    if (row.token_hash !== tokenHash || row.status === 'quarantined' || isTenantGone(row)) return 'refused'
    return row.org_id === orgId ? undefined : 'moved'
  })
}

import { timingSafeEqual } from 'node:crypto'
import { Problem } from '../core/errors.ts'
import { agentId as wellFormed } from '../devices/contract.ts'
import type { AgentCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { agentTokenHash } from './rules.ts'
import { findAgent } from './store.ts'

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
  const gone = row.org_deleted_at !== null || row.partner_deleted_at !== null
  if (gone || row.org_status === 'churned' || row.partner_status === 'churned') {
    throw new Problem('invalid_agent_credentials')
  }
  if (row.status === 'decommissioned') throw new Problem('device_decommissioned')
  if (row.status === 'quarantined') throw new Problem('device_quarantined')
  return { kind: 'agent', deviceId: row.id, orgId: row.org_id, agentId, device: row }
}

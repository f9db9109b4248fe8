import { z } from 'zod'
import { agentAccess, endpoint } from '../../core/endpoint.ts'
import { instant, secret } from '../../core/schema.ts'
import { agentParams } from '../../devices/contract.ts'

const tag = 'Agents'

const StagedTokens = z
  .object({
    authToken: secret(z.string()).describe('Bearer token of the agent, displayed only once'),
    watchdogAuthToken: secret(z.string()).describe('Bearer token of its watchdog, displayed only once'),
    confirmationRequired: z.literal(true),
    pendingExpiresAt: instant.describe('Deadline for their confirmation'),
  })
  .meta({ id: 'StagedTokens' })

export const agentTokens = {
  rotate: endpoint({
    method: 'POST',
    path: '/agents/:id/rotate-token',
    idempotencyKey: { refused: 'credential' },
    summary: 'Request new tokens; the old ones are valid until the new ones are confirmed',
    tag,
    access: agentAccess,
    limit: 'AGENT_CHANGES',
    params: agentParams,
    reply: StagedTokens,
    audit: { action: 'agent.token.rotate', resource: 'device' },
    errors: ['rotation_stale_current', 'pending_rotation_unconfirmed', 'rotation_unresolvable'],
  }),
  confirm: endpoint({
    method: 'POST',
    path: '/agents/:id/rotate-token/confirm',
    idempotencyKey: { refused: 'repeatable' },
    summary: 'Confirm new tokens, with the new one; the old ones remain valid for 5 minutes',
    tag,
    access: { ...agentAccess, lapsed: true },
    limit: 'AGENT_CHANGES',
    params: agentParams,
    reply: z.object({ success: z.literal(true) }),
    audit: { action: 'agent.token.confirm', resource: 'device' },
    errors: [
      'pending_token_required',
      'pending_rotation_expired',
      'rotation_stale_current',
      'rotation_conflict',
      'rotation_unresolvable',
    ],
  }),
}

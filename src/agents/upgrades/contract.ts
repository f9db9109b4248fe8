import { z } from 'zod'
import { agentOrWatchdogAccess, endpoint } from '../../core/endpoint.ts'
import { reportedText, text } from '../../core/schema.ts'
import { agentParams } from '../../devices/contract.ts'

/** How an update ended without reaching its version. */
const failureState = z.enum(['failed', 'refused', 'rolled_back'])
export type FailureState = z.output<typeof failureState>

export const UpdateStatus = z.strictObject({
  targetVersion: text(50, 1).describe('The version that was offered'),
  state: z
    .enum(['updating', ...failureState.options])
    .describe('updating: it starts; otherwise how it failed'),
  reason: reportedText(1000).optional().describe('Explanation for users'),
})
export type UpdateStatus = z.output<typeof UpdateStatus>

export const agentUpdates = {
  status: endpoint({
    method: 'POST',
    path: '/agents/:id/update-status',
    idempotencyKey: { refused: 'repeatable' },
    summary: 'Report that an update starts or failed; success is reported by the next heartbeat',
    tag: 'Agents',
    access: agentOrWatchdogAccess,
    limit: 'AGENT_CHANGES',
    params: agentParams,
    body: UpdateStatus,
    reply: z.object({ success: z.literal(true) }),
    audit: { unaudited: 'a failure has a separate entry' },
    emits: ['device.updated'],
    example: { targetVersion: '1.2.0', state: 'updating' },
  }),
}

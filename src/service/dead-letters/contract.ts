import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery } from '../../core/page.ts'
import { instant, queryNumber } from '../../core/schema.ts'

/* Records that could not be written and were set aside, so that they do not block others. */

const source = z.enum(['audit_logs', 'events'])

export const DeadLetter = z
  .object({
    number: z.int().describe('Number in the log and the audit log'),
    source: source.describe('Destination: the audit log, or the events sent to webhooks'),
    orgId: z.string().nullable(),
    reason: z.string().describe('Why it could not be written'),
    bytes: z.int(),
    createdAt: instant,
  })
  .meta({ id: 'DeadLetter' })
export type DeadLetter = z.output<typeof DeadLetter>

export const DeadLetterDetail = DeadLetter.extend({
  entry: z.string().describe('The record that could not be written'),
}).meta({ id: 'DeadLetterDetail' })
export type DeadLetterDetail = z.output<typeof DeadLetterDetail>

const tag = 'Service'
const params = z.strictObject({
  number: queryNumber(z.number({ error: 'must be a number' }).int().min(1).max(Number.MAX_SAFE_INTEGER)),
})
const reads = userAccess({ scopes: ['system'], permission: 'audit:read', mfa: true })
const writes = userAccess({ scopes: ['system'], permission: 'organizations:write', mfa: true })
const audited = (action: string) => ({ action, resource: 'dead_letter' as const })

export const deadLetters = {
  list: endpoint({
    method: 'GET',
    path: '/dead-letters',
    summary: 'List records that could not be written, newest first',
    tag,
    access: reads,
    query: z.strictObject({ source: source.optional(), ...cursorPageQuery() }),
    reply: cursorPageOf(DeadLetter),
  }),
  show: endpoint({
    method: 'GET',
    path: '/dead-letters/:number',
    summary: 'Show a record that could not be written',
    tag,
    access: reads,
    params,
    reply: DeadLetterDetail,
    audit: { ...audited('dead_letter.read'), quietFor: 15 },
  }),
  retry: endpoint({
    method: 'POST',
    path: '/dead-letters/:number/retry',
    idempotencyKey: 'honored',
    summary: 'Write the record, once the cause of the failure is gone',
    tag,
    access: writes,
    params,
    reply: z.object({ success: z.literal(true), source }),
    audit: audited('dead_letter.retry'),
    errors: ['conflict'],
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/dead-letters/:number',
    summary: 'Delete a record that could not be written',
    tag,
    access: writes,
    params,
    reply: z.object({ success: z.literal(true) }),
    audit: audited('dead_letter.delete'),
  }),
}

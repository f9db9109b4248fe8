import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { flag } from '../../core/page.ts'
import { idOf, instant, text } from '../../core/schema.ts'
import { anyOrgId, auditReadAccess, tag } from '../contract.ts'

const minDays = 1
/** Ten years. */
const maxDays = 3650

/**
 * Same access as other settings of organizations. An organization's own users cannot shorten the log that holds
 * them to account.
 */
const writes = userAccess({ scopes: ['partner', 'system'], permission: 'organizations:write', mfa: true })

const orgId = anyOrgId()
  .optional()
  .describe('Without it: your organization, or the system chain in system scope')
const query = z.strictObject({ orgId })

const Held = z.object({
  reason: z.string(),
  userId: idOf('user').nullable(),
  userEmail: z.string().nullable(),
  since: instant,
})

export const AuditRetention = z
  .object({
    orgId: idOf('organization').nullable().describe('null for the system chain'),
    retentionDays: z.int(),
    archiveToS3: z.boolean().describe('Nothing is deleted before it is archived'),
    lastCleanupAt: instant.nullable().describe('When a run last came to its end'),
    hold: Held.nullable().describe('While there is one nothing is deleted'),
    anchor: z
      .object({
        seq: z.int().describe('The newest entry that was deleted'),
        time: instant,
        prunedCount: z.int(),
      })
      .nullable(),
    archive: z.object({
      configured: z.boolean(),
      objects: z.int(),
      upTo: z.int().nullable().describe('The newest entry that was archived'),
    }),
    lastError: z
      .object({ message: z.string(), at: instant, retryAt: instant.nullable() })
      .nullable()
      .describe('Why the last run failed; null after one that did not'),
    due: z
      .object({ entries: z.int(), upTo: instant.nullable().describe('Time of the newest of them') })
      .optional()
      .describe('What is old enough to go; only when it was asked for'),
  })
  .meta({ id: 'AuditRetention' })
export type AuditRetention = z.output<typeof AuditRetention>

export const RetentionChange = z
  .strictObject({
    retentionDays: z
      .int()
      .min(minDays, `must be at least ${minDays}`)
      .max(maxDays, `must be at most ${maxDays}`)
      .describe(`How many days an entry is kept, ${minDays} to ${maxDays}`)
      .meta({ flag: 'days' }),
    archiveToS3: z
      .boolean()
      .describe('Archive what is old to object storage before it is deleted')
      .meta({ flag: 'archive' }),
  })
  .partial()

const HoldChange = z
  .strictObject({
    held: z.boolean().describe('Whether nothing may be deleted'),
    reason: text(500, 1).optional().describe('Why'),
  })
  .refine(({ held, reason }) => !held || reason !== undefined, { path: ['reason'], error: 'is required' })

export const auditRetention = {
  show: endpoint({
    method: 'GET',
    path: '/audit-logs/retention',
    summary: 'Show how long audit entries are kept, and what was deleted',
    tag,
    access: auditReadAccess,
    query: z.strictObject({ orgId, due: flag.optional().describe('Also count what is old enough to go') }),
    reply: AuditRetention,
    errors: ['org_access_denied'],
  }),
  change: endpoint({
    method: 'PUT',
    path: '/audit-logs/retention',
    summary: 'Change how long audit entries are kept',
    tag,
    access: writes,
    query,
    body: RetentionChange,
    reply: AuditRetention,
    audit: { action: 'audit.retention.update', resource: 'audit_log' },
    errors: ['org_access_denied'],
    example: { retentionDays: 730 },
  }),
  hold: endpoint({
    method: 'PUT',
    path: '/audit-logs/hold',
    summary: 'Hold an audit log: nothing of it is deleted until the hold is released',
    tag,
    access: writes,
    query,
    body: HoldChange,
    reply: AuditRetention,
    audit: { action: 'audit.hold.set', resource: 'audit_log' },
    errors: ['org_access_denied'],
    example: { held: true, reason: 'Case 2026-117' },
  }),
  run: endpoint({
    method: 'POST',
    path: '/audit-logs/retention/run',
    idempotencyKey: 'honored',
    summary: 'Delete now what is old enough to go, for some seconds at most',
    tag,
    access: writes,
    query,
    reply: z.object({
      state: z
        .enum(['done', 'more', 'held', 'busy', 'read', 'failed'])
        .describe(
          'done · more: call again · held: by a legal hold · busy: another run is under way · read: the chain is being exported, try again later · failed: see lastError',
        ),
      pruned: z.int().describe('Entries that this run deleted'),
      retention: AuditRetention,
    }),
    audit: { action: 'audit.retention.run', resource: 'audit_log' },
    errors: ['org_access_denied'],
  }),
}

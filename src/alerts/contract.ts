import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery } from '../core/page.ts'
import { anyObject, endInstant, idOf, idPrefix, instant, text } from '../core/schema.ts'

export const alertStatus = z.enum(['active', 'acknowledged', 'resolved', 'suppressed', 'dismissed'])
export const alertSeverity = z.enum(['critical', 'high', 'medium', 'low', 'info'])

export const Alert = z
  .object({
    id: idOf('alert'),
    orgId: idOf('organization'),
    deviceId: idOf('device').nullable().describe('null for an alert about the organization'),
    ruleId: z.string().nullable().describe('Rule that raised it, as named by the caller that raised it'),
    status: alertStatus,
    severity: alertSeverity,
    title: z.string(),
    message: z.string().nullable(),
    context: z.record(z.string(), z.unknown()).nullable(),
    triggeredAt: instant,
    acknowledgedAt: instant.nullable(),
    acknowledgedBy: z.guid().nullable(),
    escalatedAt: instant.nullable().describe('When it was last escalated'),
    escalatedBy: z.guid().nullable(),
    resolvedAt: instant.nullable(),
    resolvedBy: z.guid().nullable(),
    resolutionNote: z.string().nullable(),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'Alert' })
export type Alert = z.output<typeof Alert>

/**
 * The rule of the alert that two machines use one key. No other is raised while one is open, so nobody else raises one: it would
 * hide that somebody has taken a key.
 */
export const clonedMachineAlertRule = 'copied-machine'

export const NewAlert = z.strictObject({
  orgId: idOf('organization')
    .optional()
    .describe('Organization it is raised in; inferred in organization scope'),
  deviceId: idOf('device').nullable().default(null).describe('Device it is about'),
  severity: alertSeverity,
  title: text(500, 1).describe('What happened, on one line'),
  message: text(10_000).nullable().default(null).describe('Further description'),
  context: anyObject.nullable().default(null).meta({ flag: 'details' }).describe('Further data, in any form'),
  ruleId: text(255, 1)
    .refine((id) => id !== clonedMachineAlertRule, 'is reserved for alerts of the service')
    .nullable()
    .default(null)
    .describe(`Rule that raised it, as you name it, except ${clonedMachineAlertRule}`),
})
export type NewAlert = z.output<typeof NewAlert>

const tag = 'Alerts'
const reads = userAccess({ permission: 'alerts:read', key: true })
const writes = userAccess({ permission: 'alerts:write', key: true })
const acknowledges = userAccess({ permission: 'alerts:acknowledge', key: true })
const params = z.strictObject({ id: idOf('alert') })

export const alerts = {
  list: endpoint({
    method: 'GET',
    path: '/alerts',
    summary: 'List alerts, newest first',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only alerts of this organization'),
      deviceId: idOf('device').optional().describe('Only alerts about this device'),
      status: alertStatus.optional(),
      severity: alertSeverity.optional(),
      since: instant.optional().describe('Only those triggered at this time or later'),
      until: endInstant.optional().describe('Only those triggered before this time'),
      search: text(100).optional().describe('Part of the title or message'),
      idPrefix,
      ...cursorPageQuery(),
    }),
    reply: cursorPageOf(Alert),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/alerts',
    idempotencyKey: 'honored',
    summary: 'Raise an alert',
    tag,
    access: writes,
    body: NewAlert,
    status: 201,
    reply: Alert,
    audit: { action: 'alert.create', resource: 'alert' },
    quota: 'ALERTS',
    emits: ['alert.triggered'],
    errors: ['org_access_denied', 'site_access_denied'],
    example: { severity: 'high', title: 'Backup failed', message: 'No backup for two days' },
  }),
  show: endpoint({
    method: 'GET',
    path: '/alerts/:id',
    summary: 'Show an alert',
    tag,
    access: reads,
    params,
    reply: Alert,
  }),
  acknowledge: endpoint({
    method: 'POST',
    path: '/alerts/:id/acknowledge',
    idempotencyKey: 'honored',
    summary: 'Acknowledge an active alert',
    tag,
    access: acknowledges,
    params,
    reply: Alert,
    audit: { action: 'alert.acknowledge', resource: 'alert' },
    emits: ['alert.acknowledged'],
  }),
  resolve: endpoint({
    method: 'POST',
    path: '/alerts/:id/resolve',
    idempotencyKey: 'honored',
    summary: 'Close an alert',
    tag,
    access: writes,
    params,
    body: z
      .strictObject({
        resolutionNote: text(5000)
          .nullable()
          .default(null)
          .meta({ flag: 'note' })
          .describe('What was done to resolve it'),
      })
      .prefault({}),
    reply: Alert,
    audit: { action: 'alert.resolve', resource: 'alert' },
    emits: ['alert.resolved'],
    example: { resolutionNote: 'Disk replaced' },
  }),
  escalate: endpoint({
    method: 'POST',
    path: '/alerts/:id/escalate',
    idempotencyKey: 'honored',
    summary: 'Escalate an active or acknowledged alert; can be repeated',
    tag,
    access: acknowledges,
    params,
    reply: Alert,
    audit: { action: 'alert.escalate', resource: 'alert' },
    emits: ['alert.escalated'],
  }),
}

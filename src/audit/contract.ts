import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { cursorPageQuery, flag, sequenceQuery } from '../core/page.ts'
import { endInstant, idOf, instant, text } from '../core/schema.ts'

export const tag = 'Audit'
export const auditReadAccess = userAccess({ permission: 'audit:read' })
const result = z.enum(['success', 'failure', 'denied'])

/** Reading the log is audited itself. The same read by the same person within ten minutes adds no further entry. */
export const accessAudit = { action: 'data.access', resource: 'audit_log', quietFor: 10 } as const

export const exportAudit = { action: 'data.export', resource: 'audit_log', quietFor: 0 } as const

/** An organization, which may be deleted: its history outlives it. */
export const anyOrgId = () => idOf('organization').meta({ deleted: true })

export const orgId = anyOrgId().optional().describe('Only entries of this organization')

/** The organization whose chain is meant; required from a partner's user. */
export const chainOrgId = anyOrgId()
  .optional()
  .describe('Without it: your organization, or the system chain in system scope')

export const timeRange = {
  from: instant.optional().meta({ flag: 'since', formerFlag: 'from' }).describe('Not before this time'),
  to: endInstant.optional().meta({ flag: 'until', formerFlag: 'to' }).describe('Not after this time'),
}
export const textFilters = {
  user: text(255).optional().describe('Part of the e-mail address or name of who did it'),
  action: text(100).optional().describe('Part of the action, such as enrollment_key'),
  resource: text(255).optional().describe("Part of the resource's type or name"),
  excludeActions: text(1000)
    .optional()
    .meta({ flag: 'exclude-action', formerFlag: 'exclude-actions' })
    .describe('Not these actions, such as data.access,user.login'),
}
export const AuditQuery = z.strictObject({
  orgId,
  ...textFilters,
  ...timeRange,
  skipCount: flag.optional().describe('Leave the total out, which is faster'),
  ...cursorPageQuery(),
})
export type AuditQuery = z.output<typeof AuditQuery>

const pagination = z.object({
  page: z.int().optional().describe('Left out on a page reached by cursor'),
  limit: z.int(),
  total: z.int().describe('-1 when it was not counted, as on a page reached by cursor'),
  totalPages: z.int().describe('-1 when it was not counted'),
  nextCursor: z.string().nullable().describe('null at the end of the list'),
})

export const damage = z
  .enum(['unreadable', 'altered'])
  .describe('Only where somebody changed what is stored: its text is no entry, or not what its checksum says')

export const AuditEntry = z
  .object({
    id: idOf('audit_log'),
    timestamp: instant,
    user: z.object({ id: z.string(), name: z.string(), email: z.string().nullable(), role: z.string() }),
    action: z.string(),
    resource: z.object({ type: z.string(), id: z.string().nullable(), name: z.string().nullable() }),
    category: z.string(),
    result,
    ipAddress: z.string().nullable(),
    userAgent: z.string().nullable(),
    details: z.record(z.string(), z.unknown()),
    orgId: idOf('organization').nullable().describe('null in the system chain'),
    errorMessage: z.string().nullable(),
    seq: z.int().describe('Place in the chain of its organization, from 1'),
    checksum: z.string(),
    prevChecksum: z.string(),
    damage: damage.optional(),
  })
  .meta({ id: 'AuditEntry' })
export type AuditEntry = z.output<typeof AuditEntry>

const FlatAuditEntry = z
  .object({
    id: idOf('audit_log'),
    timestamp: instant,
    action: z.string(),
    resource: z.string(),
    resourceType: z.string(),
    details: z.string(),
    ipAddress: z.string().nullable(),
    userAgent: z.string().nullable(),
    sessionId: z.string().nullable(),
    user: z.object({ name: z.string(), email: z.string(), role: z.string(), department: z.string() }),
    changes: z.object({
      before: z.record(z.string(), z.unknown()),
      after: z.record(z.string(), z.unknown()),
    }),
    damage: damage.optional(),
  })
  .meta({ id: 'FlatAuditEntry' })

export const auditLogs = {
  flat: endpoint({
    method: 'GET',
    path: '/audit-logs',
    summary: 'List audit entries, flat, newest first',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query: AuditQuery,
    reply: z.object({ entries: z.array(FlatAuditEntry), pagination }),
    errors: ['org_access_denied'],
  }),
  list: endpoint({
    method: 'GET',
    path: '/audit-logs/logs',
    summary: 'List audit entries, newest first',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query: AuditQuery.extend({
      after: sequenceQuery(
        "of one chain (orgId's, else your own organization's, or in system scope the system's)",
      ),
    }),
    reply: z.object({
      data: z.array(AuditEntry),
      pagination,
      head: z
        .int()
        .optional()
        .describe(
          'With after: the newest seq of the chain; whoever has read to the end has read all up to it',
        ),
    }),
    errors: ['org_access_denied'],
  }),
  show: endpoint({
    method: 'GET',
    path: '/audit-logs/logs/:id',
    summary: 'Show an audit entry',
    tag,
    // The culprits of a plan: a workload sees them where it may see the entry.
    access: userAccess({ permission: 'audit:read', workload: 'files' }),
    audit: accessAudit,
    params: z.strictObject({ id: idOf('audit_log') }),
    reply: AuditEntry,
  }),
  search: endpoint({
    method: 'GET',
    path: '/audit-logs/search',
    summary: 'Search audit entries by any of their texts',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query: AuditQuery.extend({ q: text(255, 1).describe('What to look for').meta({ flag: 'text' }) }),
    reply: z.object({ data: z.array(AuditEntry), query: z.string(), pagination }),
    errors: ['org_access_denied'],
  }),
  heads: endpoint({
    method: 'GET',
    path: '/audit-logs/chains',
    summary: 'List the audit chains you can read, with the newest entry of each',
    tag,
    access: auditReadAccess,
    readQuery: true,
    reply: z.object({
      data: z.array(
        z.object({
          orgId: idOf('organization').nullable().describe('null for the system chain'),
          name: z.string(),
          slug: z
            .string()
            .nullable()
            .describe('null for the system chain, and where the organization is not known any more'),
          deletedAt: instant
            .nullable()
            .describe(
              'When the organization was deleted; its chain stays until retention removes its entries',
            ),
          seq: z.int(),
          checksum: z.string(),
        }),
      ),
    }),
  }),
  chain: endpoint({
    method: 'GET',
    path: '/audit-logs/chain',
    summary: 'Stream the chain of an organization, oldest first, to verify it',
    tag,
    access: auditReadAccess,
    audit: exportAudit,
    query: z.strictObject({ orgId: chainOrgId }),
    reply: z.string(),
    streams: ['application/x-ndjson'],
    errors: ['org_access_denied'],
  }),
}

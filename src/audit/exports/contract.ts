import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { flag } from '../../core/page.ts'
import { text } from '../../core/schema.ts'
import { damage, exportAudit, orgId, tag, textFilters, timeRange } from '../contract.ts'

/** Most entries in one export. */
export const maxExportEntries = 10_000

const exportFormats = ['csv', 'json', 'ndjson'] as const
export type ExportFormat = (typeof exportFormats)[number]

const ExportedEntry = z
  .object({
    id: z.string(),
    timestamp: z.string(),
    actorId: z.string(),
    actorName: z.string(),
    actorEmail: z.string().nullable(),
    action: z.string(),
    resourceType: z.string(),
    resourceId: z.string().nullable(),
    resourceName: z.string().nullable(),
    category: z.string(),
    result: z.string(),
    ipAddress: z.string().nullable(),
    userAgent: z.string().nullable(),
    details: z.record(z.string(), z.unknown()),
    damage,
  })
  .partial()
  .meta({ id: 'ExportedAuditEntry' })

export const exportColumns = ExportedEntry.keyof().options
export type ExportColumn = (typeof exportColumns)[number]

const exports = userAccess({ permission: 'audit:export' })

const cursor = z.string().max(1024).optional().describe('Where the export before ended (its nextCursor)')

const reply = z.object({
  data: z.array(ExportedEntry),
  total: z.int().describe('Entries in this export'),
  truncated: z.boolean().describe(`There are more than the ${maxExportEntries} an export holds`),
  nextCursor: z.string().nullable().describe('Where the next export begins; null when there is none'),
})

/** A comma-separated list of columns, such as `id,action`. */
const columnList = text(1000)
  .transform((names) => names.split(',').flatMap((name) => name.trim() || []))
  .pipe(z.array(z.enum(exportColumns)))
  .optional()
  .describe(`Columns, of ${exportColumns.join(',')}`)

export const auditExports = {
  download: endpoint({
    method: 'GET',
    path: '/audit-logs/export',
    summary: 'Export audit entries, newest first, as CSV by default; at most 10,000 at a time',
    tag,
    access: exports,
    readQuery: true,
    audit: exportAudit,
    query: z.strictObject({
      format: z.enum(exportFormats).default('csv'),
      orgId,
      ...textFilters,
      ...timeRange,
      columns: columnList,
      includeDetails: flag.optional().describe('false leaves the details out'),
      cursor,
    }),
    reply,
    streams: ['text/csv; charset=utf-8', 'application/json', 'application/x-ndjson'],
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/audit-logs/export',
    idempotencyKey: { refused: 'reading' },
    summary: 'Export audit entries, newest first, as JSON by default; at most 10,000 at a time',
    tag,
    access: exports,
    readQuery: true,
    audit: { action: exportAudit.action, resource: exportAudit.resource },
    query: z.strictObject({ orgId }),
    body: z
      .strictObject({
        format: z.enum(exportFormats).default('json'),
        filters: z.strictObject(textFilters).optional(),
        dateRange: z.strictObject(timeRange).optional(),
        columns: z.array(z.enum(exportColumns)).max(exportColumns.length).optional(),
        includeDetails: z.boolean().default(true),
        cursor,
      })
      .prefault({}),
    example: { format: 'json', filters: { action: 'user.login' }, columns: ['timestamp', 'actorEmail'] },
    reply,
    streams: ['application/json', 'text/csv; charset=utf-8', 'application/x-ndjson'],
    errors: ['org_access_denied'],
  }),
}

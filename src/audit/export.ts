import { z } from 'zod'
import type { AuditEntry } from './contract.ts'

/** Most entries in one export (spec, "Limits"). */
export const exportCap = 10_000

export const exportFormats = ['csv', 'json', 'ndjson'] as const
export type ExportFormat = (typeof exportFormats)[number]

const cells = {
  id: (it: AuditEntry) => it.id,
  timestamp: (it: AuditEntry) => it.timestamp,
  actorId: (it: AuditEntry) => it.user.id,
  actorName: (it: AuditEntry) => it.user.name,
  actorEmail: (it: AuditEntry) => it.user.email,
  action: (it: AuditEntry) => it.action,
  resourceType: (it: AuditEntry) => it.resource.type,
  resourceId: (it: AuditEntry) => it.resource.id,
  resourceName: (it: AuditEntry) => it.resource.name,
  category: (it: AuditEntry) => it.category,
  result: (it: AuditEntry) => it.result,
  ipAddress: (it: AuditEntry) => it.ipAddress,
  userAgent: (it: AuditEntry) => it.userAgent,
  details: (it: AuditEntry) => it.details,
}

export type ExportColumn = keyof typeof cells
export const exportColumns = Object.keys(cells) as [ExportColumn, ...ExportColumn[]]

export const ExportedEntry = z
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
  })
  .partial()
  .meta({ id: 'ExportedAuditEntry' })

export function columnsAsked(columns: readonly ExportColumn[] | undefined, details: boolean): ExportColumn[] {
  const asked = columns === undefined || columns.length === 0 ? exportColumns : columns
  return [...new Set(asked)].filter((column) => details || column !== 'details')
}

type Frame = {
  begin: string
  line(entry: AuditEntry, at: number): string
  end: string
}

type Cut = { total: number; truncated: boolean; nextCursor: string | null }

const recordOf = (entry: AuditEntry, columns: ExportColumn[]): string =>
  JSON.stringify(Object.fromEntries(columns.map((column) => [column, cells[column](entry)])))

/** How an export is written: what comes first, each entry, what comes last. */
export function frameOf(format: ExportFormat, columns: ExportColumn[], cut: Cut): Frame {
  if (format === 'ndjson') return { begin: '', line: (entry) => `${recordOf(entry, columns)}\n`, end: '' }
  if (format === 'csv') {
    const line = (entry: AuditEntry) => csvLine(columns.map((column) => cells[column](entry)))
    return { begin: csvLine(columns), line, end: '' }
  }
  const line = (entry: AuditEntry, at: number) => (at === 0 ? '' : ',') + recordOf(entry, columns)
  return { begin: '{"data":[', line, end: `],${JSON.stringify(cut).slice(1)}\n` }
}

const csvLine = (values: unknown[]): string => `${values.map(csvCell).join(',')}\r\n`

/** RFC 4180; what a spreadsheet would run as a formula begins with an apostrophe instead. */
export function csvCell(value: unknown): string {
  if (value === null || value === undefined) return ''
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  const harmless = /^[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}

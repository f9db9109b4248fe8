import type { AuditEntry } from '../contract.ts'
import { type ExportColumn, type ExportFormat, exportColumns } from './contract.ts'

const cells: Record<ExportColumn, (entry: AuditEntry) => unknown> = {
  id: (it) => it.id,
  timestamp: (it) => it.timestamp,
  actorId: (it) => it.user.id,
  actorName: (it) => it.user.name,
  actorEmail: (it) => it.user.email,
  action: (it) => it.action,
  resourceType: (it) => it.resource.type,
  resourceId: (it) => it.resource.id,
  resourceName: (it) => it.resource.name,
  category: (it) => it.category,
  result: (it) => it.result,
  ipAddress: (it) => it.ipAddress,
  userAgent: (it) => it.userAgent,
  details: (it) => it.details,
  damage: (it) => it.damage,
}

export function selectColumns(
  columns: readonly ExportColumn[] | undefined,
  details: boolean,
): ExportColumn[] {
  const requested = columns === undefined || columns.length === 0 ? exportColumns : columns
  return [...new Set(requested)].filter((column) => details || column !== 'details')
}

type ExportWriter = {
  begin: string
  line(entry: AuditEntry, at: number): string
  end: string
}

type ExportSummary = { total: number; truncated: boolean; nextCursor: string | null }

const jsonRecord = (entry: AuditEntry, columns: ExportColumn[]): string =>
  JSON.stringify(Object.fromEntries(columns.map((column) => [column, cells[column](entry)])))

/** Text of an export: the beginning, each entry, the end. */
export function exportWriter(
  format: ExportFormat,
  columns: ExportColumn[],
  cut: ExportSummary,
): ExportWriter {
  if (format === 'ndjson') return { begin: '', line: (entry) => `${jsonRecord(entry, columns)}\n`, end: '' }
  if (format === 'csv') {
    const line = (entry: AuditEntry) => csvLine(columns.map((column) => cells[column](entry)))
    return { begin: csvLine(columns), line, end: '' }
  }
  const line = (entry: AuditEntry, at: number) => (at === 0 ? '' : ',') + jsonRecord(entry, columns)
  return { begin: '{"data":[', line, end: `],${JSON.stringify(cut).slice(1)}\n` }
}

const csvLine = (values: unknown[]): string => `${values.map(csvCell).join(',')}\r\n`

/** RFC 4180. A value that a spreadsheet would run as a formula is prefixed with an apostrophe. */
export function csvCell(value: unknown): string {
  if (value === null || value === undefined) return ''
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  const harmless = /^[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}

import type { z } from 'zod'
import { escapeControlsIn, escapeToOneLine, hasNoControls } from '../core/terminal.ts'
import {
  type Column,
  formatValue,
  parseColumns,
  recordColumns,
  schemaColumns,
  selectColumns,
  valueAt,
} from './columns.ts'
import { displayOf } from './display.ts'
import { usageError } from './exit-codes.ts'
import type { OutputFormat } from './flags.ts'
import { clearStatus, printNote } from './stderr-notes.ts'
import { writeStdout } from './stdout.ts'

export { printNote, writeStdout }

export type OutputFlags = {
  json?: boolean | undefined
  csv?: boolean | undefined
  quiet?: boolean | undefined
  output?: string | undefined
  columns?: string | undefined
  jq?: string | undefined
  'no-header'?: boolean | undefined
  utc?: boolean | undefined
}

export type Output = {
  /** `plain` is for a person: a table, sections or a sentence. */
  format: OutputFormat | 'plain'
  columns: string | undefined
  /** A jq program to apply to the JSON. */
  jq: string | undefined
  header: boolean
  /** Exact times, also on a terminal. */
  utc: boolean
}

/** The output that the flags request; two formats are a usage error. */
export function parseOutputFlags(flags: OutputFlags): Output {
  const asked = [
    ...(flags.json ? [['--json', 'json']] : []),
    ...(flags.jq === undefined ? [] : [['--jq', 'json']]),
    ...(flags.csv ? [['--csv', 'csv']] : []),
    ...(flags.quiet ? [['--quiet', 'id']] : []),
    ...(flags.output ? [[`--output ${flags.output}`, flags.output]] : []),
  ] as [string, OutputFormat][]
  const [one, ...others] = asked
  const other = others.find(([, format]) => format !== one![1])
  if (one && other) throw usageError(`${one[0]} and ${other[0]} cannot be used together`)
  const format = one?.[1] ?? 'plain'
  if (flags.columns !== undefined && !['plain', 'table', 'csv', 'json', 'ndjson', 'yaml'].includes(format)) {
    throw usageError(`--columns cannot be used with ${one![0]}`)
  }
  return {
    format,
    columns: flags.columns,
    jq: flags.jq,
    header: !flags['no-header'],
    utc: flags.utc === true,
  }
}

/** Writes a text for people: on a terminal in a pager where it is longer than the screen. */
async function writeLong(text: string): Promise<void> {
  if (!process.stdout.isTTY) return writeStdout(text)
  clearStatus()
  const { writePaged } = await import('./pager.ts')
  await writePaged(text)
}

export const toJson = (value: unknown, indent?: number): string => JSON.stringify(value, null, indent)

/** Escapes a text to one line on a terminal; elsewhere it is unchanged. */
export const lineEscaper = async (): Promise<(text: string) => string> =>
  process.stdout.isTTY ? escapeToOneLine : (text) => text

const csvCell = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
const csvLine = (cells: string[]): string => `${cells.map(csvCell).join(',')}\n`

const pick = (record: unknown, columns: Column[]): Record<string, unknown> =>
  Object.fromEntries(columns.map((column) => [column, valueAt(record, column) ?? null]))

const idPaths: Column[] = ['id', 'user.id', 'deviceId', 'number', 'orgId', 'version']

/** Checks before a request is sent that its answer can be printed as requested. */
export function checkPrintable(output: Output, schema: z.ZodType): void {
  if (output.columns !== undefined) parseColumns(output.columns, schema)
  const leaves = schemaColumns(schema)
  if (output.format === 'id' && !idPaths.some((path) => leaves.includes(path))) {
    throw usageError('This reply has no id to print', 'use --json')
  }
}

/** The id a record goes by. */
export function recordId(record: unknown): string | undefined {
  for (const path of idPaths) {
    const id = valueAt(record, path)
    if (typeof id === 'string' || typeof id === 'number') return String(id)
  }
  return undefined
}

/**
 * Prints one record. Without a schema its columns are its fields. `human` is used when no format was
 * requested; its texts are escaped to one line each, since a second line could pass for the program's.
 */
export async function printRecord<T>(
  output: Output,
  record: T,
  schema: z.ZodType | undefined,
  human?: (record: T) => string | Promise<string>,
): Promise<void> {
  const known = schema ? schemaColumns(schema) : recordColumns(record)
  const columns = output.columns === undefined ? undefined : selectColumns(output, known)
  const value = columns ? pick(record, columns) : record
  switch (output.format) {
    case 'json':
      return writeJson(output, value)
    case 'ndjson':
      return writeStdout(`${toJson(value)}\n`)
    case 'yaml':
      return writeStdout(await toYaml(value))
    case 'id':
      return writeStdout(`${(await lineEscaper())(recordId(record) ?? '')}\n`)
    case 'csv':
    case 'table':
      return printRows(output, [record], columns ?? known)
    default: {
      if (columns) return printRows(output, [record], columns)
      if (human) return writeStdout(await human(escapeControlsIn(record, escapeToOneLine)))
      const { renderRecord } = await import('./card.ts')
      return writeStdout(renderRecord(record as Record<string, unknown>, displayOf(process.stdout, output)))
    }
  }
}

async function printRows(output: Output, rows: unknown[], columns: Column[]): Promise<void> {
  const printer = rowPrinter(output, columns)
  await printer.rows(rows)
  await printer.end()
}

/** Indented JSON, or the output of the `--jq` program with strings unquoted, like `jq -r`. */
export async function writeJson({ jq }: Output, value: unknown): Promise<void> {
  if (jq === undefined) return writeStdout(`${toJson(value, 2)}\n`)
  const { raw } = await import('jq-wasm')
  const { stdout, stderr, exitCode } = await raw(JSON.parse(JSON.stringify(value)), jq, ['-r'])
  if (exitCode !== 0) throw usageError(`--jq: ${stderr.trim().replace(/^jq: (error: )?/, '')}`)
  await writeStdout(stdout === '' || stdout.endsWith('\n') ? stdout : `${stdout}\n`)
}

async function toYaml(value: unknown): Promise<string> {
  const { Document, visit } = await import('yaml')
  const document = new Document(value)
  // As a string in quotes it stays YAML where a terminal shows it with escapes.
  visit(document, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value === 'string' && !hasNoControls(scalar.value)) scalar.type = 'QUOTE_DOUBLE'
    },
  })
  return document.toString()
}

/** Which columns a terminal has no room for, and how to see them. */
function hiddenNote(columns: Column[], hidden: Column[], width: number, named: boolean): string {
  const shown = columns.filter((column) => !hidden.includes(column))
  const first = shown.find((column) => column !== 'id') ?? shown[0]!
  const chosen = [...new Set([first, ...hidden])].join(',')
  const how = named ? 'in a pipe' : `with --columns ${chosen}`
  const they = hidden.length === 1 ? 'It is' : 'They are'
  return `Not shown at ${width} columns: ${hidden.join(', ')}. ${they} on a wider terminal, or ${how}`
}

/** What a table on a terminal has to know. */
type TerminalTable = {
  /** Columns that are left out first. */
  secondary?: readonly Column[] | undefined
  /** Whether the rows are all records that an id could mean. */
  hasAllIds?: () => Promise<boolean>
}

export type RowPrinter = {
  rows(page: unknown[]): Promise<void>
  /** `whole` builds the complete reply, for the formats that print it. */
  end(whole?: (rows: unknown[]) => unknown, table?: TerminalTable): Promise<void>
}

/**
 * Prints rows as they arrive. NDJSON, CSV and ids buffer nothing; a table and a JSON document need all
 * their rows first.
 */
export function rowPrinter(output: Output, columns: Column[]): RowPrinter {
  const kept: unknown[] = []
  let begun = false
  const named = output.columns !== undefined
  return {
    async rows(page) {
      switch (output.format) {
        case 'ndjson':
          return writeStdout(page.map((row) => `${toJson(named ? pick(row, columns) : row)}\n`).join(''))
        case 'id': {
          const line = await lineEscaper()
          return writeStdout(page.map((row) => `${line(recordId(row) ?? '-')}\n`).join(''))
        }
        case 'csv': {
          const cell = await lineEscaper()
          const head = begun || !output.header ? '' : csvLine(columns.map(cell))
          begun = true
          const line = (row: unknown) =>
            csvLine(columns.map((column) => cell(formatValue(valueAt(row, column)))))
          return writeStdout(head + page.map(line).join(''))
        }
        default:
          for (const row of page) kept.push(row)
      }
    },
    async end(whole = (rows) => ({ data: rows }), { secondary, hasAllIds }: TerminalTable = {}) {
      const rows =
        named && (output.format === 'json' || output.format === 'yaml')
          ? kept.map((row) => pick(row, columns))
          : kept
      if (output.format === 'json') return writeJson(output, whole(rows))
      if (output.format === 'yaml') return writeStdout(await toYaml(whole(rows)))
      if (output.format === 'csv' && !begun && output.header) return writeStdout(csvLine(columns))
      if (output.format !== 'plain' && output.format !== 'table') return
      if (kept.length === 0 && process.stdout.isTTY) return printNote('Nothing to show')
      const { renderTable } = await import('./table.ts')
      const display = displayOf(process.stdout, output)
      const { text, hidden } = renderTable(kept, columns, {
        ...display,
        header: output.header,
        isArranged: named,
        hasAllIds: display.width !== undefined && (await hasAllIds?.()) === true,
        ...(secondary && !named && { secondary }),
      })
      await writeLong(text)
      if (hidden.length > 0) printNote(hiddenNote(columns, hidden, display.width!, named))
    },
  }
}

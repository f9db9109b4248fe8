import type { z } from 'zod'
import { escapeControlsIn, hasNoControls } from '../core/terminal.ts'
import { asText, type Column, checkColumns, columnsAmong, leavesIn, leavesOf, valueAt } from './columns.ts'
import { usage } from './exit.ts'
import type { Format } from './flags.ts'
import { say } from './notes.ts'
import { styleFor } from './style.ts'

export { say }

export type OutputFlags = {
  json?: boolean | undefined
  csv?: boolean | undefined
  quiet?: boolean | undefined
  output?: string | undefined
  columns?: string | undefined
  jq?: string | undefined
  'no-header'?: boolean | undefined
}

export type Output = {
  /** `plain` is what a person reads: a table, sections or a sentence. */
  format: Format | 'plain'
  columns: string | undefined
  /** A jq program the JSON goes through. */
  jq: string | undefined
  header: boolean
}

/** What the flags ask for; two formats at once are a mistake. */
export function outputOf(flags: OutputFlags): Output {
  const asked = [
    ...(flags.json ? [['--json', 'json']] : []),
    ...(flags.jq === undefined ? [] : [['--jq', 'json']]),
    ...(flags.csv ? [['--csv', 'csv']] : []),
    ...(flags.quiet ? [['--quiet', 'id']] : []),
    ...(flags.output ? [[`--output ${flags.output}`, flags.output]] : []),
  ] as [string, Format][]
  const [one, ...others] = asked
  const other = others.find(([, format]) => format !== one![1])
  if (one && other) throw usage(`${one[0]} and ${other[0]} cannot be used together`)
  const format = one?.[1] ?? 'plain'
  if (flags.columns !== undefined && !['plain', 'table', 'csv', 'json', 'ndjson', 'yaml'].includes(format)) {
    throw usage(`--columns means nothing with ${one![0]}`)
  }
  return { format, columns: flags.columns, jq: flags.jq, header: !flags['no-header'] }
}

/** Writes to standard output, waiting when the reader is slower. */
export function write(text: string | Uint8Array): Promise<void> {
  if (text.length === 0) return Promise.resolve()
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => (error ? reject(error) : resolve()))
  })
}

export const asJson = (value: unknown, indent?: number): string => JSON.stringify(value, null, indent)

/** A text that stands for itself in its line: as it is, but on a terminal no line that it brings along. */
export const lineOf = async (): Promise<(text: string) => string> =>
  process.stdout.isTTY ? (await import('./table.ts')).escapeToOneLine : (text) => text

/** Where lines wrap; nothing else has an edge. */
const widthOfTerminal = (): number | undefined => (process.stdout.isTTY ? process.stdout.columns : undefined)

const csvCell = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
const csvLine = (cells: string[]): string => `${cells.map(csvCell).join(',')}\n`

const pick = (record: unknown, columns: Column[]): Record<string, unknown> =>
  Object.fromEntries(columns.map((column) => [column, valueAt(record, column) ?? null]))

const idPaths: Column[] = ['id', 'user.id', 'deviceId', 'number', 'orgId', 'version']

/** Finds out before a request is sent whether its answer can be printed as asked. */
export function checkPrintable(output: Output, schema: z.ZodType): void {
  if (output.columns !== undefined) checkColumns(output.columns, schema)
  const leaves = leavesOf(schema)
  if (output.format === 'id' && !idPaths.some((path) => leaves.includes(path))) {
    throw usage('This answer has no id to print', 'use --json')
  }
}

/** The id a record goes by. */
export function idOfRecord(record: unknown): string | undefined {
  for (const path of idPaths) {
    const id = valueAt(record, path)
    if (typeof id === 'string' || typeof id === 'number') return String(id)
  }
  return undefined
}

/**
 * Prints one record. Without a schema its columns are those it has. `human` takes over when nothing was asked
 * for; the texts it is given have one line each, since a second one could pass for the program's.
 */
export async function printRecord<T>(
  output: Output,
  record: T,
  schema: z.ZodType | undefined,
  human?: (record: T) => string | Promise<string>,
): Promise<void> {
  const known = schema ? leavesOf(schema) : leavesIn(record)
  const columns = output.columns === undefined ? undefined : columnsAmong(output, known)
  const value = columns ? pick(record, columns) : record
  switch (output.format) {
    case 'json':
      return writeJson(output, value)
    case 'ndjson':
      return write(`${asJson(value)}\n`)
    case 'yaml':
      return write(await asYaml(value))
    case 'id':
      return write(`${(await lineOf())(idOfRecord(record) ?? '')}\n`)
    case 'csv':
    case 'table':
      return printRows(output, [record], columns ?? known)
    default: {
      if (columns) return printRows(output, [record], columns)
      const { escapeToOneLine: printable, sections } = await import('./table.ts')
      if (human) return write(await human(escapeControlsIn(record, printable)))
      return write(
        await sections(record as Record<string, unknown>, styleFor(process.stdout), widthOfTerminal()),
      )
    }
  }
}

async function printRows(output: Output, rows: unknown[], columns: Column[]): Promise<void> {
  const printer = rowPrinter(output, columns)
  await printer.rows(rows)
  await printer.end()
}

/** Indented JSON, or what the jq program of `--jq` makes of it: strings as they are, like `jq -r`. */
export async function writeJson({ jq }: Output, value: unknown): Promise<void> {
  if (jq === undefined) return write(`${asJson(value, 2)}\n`)
  const { raw } = await import('jq-wasm')
  const { stdout, stderr, exitCode } = await raw(JSON.parse(JSON.stringify(value)), jq, ['-r'])
  if (exitCode !== 0) throw usage(`--jq: ${stderr.trim().replace(/^jq: (error: )?/, '')}`)
  await write(stdout === '' || stdout.endsWith('\n') ? stdout : `${stdout}\n`)
}

async function asYaml(value: unknown): Promise<string> {
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

export type RowPrinter = {
  rows(page: unknown[]): Promise<void>
  /** `whole` is the reply the rows came in, for the formats that print it. */
  end(whole?: (rows: unknown[]) => unknown): Promise<void>
}

/**
 * Prints rows as they come. NDJSON, CSV and ids keep nothing in memory; a table and a JSON document need all
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
          return write(page.map((row) => `${asJson(named ? pick(row, columns) : row)}\n`).join(''))
        case 'id': {
          const line = await lineOf()
          return write(page.map((row) => `${line(idOfRecord(row) ?? '-')}\n`).join(''))
        }
        case 'csv': {
          const head = begun || !output.header ? '' : csvLine(columns)
          begun = true
          const cell = await lineOf()
          const line = (row: unknown) => csvLine(columns.map((column) => cell(asText(valueAt(row, column)))))
          return write(head + page.map(line).join(''))
        }
        default:
          for (const row of page) kept.push(row)
      }
    },
    async end(whole = (rows) => ({ data: rows })) {
      const rows =
        named && (output.format === 'json' || output.format === 'yaml')
          ? kept.map((row) => pick(row, columns))
          : kept
      if (output.format === 'json') return writeJson(output, whole(rows))
      if (output.format === 'yaml') return write(await asYaml(whole(rows)))
      if (output.format === 'csv' && !begun && output.header) return write(csvLine(columns))
      if (output.format !== 'plain' && output.format !== 'table') return
      if (kept.length === 0 && process.stdout.isTTY) return say('Nothing to show')
      const { table } = await import('./table.ts')
      const style = styleFor(process.stdout)
      await write(await table(kept, columns, { header: output.header, style, width: widthOfTerminal() }))
    },
  }
}

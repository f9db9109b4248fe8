import { didYouMean } from '../core/suggest.ts'
import type { CommandContext } from './base.ts'
import { recordColumns, selectColumns } from './columns.ts'
import { printDryRun } from './dry-run.ts'
import { CliError, usageError } from './exit-codes.ts'
import { readJson } from './input.ts'
import { type Output, printRecord, recordId, rowPrinter, toJson, writeStdout } from './print.ts'
import { withSpinner } from './progress.ts'

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']

/** A request outside the derived commands. Prints the reply: JSON indented, anything else unchanged. */
export async function sendRawRequest(
  { client, output }: CommandContext,
  verb: string,
  address: string,
  flags: { data?: string | undefined; 'dry-run'?: unknown },
): Promise<void> {
  const method = verb.toUpperCase()
  if (!methods.includes(method))
    throw usageError(`"${verb}" is not a method`, didYouMean(method, methods) ?? methods.join(', '))
  if (!address.startsWith('/')) throw usageError(`The path begins with /: /${address}`)
  const path = address.replace(/^\/api\/v1(?=\/|$)/, '') || '/'
  const body = flags.data === undefined ? undefined : await readJson(flags.data, '--data')
  const request = { method, url: `${client.url}/api/v1${path}`, ...(body !== undefined && { body }) }
  if (flags['dry-run'] && method !== 'GET') return printDryRun(output, request)
  const sent = body === undefined ? {} : { body: JSON.stringify(body) }
  const { text, headers } = await withSpinner('Waiting for the service', client.raw(method, path, sent))
  await printReply(output, text, headers['content-type'] ?? '')
}

/** A list is printed as rows where rows are asked for. */
async function printReply(output: Output, text: string, type: string): Promise<void> {
  const isPlain = output.format === 'plain' && output.columns === undefined
  const reply = isPlain && type.includes('ndjson') ? undefined : parsed(text, type)
  if (reply === undefined) {
    if (isPlain || text === '') return writeStdout(text)
    throw new CliError(`The reply is not JSON: ${type || 'no content type'}`, {
      hint: 'without output flags it is printed as it is',
    })
  }
  if (isPlain) return writeStdout(`${toJson(reply, 2)}\n`)
  const rows = rowsOf(reply)
  const isWhole = output.columns === undefined && ['json', 'yaml'].includes(output.format)
  if (rows === undefined || isWhole) {
    if (output.format === 'id' && recordId(reply) === undefined)
      throw usageError('This reply has no id to print', 'use --json')
    return printRecord(output, reply, undefined)
  }
  const known = [...new Set(rows.flatMap((row) => recordColumns(row)))]
  // An empty list does not tell its columns.
  const columns = rows.length === 0 ? (output.columns?.split(',') ?? []) : selectColumns(output, known)
  const printer = rowPrinter(output, columns)
  await printer.rows(rows)
  await printer.end()
}

/** undefined for what is not JSON; NDJSON is a list. */
function parsed(text: string, type: string): unknown {
  try {
    if (type.includes('ndjson')) {
      const lines = text.split('\n').filter((line) => line !== '')
      return lines.map((line) => JSON.parse(line) as unknown)
    }
    return type.includes('json') ? (JSON.parse(text) as unknown) : undefined
  } catch {
    // The reply is printed as it is.
    return undefined
  }
}

function rowsOf(reply: unknown): unknown[] | undefined {
  if (Array.isArray(reply)) return reply
  const data = (reply as { data?: unknown } | null)?.data
  return Array.isArray(data) ? data : undefined
}

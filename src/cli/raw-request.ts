import { didYouMean } from '../core/suggest.ts'
import type { CommandContext } from './base.ts'
import { usageError } from './exit-codes.ts'
import { readJson } from './input.ts'
import { printNote, toJson, writeStdout } from './print.ts'
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
  const data = flags.data === undefined ? undefined : await readJson(flags.data, '--data')
  if (flags['dry-run'] && method !== 'GET') {
    printNote('Dry run: nothing was sent')
    return writeStdout(
      `${method} ${client.url}/api/v1${path}\n${data === undefined ? '' : `${toJson(data, 2)}\n`}`,
    )
  }
  const body = data === undefined ? {} : { body: JSON.stringify(data) }
  const reply = await withSpinner('Waiting for the service', client.raw(method, path, body))
  await writeStdout(formatBody(reply.text, reply.headers['content-type'], output.format))
}

function formatBody(text: string, type: string | undefined, format: string): string {
  if (!type?.includes('json') || type.includes('ndjson')) return text
  try {
    return `${toJson(JSON.parse(text), format === 'ndjson' ? undefined : 2)}\n`
  } catch {
    return text
  }
}

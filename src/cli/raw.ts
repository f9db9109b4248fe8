import { didYouMean } from '../core/suggest.ts'
import type { Session } from './base.ts'
import { usage } from './exit.ts'
import { jsonFrom } from './input.ts'
import { asJson, say, write } from './print.ts'
import { waiting } from './progress.ts'

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']

/** A request outside the derived commands. Prints the answer: JSON indented, anything else as it came. */
export async function rawCall(
  { client, output }: Session,
  verb: string,
  address: string,
  flags: { data?: string | undefined; 'dry-run'?: unknown },
): Promise<void> {
  const method = verb.toUpperCase()
  if (!methods.includes(method))
    throw usage(`"${verb}" is not a method`, didYouMean(method, methods) ?? methods.join(', '))
  if (!address.startsWith('/')) throw usage(`The path begins with /: /${address}`)
  const path = address.replace(/^\/api\/v1(?=\/|$)/, '') || '/'
  const data = flags.data === undefined ? undefined : await jsonFrom(flags.data, '--data')
  if (flags['dry-run'] && method !== 'GET') {
    say('Dry run: nothing was sent')
    return write(`${method} ${client.url}/api/v1${path}\n${data === undefined ? '' : `${asJson(data, 2)}\n`}`)
  }
  const body = data === undefined ? {} : { body: JSON.stringify(data) }
  const reply = await waiting('Waiting for the service', client.raw(method, path, body))
  await write(rendered(reply.text, reply.headers['content-type'], output.format))
}

function rendered(text: string, type: string | undefined, format: string): string {
  if (!type?.includes('json') || type.includes('ndjson')) return text
  try {
    return `${asJson(JSON.parse(text), format === 'ndjson' ? undefined : 2)}\n`
  } catch {
    return text
  }
}

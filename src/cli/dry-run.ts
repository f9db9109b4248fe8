import { pathOf, type RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import { type Effect, type Ends, effectOf, formatEffect } from './effect.ts'
import { maskSecrets } from './input.ts'
import { type Output, printNote, toJson, writeJson, writeStdout } from './print.ts'

type Request = { method: string; url: string; body?: unknown }

/** The request that would be sent, with secrets masked, and what it would do. Names are resolved; nothing is changed. */
export async function dryRun(
  session: CommandContext,
  entry: Endpoint,
  ends: Ends | undefined,
  input: RawInput,
): Promise<void> {
  const { body } = maskSecrets(entry, input)
  const url = `${session.client.url}/api/v1${pathOf(entry, input)}`
  const effect = await effectOf(session, entry, ends, input)
  const request = { method: entry.method, url, ...(body !== undefined && { body }) }
  const text = formatEffect(effect, entry.summary)
  await printDryRun(session.output, request, { text, ...(effect && { data: effect }) })
}

export async function printDryRun(
  output: Output,
  request: Request,
  effect?: { text: string; data?: Effect },
): Promise<void> {
  const whole = { dryRun: true, request, ...(effect?.data && { effect: effect.data }) }
  if (output.format === 'json') return writeJson(output, whole)
  if (output.format === 'ndjson') return writeStdout(`${toJson(whole)}\n`)
  printNote('Dry run: nothing was sent')
  if (effect) printNote(effect.text)
  const { method, url, body } = request
  await writeStdout(`${method} ${url}\n${body === undefined ? '' : `${toJson(body, 2)}\n`}`)
}

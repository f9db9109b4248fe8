import { ApiError, pathOf, type RawInput } from '../core/client.ts'
import { type Endpoint, isMutation } from '../core/endpoint.ts'
import { askText, askYesNo } from './ask.ts'
import type { Session } from './base.ts'
import { recordIn } from './columns.ts'
import { CliError, exits, Silent, usage } from './exit.ts'
import { fieldsOf } from './fields.ts'
import { everyRow } from './pages.ts'
import { asJson, checkPrintable, printRecord, say, write } from './print.ts'
import { waiting } from './progress.ts'
import type { Typed, View } from './view.ts'

type Reply = Record<string, unknown>

/** Shows, creates, changes or deletes one record. */
export async function act(
  session: Session,
  entry: Endpoint,
  view: View,
  build: () => Promise<RawInput>,
  typed: Typed & { id: string },
): Promise<void> {
  const { flags } = typed
  const { output } = session
  const dry = flags['dry-run'] === true
  if (!dry) checkPrintable(output, recordIn(entry.reply) ?? entry.reply)
  const outFile = flags['out-file'] as string | undefined
  if (view.secret && !dry) (await import('./minted.ts')).checkShown(output, view.secret, outFile)
  try {
    const input = await build()
    if (dry) return await dryRun(session, entry, input)
    if (entry.method === 'DELETE') await confirm(session, typed, view.warning)
    if (view.confirms) await agree(session, typed, view.confirms)
    if (flags['if-not-exists']) return await createOnce(session, entry, view, input, outFile)
    await perform(session, entry, view, input, outFile)
  } catch (error) {
    if (!flags['ignore-not-found'] || !isNotFound(error)) throw view.failed?.(error, typed) ?? error
    say(`Nothing to delete: ${(error as Error).message}`)
  }
}

const isNotFound = (error: unknown): boolean =>
  (error instanceof ApiError && error.status === 404) ||
  (error instanceof CliError && error.exit === exits.notFound)

async function perform(
  session: Session,
  entry: Endpoint,
  view: View,
  input: RawInput,
  outFile: string | undefined,
): Promise<void> {
  const { output } = session
  const client = entry.access.who === 'public' ? session.stranger : session.client
  const inParts = async ({ next, joined, progress }: NonNullable<View['inParts']>) => {
    const { bar } = await import('./progress.ts')
    const shown = bar(progress.what, progress.unit)
    try {
      let whole = (await client.request(entry, input)) as Reply
      for (let more = next(whole); more; more = next(whole)) {
        shown.done(progress.done(whole))
        const body = { ...(input.body as object), ...more }
        whole = joined(whole, (await client.request(entry, { ...input, body })) as Reply)
      }
      return whole
    } finally {
      shown.end()
    }
  }
  const send = async () => (await waiting('Waiting for the service', client.request(entry, input))) as Reply
  if (view.secret) {
    const { mint } = await import('./minted.ts')
    return mint(output, send, entry.reply, view.secret, outFile)
  }
  const reply = view.inParts ? await inParts(view.inParts) : await send()
  const { human } = view
  const message = isMutation(entry) && typeof reply.message === 'string' ? reply.message : undefined
  const raw = recordOf(entry, reply)
  const told = human
    ? (shown: Reply) => human(view.lined ? raw : shown)
    : message === undefined
      ? undefined
      : (shown: Reply) => `${String(shown.message)}\n`
  await print(session, entry, reply, told)
  if (typeof reply.warning === 'string') {
    say(`Warning: ${(await import('./table.ts')).escapeToOneLine(reply.warning)}`)
  }
  if (view.verdict?.(reply) === false) throw new Silent(exits.failure)
}

const recordOf = (entry: Endpoint, reply: Reply): Reply =>
  recordIn(entry.reply) ? (reply.data as Reply) : reply

/** A reply that has its record under `data` is printed whole where JSON was asked for, as the API answers. */
async function print(
  { output }: Session,
  entry: Endpoint,
  reply: Reply,
  human?: (shown: Reply) => string | Promise<string>,
): Promise<void> {
  const inner = recordIn(entry.reply)
  const isWhole = output.columns === undefined && ['json', 'ndjson', 'yaml'].includes(output.format)
  if (!inner || isWhole) return printRecord(output, reply, entry.reply, human)
  return printRecord(output, recordOf(entry, reply), inner, human)
}

async function createOnce(
  session: Session,
  entry: Endpoint,
  view: View,
  input: RawInput,
  outFile: string | undefined,
): Promise<void> {
  const found = await findExisting(session, view, input)
  if (found) return printFound(session, entry, view, found)
  try {
    await perform(session, entry, view, input, outFile)
  } catch (error) {
    // Someone else was faster between the look and the leap.
    const raced =
      error instanceof ApiError && error.status === 409 ? await findExisting(session, view, input) : undefined
    if (!raced) throw error
    await printFound(session, entry, view, raced)
  }
}

async function printFound(session: Session, entry: Endpoint, view: View, record: Reply): Promise<void> {
  const { output } = session
  say('It exists already: nothing was created')
  // Standard output is for the secret, and there is none: nothing else may end up where it is kept.
  if (view.secret && output.format === 'plain') {
    const { sections } = await import('./table.ts')
    for (const line of (await sections(record)).trimEnd().split('\n')) say(line)
    return
  }
  return print(session, entry, recordIn(entry.reply) ? { data: record } : record)
}

/** The record that has the slug, else the name or title, within the same parent. */
async function findExisting(
  { client }: Session,
  { existing }: View,
  { body }: RawInput,
): Promise<Reply | undefined> {
  if (!existing) return undefined
  const wanted = body as Reply
  const key = ['slug', 'name', 'title'].find((one) => typeof wanted[one] === 'string')
  if (key === undefined) return undefined
  const parents = (existing.within ?? []).filter((parent) => wanted[parent] !== undefined)
  const known = fieldsOf(existing.list).map((field) => field.key)
  const query = Object.fromEntries(
    parents.filter((one) => known.includes(one)).map((one) => [one, wanted[one]]),
  )
  for await (const row of everyRow(client, existing.list, { ...query, ...existing.query })) {
    const record = row as Reply
    if (record[key] === wanted[key] && parents.every((parent) => record[parent] === wanted[parent]))
      return record
  }
  return undefined
}

/** What would be sent, secrets masked. Names were looked up; nothing that changes anything was sent. */
async function dryRun({ client, output }: Session, entry: Endpoint, input: RawInput): Promise<void> {
  const { masked } = await import('./input.ts')
  const { body } = masked(entry, input)
  const url = `${client.url}/api/v1${pathOf(entry, input)}`
  const request = { method: entry.method, url, ...(body !== undefined && { body }) }
  if (output.format === 'json' || output.format === 'ndjson') {
    return write(`${asJson({ dryRun: true, request }, output.format === 'json' ? 2 : undefined)}\n`)
  }
  say('Dry run: nothing was sent')
  await write(`${request.method} ${url}\n${body === undefined ? '' : `${asJson(body, 2)}\n`}`)
}

/** The name is the one that was typed, so that what is confirmed is what was meant. */
async function confirm(
  { settings, attended }: Session,
  { flags, args, id }: Typed & { id: string },
  warning: string | undefined,
): Promise<void> {
  const { active, url } = settings
  say(`${active ? `Context ${active.name}, ` : ''}${url.value}`)
  if (flags.yes) return
  const name = String(Object.values(args)[0])
  if (!attended) {
    throw usage(
      'Missing --yes',
      `svc ${id.replaceAll(':', ' ')} ${quoted(name)} --yes ${warning ? 'goes on' : 'deletes'} without asking`,
    )
  }
  const typed = await askText(
    warning ? `${warning}. Type ${name} to go on:` : `This cannot be undone. Type ${name} to delete it:`,
  )
  if (typed === name) return
  throw new CliError(`Nothing was ${warning ? 'changed' : 'deleted'}`, { code: 'not_confirmed' })
}

async function agree(
  { settings, attended }: Session,
  { flags, id }: Typed & { id: string },
  question: string,
): Promise<void> {
  const { active, url } = settings
  say(`${active ? `Context ${active.name}, ` : ''}${url.value}`)
  if (flags.yes) return
  if (!attended) throw usage('Missing --yes', `svc ${id.replaceAll(':', ' ')} --yes goes on without asking`)
  if (await askYesNo(question)) return
  throw new CliError('Nothing was changed', { code: 'not_confirmed' })
}

const quoted = (word: string): string =>
  /^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`

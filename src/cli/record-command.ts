import { ApiError, pathOf, type RawInput } from '../core/client.ts'
import { type Endpoint, isMutation } from '../core/endpoint.ts'
import { askText, askYesNo } from './ask.ts'
import type { CommandContext } from './base.ts'
import { recordSchema } from './columns.ts'
import type { CommandView, ParsedInput } from './command-view.ts'
import { CliError, exitCodes, SilentExit, usageError } from './exit-codes.ts'
import { fieldsOf } from './fields.ts'
import { fetchAllRows } from './pages.ts'
import { checkPrintable, printNote, printRecord, toJson, writeStdout } from './print.ts'
import { withSpinner } from './progress.ts'

type Reply = Record<string, unknown>

/** Shows, creates, changes or deletes one record. */
export async function runRecordCommand(
  session: CommandContext,
  entry: Endpoint,
  view: CommandView,
  build: () => Promise<RawInput>,
  typed: ParsedInput & { id: string },
): Promise<void> {
  const { flags } = typed
  const { output } = session
  const dry = flags['dry-run'] === true
  if (!dry) checkPrintable(output, recordSchema(entry.reply) ?? entry.reply)
  const outFile = flags['out-file'] as string | undefined
  if (view.secret && !dry) (await import('./secret-output.ts')).checkSecretShown(output, view.secret, outFile)
  try {
    const input = await build()
    if (dry) return await dryRun(session, entry, input)
    if (entry.method === 'DELETE') await confirm(session, typed, view.warning)
    if (view.confirmation) await confirmQuestion(session, typed, view.confirmation)
    if (flags['if-not-exists']) return await createIfMissing(session, entry, view, input, outFile)
    await sendAndPrint(session, entry, view, input, outFile)
  } catch (error) {
    if (!flags['ignore-not-found'] || !isNotFound(error)) throw view.mapError?.(error, typed) ?? error
    printNote(`Nothing to delete: ${(error as Error).message}`)
  }
}

const isNotFound = (error: unknown): boolean =>
  (error instanceof ApiError && error.status === 404) ||
  (error instanceof CliError && error.exit === exitCodes.notFound)

async function sendAndPrint(
  session: CommandContext,
  entry: Endpoint,
  view: CommandView,
  input: RawInput,
  outFile: string | undefined,
): Promise<void> {
  const { output } = session
  const client = entry.access.who === 'public' ? session.anonymous : session.client
  const sendBatches = async ({ next, merge, progress }: NonNullable<CommandView['batches']>) => {
    const { progressBar } = await import('./progress.ts')
    const shown = progressBar(progress.what, progress.unit)
    try {
      let whole = (await client.request(entry, input)) as Reply
      for (let more = next(whole); more; more = next(whole)) {
        shown.done(progress.done(whole))
        const body = { ...(input.body as object), ...more }
        whole = merge(whole, (await client.request(entry, { ...input, body })) as Reply)
      }
      return whole
    } finally {
      shown.end()
    }
  }
  const send = async () =>
    (await withSpinner('Waiting for the service', client.request(entry, input))) as Reply
  if (view.secret) {
    const { printSecretOnce } = await import('./secret-output.ts')
    return printSecretOnce(output, send, entry.reply, view.secret, outFile)
  }
  const reply = view.batches ? await sendBatches(view.batches) : await send()
  const { format } = view
  const message = isMutation(entry) && typeof reply.message === 'string' ? reply.message : undefined
  const raw = recordOf(entry, reply)
  const told = format
    ? (shown: Reply) => format(view.multiline ? raw : shown)
    : message === undefined
      ? undefined
      : (shown: Reply) => `${String(shown.message)}\n`
  await print(session, entry, reply, told)
  if (typeof reply.warning === 'string') {
    printNote(`Warning: ${(await import('./table.ts')).escapeToOneLine(reply.warning)}`)
  }
  if (view.isSuccess?.(reply) === false) throw new SilentExit(exitCodes.failure)
}

const recordOf = (entry: Endpoint, reply: Reply): Reply =>
  recordSchema(entry.reply) ? (reply.data as Reply) : reply

/** A reply with its record under `data` is printed completely as JSON. */
async function print(
  { output }: CommandContext,
  entry: Endpoint,
  reply: Reply,
  format?: (shown: Reply) => string | Promise<string>,
): Promise<void> {
  const inner = recordSchema(entry.reply)
  const isWhole = output.columns === undefined && ['json', 'ndjson', 'yaml'].includes(output.format)
  if (!inner || isWhole) return printRecord(output, reply, entry.reply, format)
  return printRecord(output, recordOf(entry, reply), inner, format)
}

async function createIfMissing(
  session: CommandContext,
  entry: Endpoint,
  view: CommandView,
  input: RawInput,
  outFile: string | undefined,
): Promise<void> {
  const found = await findExisting(session, view, input)
  if (found) return printExisting(session, entry, view, found)
  try {
    await sendAndPrint(session, entry, view, input, outFile)
  } catch (error) {
    // Somebody else created it between the check and the request.
    const raced =
      error instanceof ApiError && error.status === 409 ? await findExisting(session, view, input) : undefined
    if (!raced) throw error
    await printExisting(session, entry, view, raced)
  }
}

async function printExisting(
  session: CommandContext,
  entry: Endpoint,
  view: CommandView,
  record: Reply,
): Promise<void> {
  const { output } = session
  printNote('It exists already: nothing was created')
  // Standard output is reserved for the secret, and there is none: nothing else may be stored as one.
  if (view.secret && output.format === 'plain') {
    const { renderRecord } = await import('./table.ts')
    for (const line of (await renderRecord(record)).trimEnd().split('\n')) printNote(line)
    return
  }
  return print(session, entry, recordSchema(entry.reply) ? { data: record } : record)
}

/** The record that has the slug, else the name or title, within the same parent. */
async function findExisting(
  { client }: CommandContext,
  { existing }: CommandView,
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
  for await (const row of fetchAllRows(client, existing.list, { ...query, ...existing.query })) {
    const record = row as Reply
    if (record[key] === wanted[key] && parents.every((parent) => record[parent] === wanted[parent]))
      return record
  }
  return undefined
}

/** The request that would be sent, with secrets masked. Names are resolved; nothing is changed. */
async function dryRun({ client, output }: CommandContext, entry: Endpoint, input: RawInput): Promise<void> {
  const { maskSecrets } = await import('./input.ts')
  const { body } = maskSecrets(entry, input)
  const url = `${client.url}/api/v1${pathOf(entry, input)}`
  const request = { method: entry.method, url, ...(body !== undefined && { body }) }
  if (output.format === 'json' || output.format === 'ndjson') {
    return writeStdout(`${toJson({ dryRun: true, request }, output.format === 'json' ? 2 : undefined)}\n`)
  }
  printNote('Dry run: nothing was sent')
  await writeStdout(`${request.method} ${url}\n${body === undefined ? '' : `${toJson(body, 2)}\n`}`)
}

/** The name to type is the one on the command line, so that the user confirms what they meant. */
async function confirm(
  { settings, interactive }: CommandContext,
  { flags, args, id }: ParsedInput & { id: string },
  warning: string | undefined,
): Promise<void> {
  const { active, url } = settings
  printNote(`${active ? `Context ${active.name}, ` : ''}${url.value}`)
  if (flags.yes) return
  const name = String(Object.values(args)[0])
  if (!interactive) {
    throw usageError(
      'Missing --yes',
      `svc ${id.replaceAll(':', ' ')} ${quoted(name)} --yes ${warning ? 'goes on' : 'deletes'} without asking`,
    )
  }
  const typed = await askText(
    warning ? `${warning}. Type ${name} to continue:` : `This cannot be undone. Type ${name} to delete it:`,
  )
  if (typed === name) return
  throw new CliError(`Nothing was ${warning ? 'changed' : 'deleted'}`, { code: 'not_confirmed' })
}

async function confirmQuestion(
  { settings, interactive }: CommandContext,
  { flags, id }: ParsedInput & { id: string },
  question: string,
): Promise<void> {
  const { active, url } = settings
  printNote(`${active ? `Context ${active.name}, ` : ''}${url.value}`)
  if (flags.yes) return
  if (!interactive)
    throw usageError('Missing --yes', `svc ${id.replaceAll(':', ' ')} --yes skips the confirmation`)
  if (await askYesNo(question)) return
  throw new CliError('Nothing was changed', { code: 'not_confirmed' })
}

const quoted = (word: string): string =>
  /^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`

import { ApiError, type RawInput } from '../core/client.ts'
import { type Endpoint, isMutation } from '../core/endpoint.ts'
import { escapeToOneLine } from '../core/terminal.ts'
import { askText, confirmOrThrow, printTarget } from './ask.ts'
import type { CommandContext } from './base.ts'
import { recordSchema } from './columns.ts'
import type { CommandView, ParsedInput } from './command-view.ts'
import { effectOf, formatEffect } from './effect.ts'
import { CliError, exitCodes, SilentExit, usageError } from './exit-codes.ts'
import { fieldsOf } from './fields.ts'
import { idBeginningOf } from './id-beginning.ts'
import { forgetNames } from './name-cache.ts'
import { fetchAllRows } from './pages.ts'
import { checkPrintable, printNote, printRecord } from './print.ts'
import { withSpinner } from './progress.ts'
import { shWord } from './shell-words.ts'

type Reply = Record<string, unknown>

/** Shows, creates, changes or deletes one record. */
export async function runRecordCommand(
  session: CommandContext,
  entry: Endpoint,
  declared: CommandView,
  build: () => Promise<RawInput>,
  typed: ParsedInput & { id: string },
): Promise<void> {
  const { flags } = typed
  const { output } = session
  const dry = flags['dry-run'] === true
  if (!dry) checkPrintable(output, recordSchema(entry.reply) ?? shownReply(entry, declared, flags))
  const outFile = flags['out-file'] as string | undefined
  const { secret } = declared
  if (secret && !declared.secretReplacedBy && !dry)
    (await import('./secret-output.ts')).checkSecretShown(output, secret, outFile)
  try {
    const input = await build()
    const view = isSecretGiven(declared, input) ? withoutSecret(declared, outFile) : declared
    if (dry) return await (await import('./dry-run.ts')).dryRun(session, entry, view.ends, input)
    if (entry.method === 'DELETE' && typed.each === undefined) {
      await confirm(session, typed, view.warning, async () => {
        const described = await describedById(session, entry, typed.args, input)
        const effect = formatEffect(await effectOf(session, entry, view.ends, input), entry.summary)
        return [...described, effect]
      })
    }
    if (view.confirmation) await confirmQuestion(session, typed, view.confirmation)
    if (flags['if-not-exists']) return await createIfMissing(session, entry, view, input, flags)
    await sendAndPrint(session, entry, view, input, { flags, each: typed.each })
  } catch (error) {
    if (!flags['ignore-not-found'] || !isNotFound(error)) throw declared.mapError?.(error, typed) ?? error
    printNote(`Nothing to delete: ${(error as Error).message}`)
  }
}

const isSecretGiven = ({ secret, secretReplacedBy }: CommandView, { body }: RawInput): boolean =>
  secret !== undefined && secretReplacedBy !== undefined && (body as Reply)[secret] !== undefined

function withoutSecret({ secret, ...view }: CommandView, outFile: string | undefined): CommandView {
  if (outFile === undefined) return view
  throw usageError(`--out-file takes a generated ${secret}`, `leave out --${secret} to have one generated`)
}

const isNotFound = (error: unknown): boolean =>
  (error instanceof ApiError && error.status === 404) ||
  (error instanceof CliError && error.exit === exitCodes.notFound)

async function sendAndPrint(
  session: CommandContext,
  entry: Endpoint,
  view: CommandView,
  input: RawInput,
  { flags, each }: { flags: ParsedInput['flags']; each?: string | undefined },
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
    const target = view.instructions && flags[view.instructions.flag]
    return printSecretOnce(output, send, shownReply(entry, view, flags), {
      key: view.secret,
      outFile: flags['out-file'] as string | undefined,
      another: view.secretReplacedBy,
      names: typedNames(session, flags, input),
      instructions: target ? await view.instructions?.prepare(session, String(target)) : undefined,
    })
  }
  const reply = view.batches ? await sendBatches(view.batches) : await send()
  if (changesTenantNames(entry)) forgetNames()
  const { format } = view
  const message = isMutation(entry) && typeof reply.message === 'string' ? reply.message : undefined
  const raw = recordOf(entry, reply)
  const formatter = format
    ? (shown: Reply) => format(view.multiline ? raw : shown)
    : message === undefined
      ? undefined
      : (shown: Reply) =>
          `${each === undefined ? '' : `${escapeToOneLine(each)}: `}${String(shown.message)}\n`
  await print(session, entry, reply, formatter)
  if (typeof reply.warning === 'string') {
    printNote(`Warning: ${escapeToOneLine(reply.warning)}`)
  }
  if (view.isSuccess?.(reply) === false) throw new SilentExit(exitCodes.failure)
}

/** How the caller has named the organization and the site of a record that they make. */
function typedNames({ settings }: CommandContext, flags: ParsedInput['flags'], { body }: RawInput) {
  const { orgId, siteId } = (body ?? {}) as Reply
  return {
    orgId: orgId === undefined ? undefined : settings.org.value,
    siteId: siteId === undefined ? undefined : (flags.site as string | undefined),
  }
}

const shownReply = (entry: Endpoint, { instructions }: CommandView, flags: ParsedInput['flags']) =>
  instructions && flags[instructions.flag] ? instructions.reply : entry.reply

/** Its ids may be kept by name. */
const changesTenantNames = ({ method, audit }: Endpoint): boolean =>
  method !== 'POST' &&
  audit !== undefined &&
  'resource' in audit &&
  ['organization', 'partner'].includes(audit.resource)

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
  flags: ParsedInput['flags'],
): Promise<void> {
  const found = await findExisting(session, view, input)
  if (found) return printExisting(session, entry, view, found)
  try {
    await sendAndPrint(session, entry, view, input, { flags })
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
    const { renderRecord } = await import('./card.ts')
    for (const line of renderRecord(record).trimEnd().split('\n')) printNote(line)
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
  const key = existing.by ?? ['slug', 'name', 'title'].find((one) => typeof wanted[one] === 'string')
  if (key === undefined) return undefined
  const parents = (existing.within ?? []).filter((parent) => wanted[parent] !== undefined)
  const known = fieldsOf(existing.list).map((field) => field.key)
  const query = Object.fromEntries(
    parents.filter((one) => known.includes(one)).map((one) => [one, wanted[one]]),
  )
  for await (const row of fetchAllRows(client, existing.list, { ...query, ...existing.query })) {
    const record = row as Reply
    const isSame =
      existing.by === 'email'
        ? String(record.email).toLowerCase() === String(wanted.email).toLowerCase()
        : record[key] === wanted[key]
    if (isSame && parents.every((parent) => record[parent] === wanted[parent])) return record
  }
  return undefined
}

/** Which record it is, for whoever has typed its id or the beginning of it. */
async function describedById(
  { client }: CommandContext,
  entry: Endpoint,
  args: ParsedInput['args'],
  { params = {} }: RawInput,
): Promise<string[]> {
  const [field] = fieldsOf(entry).filter(({ part, resource }) => part === 'params' && resource)
  const { isId, describeById } = await import('./resolve.ts')
  const given = String(Object.values(args)[0])
  if (!field?.resource || !(isId(given) || idBeginningOf(given))) return []
  const id = String(params[field.key])
  const described = await describeById(client, field.resource, id).catch((failure: unknown) => {
    // Who may delete a record need not be allowed to list it.
    if (failure instanceof ApiError) return undefined
    throw failure
  })
  return described === undefined ? [] : [`This is ${described}`]
}

/** The name to type is the one on the command line, so that the user confirms what they meant. */
async function confirm(
  { settings, interactive }: CommandContext,
  { flags, args, id }: ParsedInput & { id: string },
  warning: string | undefined,
  said: () => Promise<string[]>,
): Promise<void> {
  printTarget(settings)
  if (flags.yes) return
  const given = String(Object.values(args).at(-1))
  // The dots of a shortened id are on no keyboard.
  const cut = idBeginningOf(given)
  const name = cut?.isCut ? cut.start : given
  if (!interactive) {
    throw usageError(
      'Missing --yes',
      `svc ${id.replaceAll(':', ' ')} ${quoted(name)} --yes ${warning ? 'goes on' : 'deletes'} without asking`,
    )
  }
  for (const line of await said()) printNote(line)
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
  printTarget(settings)
  const hint = `svc ${id.replaceAll(':', ' ')} --yes skips the confirmation`
  await confirmOrThrow(question, { yes: flags.yes === true, interactive, hint })
}

const quoted = (word: string): string => (/^[\w./:@-]+$/.test(word) ? word : shWord(word))

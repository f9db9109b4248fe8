import type { Command } from '@oclif/core/command'
import { ApiError, pathOf, type RawInput } from '../core/client.ts'
import { changes, type Endpoint } from '../core/endpoint.ts'
import { askText } from './ask.ts'
import { ApiCommand, type Session } from './base.ts'
import { type Column, checkColumns, leavesOf, rowsOf, valueAt } from './columns.ts'
import { CliError, exits, usage } from './exit.ts'
import { type Field, fieldsOf } from './fields.ts'
import {
  type ArgSet,
  argNames,
  argOf,
  connectionFlags,
  createFlags,
  deleteFlags,
  type FlagSet,
  flagFor,
  listFlags,
  mutationFlags,
  outputFlags,
  secretFlags,
} from './flags.ts'
import { inputOf, masked } from './input.ts'
import { checkShown, printMinted, secretFile } from './minted.ts'
import { everyRow, type ListReply, type PageOptions, pages } from './pages.ts'
import { asJson, printRecord, rowPrinter, say, write } from './print.ts'
import { waiting } from './progress.ts'

/** How an endpoint looks as a command; everything else comes from its contract entry. */
export type View = {
  examples: string[]
  description?: string
  /** Columns of the table a person sees. */
  columns?: Column[]
  /** Fields of the query or body that are arguments, in order. */
  args?: string[]
  /** Reply field that is shown once. */
  secret?: string
  /** Where a record that is to be created may exist already: the list, and the fields that say in what. */
  existing?: { list: Endpoint; within?: string[] }
}

type Said = { flags: Record<string, unknown>; args: Record<string, unknown> }

/** A command derived from a contract entry. */
export function command(entry: Endpoint, view: View): Command.Class {
  const listed = rowsOf(entry.reply)
  const fields = fieldsOf(entry).filter(({ key }) => !(listed && (key === 'page' || key === 'limit')))
  const isArg = (field: Field) => field.part === 'params' || view.args?.includes(field.key)
  const argFields = [
    ...fields.filter(({ part }) => part === 'params'),
    ...(view.args ?? []).map((key) => fields.find((field) => field.key === key)!),
  ]

  return class extends ApiCommand {
    static override summary = entry.summary
    static override description = view.description ?? ''
    static override examples = view.examples
    static override args: ArgSet = Object.fromEntries(argFields.map((field) => [argName(field), argOf(field)]))
    static override flags: FlagSet = flagsOf(entry, view, fields.filter((field) => !isArg(field)))

    async run(): Promise<void> {
      const said = (await this.parse(this.ctor)) as unknown as Said
      const session = this.open(said.flags)
      const input = await attempt(said, () =>
        inputOf(session, fields, (field) => {
          if (isArg(field)) return said.args[argName(field)]
          return field.key === 'orgId' ? session.settings.org.value || undefined : said.flags[field.flag]
        }),
      )
      if (input === undefined) return
      if (listed) return list(session, entry, view, listed, input, said.flags as PageOptions)
      if (said.flags['dry-run']) return dryRun(session, entry, input)
      if (entry.method === 'DELETE') await confirm(session, said, this.id)
      await attempt(said, () => perform(session, entry, view, input, said))
    }
  }
}

const argName = (field: Field): string =>
  field.key === 'id' && field.resource ? argNames[field.resource] : field.key

function flagsOf(entry: Endpoint, view: View, fields: Field[]): FlagSet {
  const flags: FlagSet = {}
  for (const field of fields) {
    if (field.key !== 'orgId' && (field.flag in outputFlags || field.flag in connectionFlags)) {
      throw new Error(`${entry.path}: the field ${field.key} needs another flag name than --${field.flag}`)
    }
    flags[field.flag] = field.key === 'orgId' ? { ...flagFor(field), helpGroup: undefined } as never : flagFor(field)
  }
  return {
    ...flags,
    ...(rowsOf(entry.reply) && listFlags),
    ...(changes(entry) && mutationFlags),
    ...(entry.method === 'DELETE' && deleteFlags),
    ...(view.existing && createFlags),
    ...(view.secret && secretFlags),
  }
}

/** `undefined` when the record is not there and that is all right. */
async function attempt<T>({ flags }: Said, work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    const gone =
      (error instanceof ApiError && error.status === 404) || (error instanceof CliError && error.exit === exits.notFound)
    if (!gone || !flags['ignore-not-found']) throw error
    say(`Nothing to delete: ${error.message}`)
    return undefined
  }
}

async function perform(session: Session, entry: Endpoint, view: View, input: RawInput, { flags }: Said): Promise<void> {
  const { client, output } = session
  const outFile = flags['out-file'] as string | undefined
  if (view.secret) checkShown(output, view.secret, outFile)
  if (flags['if-not-exists'] && view.existing) {
    const found = await findExisting(session, view.existing, input)
    if (found) return printFound(session, entry, found)
  }
  const file = outFile === undefined ? undefined : secretFile(outFile)
  try {
    const reply = (await waiting('Waiting for the service', client.request(entry, input))) as Record<string, unknown>
    if (!view.secret) return await printReply(session, entry, reply)
    file?.keep(String(reply[view.secret]))
    await printMinted(output, reply, entry.reply, view.secret, outFile)
  } catch (error) {
    file?.discard()
    // Someone else was faster between the look and the leap.
    if (flags['if-not-exists'] && view.existing && error instanceof ApiError && error.status === 409) {
      const found = await findExisting(session, view.existing, input)
      if (found) return printFound(session, entry, found)
    }
    throw error
  }
}

function printReply({ output }: Session, entry: Endpoint, reply: Record<string, unknown>): Promise<void> {
  const sentence = entry.method !== 'GET' && typeof reply.message === 'string' ? reply.message : undefined
  return printRecord(output, reply, entry.reply, sentence === undefined ? undefined : () => `${sentence}\n`)
}

function printFound(session: Session, entry: Endpoint, record: Record<string, unknown>): Promise<void> {
  say('It exists already: nothing was created')
  return printRecord(session.output, record, entry.reply)
}

/** The record that has the slug, else the name, within the same parent. */
async function findExisting({ client }: Session, existing: NonNullable<View['existing']>, { body }: RawInput) {
  const wanted = body as Record<string, unknown>
  const key = typeof wanted.slug === 'string' ? 'slug' : 'name'
  const parents = (existing.within ?? []).filter((parent) => wanted[parent] !== undefined)
  const known = fieldsOf(existing.list).map((field) => field.key)
  const query = Object.fromEntries(parents.filter((one) => known.includes(one)).map((one) => [one, wanted[one]]))
  for await (const row of everyRow(client, existing.list, query)) {
    const record = row as Record<string, unknown>
    if (record[key] === wanted[key] && parents.every((parent) => record[parent] === wanted[parent])) return record
  }
  return undefined
}

async function list(
  session: Session,
  entry: Endpoint,
  view: View,
  listed: NonNullable<ReturnType<typeof rowsOf>>,
  input: RawInput,
  flags: PageOptions,
): Promise<void> {
  const { client, output } = session
  const every = leavesOf(listed.row)
  const usual = output.format === 'csv' ? every : (view.columns ?? every)
  const columns = output.columns === undefined ? usual : checkColumns(output.columns, listed.row)
  const printer = rowPrinter(output, columns)
  let last: ListReply = {}
  let shown = 0
  const walk = pages(client, entry, input.query ?? {}, flags)
  for (;;) {
    const step = await waiting('Waiting for the service', walk.next())
    if (step.done) break
    last = step.value.reply
    shown += step.value.rows.length
    await printer.rows(step.value.rows)
  }
  const { pagination } = last
  const walked = flags.all || (flags.limit ?? 0) > 100
  await printer.end((rows) => ({
    ...last,
    [listed.key]: rows,
    ...(pagination && walked && { pagination: { ...pagination, page: 1, limit: rows.length } }),
  }))
  if (pagination && pagination.total > shown && !walked && !['json', 'yaml'].includes(output.format)) {
    say(`${shown} of ${pagination.total} shown, page ${pagination.page}: --all shows every row`)
  }
}

/** What would be sent, secrets masked. Names were looked up; nothing that changes anything was sent. */
async function dryRun({ client, output }: Session, entry: Endpoint, input: RawInput): Promise<void> {
  const { body } = masked(entry, input)
  const request = { method: entry.method, url: `${client.url}/api/v1${pathOf(entry, input)}`, ...(body !== undefined && { body }) }
  if (output.format === 'json' || output.format === 'ndjson') {
    return write(`${asJson({ dryRun: true, request }, output.format === 'json' ? 2 : undefined)}\n`)
  }
  say('Dry run: nothing was sent')
  await write(`${request.method} ${request.url}\n${body === undefined ? '' : `${asJson(body, 2)}\n`}`)
}

async function confirm({ settings, attended }: Session, { flags, args }: Said, id: string | undefined): Promise<void> {
  const { active, url } = settings
  say(`${active ? `Context ${active.name}, ` : ''}${url.value}`)
  if (flags.yes) return
  const name = String(valueAt(Object.values(args), '0'))
  if (!attended) throw usage('Missing --yes', `svc ${id?.replaceAll(':', ' ')} ${name} --yes deletes without asking`)
  const typed = await askText(`This cannot be undone. Type ${name} to delete it:`)
  if (typed !== name) throw new CliError('Nothing was deleted', { code: 'not_confirmed' })
}

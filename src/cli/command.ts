import type { Command } from '@oclif/core/command'
import type { Client, RawInput } from '../core/client.ts'
import { type Endpoint, isMutation, routeOf } from '../core/endpoint.ts'
import { anonymousClient, authenticatedClient } from './api-client.ts'
import { isInteractive, tokenSource } from './ask.ts'
import { type CommandContext, LocalCommand } from './base.ts'
import { listShape } from './columns.ts'
import type { CommandView, ParsedInput } from './command-view.ts'
import { withFlagNames } from './error-report.ts'
import { type Field, fieldsOf } from './fields.ts'
import {
  type ArgSet,
  argNames,
  confirmFlags,
  connectionFlags,
  createFlags,
  deleteFlags,
  type FlagSet,
  fieldArg,
  fieldFlag,
  fileFlags,
  listFlags,
  mutationFlags,
  outputFlags,
  secretFlags,
} from './flags.ts'
import { buildInput, readBody } from './input.ts'
import { type OutputFlags, parseOutputFlags } from './print.ts'
import { apiKeyFrom, type FlagSettings, resolveSettings } from './settings.ts'

/** A command that talks to a service. */
export abstract class ApiCommand extends LocalCommand {
  static override baseFlags: FlagSet = { ...outputFlags, ...connectionFlags }

  /** `mayBeNew`: the context of the flags need not exist yet. */
  protected open(
    flags: FlagSettings & OutputFlags & { token?: string | undefined },
    options: { mayBeNew?: boolean } = {},
  ): CommandContext {
    const output = parseOutputFlags(flags)
    const settings = resolveSettings(flags, options)
    const token = tokenSource(flags.token)
    const apiKey = apiKeyFrom(flags)
    const clientOptions = {
      settings,
      version: this.config.version,
      interactive: isInteractive(settings),
      token,
      apiKey,
    }
    let client: Client | undefined
    let anonymous: Client | undefined
    return {
      settings,
      output,
      clientOptions,
      interactive: clientOptions.interactive,
      get client() {
        client ??= authenticatedClient(clientOptions)
        return client
      },
      get anonymous() {
        anonymous ??= anonymousClient(clientOptions)
        return anonymous
      },
    }
  }
}

/** A command derived from a contract entry. */
export function command(entry: Endpoint, view: CommandView): Command.Class {
  const listed = listShape(entry.reply)
  const { customFlags, preset = {} } = view
  const { fields, more, argFields, flagFields, isArg, isPreset, isCustom } = dividedFields(entry, view)

  // What is deleted by its name: several names are taken. A body says more about the one.
  const named = entry.body === undefined && !view.argDefaults ? argFields.at(-1) : undefined
  const eachArg = entry.method === 'DELETE' && named ? argName(named) : undefined
  const flagNames = flagNamesOf(fields, view, isCustom)

  return class extends ApiCommand {
    static override endpoints = [entry, entry.effect ?? [], view.filteredEntry ?? [], view.also ?? []]
      .flat()
      .map(routeOf)
    static override summary = view.summary ?? entry.summary
    static override description = view.description ?? ''
    static override examples = view.examples
    static override args: ArgSet = Object.fromEntries(
      argFields.map((field, at) => [
        argName(field),
        fieldArg(field, {
          isNeeded: view.readArgs ? at === 0 : view.argDefaults?.[field.key] === undefined,
          isEach: argName(field) === eachArg,
          isRead: view.readArgs !== undefined,
        }),
      ]),
    )
    static override flags: FlagSet = {
      ...customFlags?.flags,
      ...view.alternative?.flags,
      ...flagsOf(entry, view, flagFields),
    }

    async run(): Promise<void> {
      const parsed = (await this.parse(this.ctor)) as unknown as ParsedInput
      const typed = view.readArgs ? { ...parsed, args: await view.readArgs(parsed.args) } : parsed
      try {
        const session = this.open(typed.flags)
        await (eachArg === undefined
          ? this.perform(session, typed)
          : this.performEach(session, typed, eachArg))
      } catch (failure) {
        const { forgetStaleTenants } = await import('./tenant-ids.ts')
        forgetStaleTenants(failure)
        throw withFlagNames(failure, flagNames)
      }
    }

    private async performEach(session: CommandContext, typed: ParsedInput, arg: string): Promise<void> {
      const { deleteEach, namesToDelete } = await import('./delete-each.ts')
      const names = await namesToDelete(typed.args[arg] as string[])
      const one = (name: string) => ({ ...typed, args: { ...typed.args, [arg]: name } })
      if (names.length === 1) return this.perform(session, one(names[0]!))
      const { effectOf } = await import('./effect.ts')
      await deleteEach(session, typed, names, {
        command: (this.id ?? '').replaceAll(':', ' '),
        warning: view.warning,
        summary: entry.summary,
        effect: async (name) => effectOf(session, entry, view.ends, await this.inputOf(session, one(name))),
        perform: (session, name) => this.perform(session, { ...one(name), each: name }),
      })
    }

    private async inputOf(session: CommandContext, typed: ParsedInput): Promise<RawInput> {
      const values = (await customFlags?.values(typed.flags, session)) ?? {}
      const asked = session.interactive && !typed.flags.file ? await view.prompt?.(session, typed) : undefined
      const filed = view.file ? { ...(await readBody(typed.flags.file)), ...asked } : {}
      const isFiled = ({ part, key, flag }: Field) =>
        part === 'body' && Object.hasOwn(filed, key) && typed.flags[flag] === undefined
      const left = fields.filter((field) => !isFiled(field))
      const input = await buildInput(session, left, (field) => {
        if (isCustom(field)) return values[field.key]
        if (isPreset(field)) return preset[field.key]
        if (isArg(field)) return typed.args[argName(field)] ?? view.argDefaults?.[field.key]?.(session)
        return field.key === 'orgId' ? session.settings.org.value || undefined : typed.flags[field.flag]
      })
      return view.file ? { ...input, body: { ...filed, ...(input.body as object) } } : input
    }

    private async perform(session: CommandContext, typed: ParsedInput): Promise<void> {
      const input = () => this.inputOf(session, typed)
      if (view.alternative && typed.flags[view.alternative.flag])
        return view.alternative.run(session, await input(), typed)
      if (listed) {
        const { runListCommand } = await import('./list-command.ts')
        const narrowed = more.some(({ flag }) => typed.flags[flag] !== undefined)
        return runListCommand(session, (narrowed && view.filteredEntry) || entry, view, await input(), typed)
      }
      const { runRecordCommand } = await import('./record-command.ts')
      await runRecordCommand(session, entry, view, input, { ...typed, id: this.id ?? '' })
      if (!view.mints || session.output.format !== 'plain') return
      const wanted = (typed.flags[view.mints.flag] ?? []) as string[]
      const { printOpenedCommands } = await import('./opened-commands.ts')
      printOpenedCommands(this.config.commands, wanted, view.mints.by)
    }
  }
}

/** The fields of an entry by how a person gives them. */
function dividedFields(entry: Endpoint, view: CommandView) {
  const { customFlags, preset = {} } = view
  const listed = listShape(entry.reply)
  const isPage = ({ key }: Field) => listed !== undefined && ['page', 'limit', 'cursor'].includes(key)
  const isPreset = ({ key, within }: Field) => !within && Object.hasOwn(preset, key)
  const isArg = (field: Field) =>
    field.part === 'params' || (!field.within && view.args?.includes(field.key) === true)
  const isCustom = ({ key }: Field) => customFlags?.fields.includes(key) === true
  const own = fieldsOf(entry).filter((field) => !isPage(field))
  // Filters that only the other entry has.
  const more = fieldsOf(view.filteredEntry ?? entry).filter(
    (field) => !isPage(field) && !own.some(({ flag }) => flag === field.flag),
  )
  const fields = [...own, ...more]
  const argFields = [
    ...fields.filter(({ part }) => part === 'params'),
    ...(view.args ?? []).map((key) => fields.find((field) => field.key === key)!),
  ]
  const flagFields = fields.filter((field) => !isArg(field) && !isPreset(field) && !isCustom(field))
  return { fields, more, argFields, flagFields, isArg, isPreset, isCustom }
}

/** The flag of each field, by the path at which a fault of it is reported. */
function flagNamesOf(
  fields: readonly Field[],
  { customFlags }: CommandView,
  isCustom: (field: Field) => boolean,
): Map<string, string> {
  const [firstCustomFlag] = Object.keys(customFlags?.flags ?? {})
  return new Map([
    ...Object.entries(customFlags?.flagNames ?? {}).map(([path, flag]) => [`body.${path}`, flag] as const),
    ...fields
      .filter(({ within }) => !within)
      .map(
        (field) =>
          [
            `${field.part}.${field.key}`,
            (isCustom(field) && (customFlags?.flagNames?.[field.key] ?? firstCustomFlag)) || field.flag,
          ] as const,
      ),
  ])
}

const argName = (field: Field): string =>
  field.key === 'id' && field.resource ? argNames[field.resource] : field.flag

function flagsOf(entry: Endpoint, view: CommandView, fields: Field[]): FlagSet {
  const flags: FlagSet = {}
  for (const field of fields) {
    const taken = field.flag in outputFlags || field.flag in connectionFlags
    if (taken && field.key !== 'orgId') {
      throw new Error(`${entry.path}: the field ${field.key} needs another flag name than --${field.flag}`)
    }
    flags[field.flag] = fieldFlag(field)
  }
  return {
    ...flags,
    ...(listShape(entry.reply) && listFlags),
    ...(isMutation(entry) && mutationFlags),
    ...(entry.method === 'DELETE' && deleteFlags),
    ...(view.confirmation && confirmFlags),
    ...(view.file && fileFlags),
    ...(view.existing && createFlags),
    ...(view.secret && secretFlags),
    ...view.instructions?.flags,
  }
}

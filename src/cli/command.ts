import type { Command } from '@oclif/core/command'
import { type Endpoint, isMutation } from '../core/endpoint.ts'
import { ApiCommand } from './base.ts'
import { rowsOf } from './columns.ts'
import { withFlags } from './exit.ts'
import { type Field, fieldsOf } from './fields.ts'
import {
  type ArgSet,
  argNames,
  argOf,
  confirmFlags,
  connectionFlags,
  createFlags,
  deleteFlags,
  type FlagSet,
  fileFlags,
  flagFor,
  listFlags,
  mutationFlags,
  outputFlags,
  secretFlags,
  yes,
} from './flags.ts'
import { bodyFrom, inputOf } from './input.ts'
import type { Typed, View } from './view.ts'

/** A command derived from a contract entry. */
export function command(entry: Endpoint, view: View): Command.Class {
  const listed = rowsOf(entry.reply)
  const isPage = ({ key }: Field) => listed !== undefined && ['page', 'limit', 'cursor'].includes(key)
  const { preset = {} } = view
  const isPreset = ({ key, within }: Field) =>
    (!within && Object.hasOwn(preset, key)) || key === view.opposite?.field
  const own = fieldsOf(entry).filter((field) => !isPage(field))
  const more = fieldsOf(view.narrowed ?? entry).filter(
    (field) => !isPage(field) && !own.some(({ flag }) => flag === field.flag),
  )
  const fields = [...own, ...more]
  const isArg = (field: Field) =>
    field.part === 'params' || (!field.within && view.args?.includes(field.key) === true)
  const argFields = [
    ...fields.filter(({ part }) => part === 'params'),
    ...(view.args ?? []).map((key) => fields.find((field) => field.key === key)!),
  ]
  const { instead } = view
  const isInstead = ({ key }: Field) => instead?.fields.includes(key) === true
  const flagFields = fields.filter((field) => !isArg(field) && !isPreset(field) && !isInstead(field))

  const [insteadFlag] = Object.keys(instead?.flags ?? {})
  const flagNames = new Map(
    fields
      .filter(({ within }) => !within)
      .map((field) => [
        `${field.part}.${field.key}`,
        (isInstead(field) && (instead?.named?.[field.key] ?? insteadFlag)) || field.flag,
      ]),
  )

  return class extends ApiCommand {
    static override summary = view.summary ?? entry.summary
    static override description = view.description ?? ''
    static override examples = view.examples
    static override args: ArgSet = Object.fromEntries(
      argFields.map((field) => [argName(field), argOf(field, view.otherwise?.[field.key] === undefined)]),
    )
    static override flags: FlagSet = {
      ...instead?.flags,
      ...view.also?.flags,
      ...flagsOf(entry, view, flagFields),
    }

    async run(): Promise<void> {
      const typed = (await this.parse(this.ctor)) as unknown as Typed
      try {
        await this.perform(typed)
      } catch (failure) {
        throw withFlags(failure, flagNames)
      }
    }

    private async perform(typed: Typed): Promise<void> {
      const session = this.open(typed.flags)
      const input = async () => {
        const values = (await instead?.values(typed.flags, session)) ?? {}
        const asked = session.attended && !typed.flags.file ? await view.asks?.(session, typed) : undefined
        const filed = view.file ? { ...(await bodyFrom(typed.flags.file)), ...asked } : {}
        const isFiled = ({ part, key, flag }: Field) =>
          part === 'body' && Object.hasOwn(filed, key) && typed.flags[flag] === undefined
        const left = fields.filter((field) => !isFiled(field))
        const input = await inputOf(session, left, (field) => {
          if (field.key === view.opposite?.field) return typed.flags[view.opposite.flag] !== true
          if (isInstead(field)) return values[field.key]
          if (isPreset(field)) return preset[field.key]
          if (isArg(field)) return typed.args[argName(field)] ?? view.otherwise?.[field.key]?.(session)
          return field.key === 'orgId' ? session.settings.org.value || undefined : typed.flags[field.flag]
        })
        return view.file ? { ...input, body: { ...filed, ...(input.body as object) } } : input
      }
      if (view.also && typed.flags[view.also.flag]) return view.also.run(session, await input(), typed)
      if (listed) {
        const { list } = await import('./list.ts')
        const narrowed = more.some(({ flag }) => typed.flags[flag] !== undefined)
        return list(session, (narrowed && view.narrowed) || entry, view, await input(), typed)
      }
      const { act } = await import('./act.ts')
      return act(session, entry, view, input, { ...typed, id: this.id ?? '' })
    }
  }
}

const argName = (field: Field): string =>
  field.key === 'id' && field.resource ? argNames[field.resource] : field.flag

function flagsOf(entry: Endpoint, view: View, fields: Field[]): FlagSet {
  const flags: FlagSet = {}
  for (const field of fields) {
    const taken = field.flag in outputFlags || field.flag in connectionFlags
    if (taken && field.key !== 'orgId') {
      throw new Error(`${entry.path}: the field ${field.key} needs another flag name than --${field.flag}`)
    }
    flags[field.flag] = flagFor(field)
  }
  return {
    ...flags,
    ...(rowsOf(entry.reply) && listFlags),
    ...(isMutation(entry) && mutationFlags),
    ...(entry.method === 'DELETE' && deleteFlags),
    ...(view.confirms && confirmFlags),
    ...(view.file && fileFlags),
    ...(view.existing && createFlags),
    ...(view.secret && secretFlags),
    ...(view.opposite && { [view.opposite.flag]: yes({ description: view.opposite.description }) }),
  }
}

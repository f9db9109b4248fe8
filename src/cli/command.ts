import type { Command } from '@oclif/core/command'
import { changes, type Endpoint } from '../core/endpoint.ts'
import { ApiCommand } from './base.ts'
import { type Column, rowsOf } from './columns.ts'
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
import { inputOf } from './input.ts'

/** How an endpoint looks as a command; everything else comes from its contract entry. */
export type View = {
  examples: string[]
  description?: string
  /** Columns of the table a person sees. */
  columns?: Column[]
  /** Fields of the query or body that are arguments, in order. */
  args?: string[]
  /** What a person reads, instead of the record field by field. */
  human?: (reply: Record<string, unknown>) => string | Promise<string>
  /** Reply field that is shown once. */
  secret?: string
  /** Where a record that is to be created may exist already: the list, and the fields that say in what. */
  existing?: { list: Endpoint; within?: string[] }
}

/** What the caller typed, after oclif has parsed it. */
export type Typed = { flags: Record<string, unknown>; args: Record<string, unknown> }

/** A command derived from a contract entry. */
export function command(entry: Endpoint, view: View): Command.Class {
  const listed = rowsOf(entry.reply)
  const fields = fieldsOf(entry).filter(({ key }) => !(listed && (key === 'page' || key === 'limit')))
  const isArg = (field: Field) => field.part === 'params' || view.args?.includes(field.key) === true
  const argFields = [
    ...fields.filter(({ part }) => part === 'params'),
    ...(view.args ?? []).map((key) => fields.find((field) => field.key === key)!),
  ]
  const flagFields = fields.filter((field) => !isArg(field))

  return class extends ApiCommand {
    static override summary = entry.summary
    static override description = view.description ?? ''
    static override examples = view.examples
    static override args: ArgSet = Object.fromEntries(
      argFields.map((field) => [argName(field), argOf(field)]),
    )
    static override flags: FlagSet = flagsOf(entry, view, flagFields)

    async run(): Promise<void> {
      const typed = (await this.parse(this.ctor)) as unknown as Typed
      const session = this.open(typed.flags)
      const input = () =>
        inputOf(session, fields, (field) => {
          if (isArg(field)) return typed.args[argName(field)]
          return field.key === 'orgId' ? session.settings.org.value || undefined : typed.flags[field.flag]
        })
      if (listed) {
        const { list } = await import('./list.ts')
        return list(session, entry, view, await input(), typed)
      }
      const { act } = await import('./act.ts')
      return act(session, entry, view, input, { ...typed, id: this.id ?? '' })
    }
  }
}

const argName = (field: Field): string =>
  field.key === 'id' && field.resource ? argNames[field.resource] : field.key

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
    ...(changes(entry) && mutationFlags),
    ...(entry.method === 'DELETE' && deleteFlags),
    ...(view.existing && createFlags),
    ...(view.secret && secretFlags),
  }
}

import { string } from '@oclif/core/flags'
import { safeParse } from '../core/schema.ts'
import { isGroup } from '../filters/conditions/contract.ts'
import {
  type Condition,
  ConditionGroup,
  type ConditionValue,
  type FilterPreview,
  filters,
  findField,
  type Operator,
  type SavedFilter,
} from '../filters/contract.ts'
import { readStdinOrFile } from './ask.ts'
import type { CommandContext } from './base.ts'
import { renderRecord } from './card.ts'
import { schemaColumns, selectColumns } from './columns.ts'
import type { CommandView } from './command-view.ts'
import { currentOrg, resolveWithinOrg } from './current-org.ts'
import { displayOf } from './display.ts'
import { CliError, usageError } from './exit-codes.ts'
import { formatWindow, parseFilter, printFilter } from './filter-expression.ts'
import { writtenOperators } from './filter-operators.ts'
import type { FlagSet } from './flags.ts'
import { readJson } from './input.ts'
import { printNote, printRecord, rowPrinter } from './print.ts'
import { withSpinner } from './progress.ts'
import { escapeToOneLine } from './table.ts'

export const conditionFlags = {
  where: string({
    description: "Which devices, such as 'status = online'; - or @file (svc help filters)",
    helpValue: 'EXPR',
    exclusive: ['file'],
  }),
  file: string({
    description: 'The conditions as a JSON tree: a file, or - for standard input',
    helpValue: 'FILE',
  }),
}

type ConditionFlags = { where?: string | undefined; file?: string | undefined }

/** The conditions of the flags; undefined without any. */
async function readConditions({ where, file }: ConditionFlags): Promise<ConditionGroup | undefined> {
  if (where !== undefined) return parseFilter((await readStdinOrFile(where, '--where')) ?? where)
  if (file === undefined) return undefined
  const parsed = safeParse(ConditionGroup, await readJson(file === '-' ? '-' : `@${file}`, '--file'))
  if (parsed.success) return parsed.data
  const faults = parsed.error.issues.map(
    ({ path, message }) => `  ${path.join('.') || 'the tree'} ${message}`,
  )
  throw usageError(`--file is not a filter:\n${faults.slice(0, 10).join('\n')}`, 'svc help filters')
}

/** `--where` and `--file` for the field with the tree. */
export const conditionFieldFlags = (required: boolean): NonNullable<CommandView['customFlags']> => ({
  fields: ['conditions'],
  flags: conditionFlags as unknown as FlagSet,
  values: async (flags) => {
    const conditions = await readConditions(flags as ConditionFlags)
    if (required && conditions === undefined)
      throw usageError('Missing --where', "--where 'status = online', or --file")
    return { conditions }
  },
})

/** A saved filter for a person, with its conditions as an expression. */
export async function formatFilter(reply: Record<string, unknown>): Promise<string> {
  const { conditions, ...rest } = reply
  const where = expressionOf(conditions as ConditionGroup)
  return renderRecord({ ...rest, where }, displayOf(process.stdout))
}

/** A tree without an expression was created by another version: it is printed as JSON. */
function expressionOf(tree: ConditionGroup): string {
  try {
    return printFilter(tree)
  } catch (error) {
    if (error instanceof CliError) return JSON.stringify(tree)
    throw error
  }
}

type FilterSource = { conditions: ConditionGroup } | { saved: string }
type FilterFlags = ConditionFlags & { filter: string | undefined }

/** Exactly one of: a saved filter, --where, --file. */
async function filterSource({ filter, ...flags }: FilterFlags): Promise<FilterSource> {
  const conditions = await readConditions(flags)
  if (filter !== undefined && conditions)
    throw usageError('A saved filter and --where or --file cannot be used together')
  if (conditions) return { conditions }
  if (filter !== undefined) return { saved: filter }
  throw usageError('Missing FILTER or --where', "name a saved filter, or --where 'status = online'")
}

export async function preview(
  session: CommandContext,
  asked: FilterFlags,
  limit: number | undefined,
): Promise<void> {
  const { client, output } = session
  const what = await filterSource(asked)
  const orgId = await currentOrg(session)
  const shown = { ...(orgId !== undefined && { orgId }), ...(limit !== undefined && { limit }) }
  const columns = selectColumns(
    output,
    schemaColumns(filters.preview.reply.shape.data.shape.devices.element),
    output.format === 'csv' ? undefined : ['hostname', 'displayName', 'osType', 'status', 'lastSeenAt', 'id'],
  )
  const request =
    'conditions' in what
      ? client.request(filters.preview, { body: { ...what, ...shown } })
      : client.request(filters.savedPreview, {
          params: { id: await resolveWithinOrg(session, 'filter', what.saved) },
          query: shown,
        })
  const { data } = (await withSpinner('Waiting for the service', request)) as FilterPreview
  const printer = rowPrinter(output, columns)
  await printer.rows(data.devices)
  await printer.end((devices) => ({ data: { ...data, devices } }))
  if (['json', 'yaml'].includes(output.format)) return
  const { totalCount: total } = data
  const more = total > data.devices.length ? `, ${data.devices.length} shown` : ''
  printNote(`${total} ${total === 1 ? 'device matches' : 'devices match'}${more}`)
}

/** Explains a filter; the service is called only for a saved one. */
export async function explainFilter(session: () => CommandContext, asked: FilterFlags): Promise<void> {
  const what = await filterSource(asked)
  const run = session()
  const tree = 'conditions' in what ? what.conditions : await conditionsOf(run, what.saved)
  const text = () => `${[headOf(tree), ...linesOf(tree)].join('\n')}\n`
  await printRecord(run.output, { expression: expressionOf(tree), conditions: tree }, undefined, text)
}

async function conditionsOf(session: CommandContext, filter: string): Promise<ConditionGroup> {
  const id = await resolveWithinOrg(session, 'filter', filter)
  return ((await session.client.request(filters.show, { params: { id } })) as SavedFilter).conditions
}

const headOf = ({ operator, conditions }: ConditionGroup): string =>
  conditions.length === 1
    ? 'Devices of which this is true'
    : `Devices of which ${operator === 'AND' ? 'all of this' : 'at least one of these'} is true`

function linesOf({ conditions }: ConditionGroup): string[] {
  return conditions.flatMap((node, i) => {
    const isLast = i === conditions.length - 1
    const [turn, below] = isLast ? ['└─ ', '   '] : ['├─ ', '│  ']
    if (!isGroup(node)) return [`${turn}${describeCondition(node)}`]
    const head = node.operator === 'AND' ? 'all of' : 'at least one of'
    return [`${turn}${head}`, ...linesOf(node).map((line) => `${below}${line}`)]
  })
}

function describeCondition({ field, operator, value }: Condition): string {
  const known = findField(field)
  const label = known
    ? field.startsWith('custom.')
      ? `${known.label} ${field.slice(7)}`
      : known.label
    : field
  const isDate = known?.type === 'datetime'
  const dated: Record<string, string> = { greaterThan: 'is after', lessThan: 'is before' }
  const verb = (isDate && dated[operator]) || writtenOperators[operator as Operator]?.verb || operator
  return escapeToOneLine([label, verb, describeValue(value)].filter((part) => part !== '').join(' '))
}

function describeValue(value: ConditionValue | undefined): string {
  if (value === undefined) return ''
  if (Array.isArray(value)) return value.length === 0 ? 'nothing' : value.join(', ')
  if (typeof value !== 'object') return value === '' ? 'empty text' : String(value)
  if ('from' in value) return `${value.from} to ${value.to}`
  return formatWindow(value)
}

import { custom as customArg } from '@oclif/core/args'
import { boolean, custom } from '@oclif/core/flags'
import type { Arg, Flag } from '@oclif/core/interfaces'
import type { Resource } from '../core/schema.ts'
import { didYouMean } from '../core/suggest.ts'
import { usageError } from './exit-codes.ts'
import type { Field } from './fields.ts'
import { parseTime } from './parse-time.ts'

type AnyFlag = Flag<unknown>
export type FlagSet = Record<string, AnyFlag>
export type ArgSet = Record<string, Arg<unknown>>

/** The version without the former spellings of flags (`formerFlag`). */
export const formerFlagsEnd = '0.3.0'

const outputFormats = ['table', 'json', 'yaml', 'ndjson', 'csv', 'id'] as const
export type OutputFormat = (typeof outputFormats)[number]

const text = (options: Record<string, unknown>): AnyFlag => custom<string>({})(options) as AnyFlag
export const booleanFlag = (options: Record<string, unknown>): AnyFlag => boolean(options) as AnyFlag

/** A flag that takes a text. */
export const textFlag = (description: string, helpValue: string, exclusive: string[] = []): AnyFlag =>
  text({ description, helpValue, ...(exclusive.length > 0 && { exclusive }) })

export const choiceFlag = (description: string, options: string[]): AnyFlag =>
  text({ description, options, helpValue: options.join('|') })

const output = { helpGroup: 'output' }

export const outputFlags: FlagSet = {
  json: booleanFlag({ description: 'Print the reply of the API as JSON', ...output }),
  output: text({ char: 'o', description: 'Output format', options: [...outputFormats], ...output }),
  jq: text({ description: 'Print the output of this jq program on the JSON', helpValue: 'EXPR', ...output }),
  columns: text({ description: 'Only these columns, such as id,name', helpValue: 'a,b', ...output }),
  'no-header': booleanFlag({ description: 'Leave out the line with the column names', ...output }),
  utc: booleanFlag({ description: 'Exact times (UTC) on a terminal, instead of ages', ...output }),
  csv: booleanFlag({ description: 'Same as -o csv', ...output }),
  quiet: booleanFlag({ char: 'q', description: 'Print ids only', ...output }),
  'no-input': booleanFlag({ description: 'Never prompt; fail instead [env: SVC_NO_INPUT]', ...output }),
}

export const dataDirFlag = {
  'data-dir': custom<string>({
    description: 'Directory of the SQLite database and the outbox [env: SVC_DATA_DIR]',
    helpValue: 'DIR',
  })(),
}

const connection = { helpGroup: 'connection' }

export const connectionFlags: FlagSet = {
  url: text({ description: 'Address of the service [env: SVC_URL]', helpValue: 'URL', ...connection }),
  context: text({ description: 'Context to use [env: SVC_CONTEXT]', helpValue: 'NAME', ...connection }),
  org: text({
    description: "Organization: id, slug or name; '*': all that you can see [env: SVC_ORG]",
    helpValue: 'ORG',
    ...connection,
  }),
  token: text({ description: 'Access token: - or @file [env: SVC_TOKEN]', helpValue: '-', ...connection }),
  timeout: text({
    description: 'Time limit for an answer, and for waits at a rate limit, such as 30s [env: SVC_TIMEOUT]',
    helpValue: 'TIME',
    ...connection,
  }),
}

export const mutationFlags: FlagSet = {
  'dry-run': booleanFlag({ description: 'Print the request and send nothing' }),
}

export const deleteFlags: FlagSet = {
  yes: booleanFlag({ char: 'y', description: 'Do not ask before deleting' }),
  'ignore-not-found': booleanFlag({ description: 'Succeed if it does not exist' }),
}

/** Of commands that change this machine in steps (machine-steps.ts). */
export const stepFlags = {
  'dry-run': boolean({ description: 'Print the steps and change nothing' }),
  yes: boolean({ description: 'Do not ask for confirmation' }),
  'no-input': boolean({ description: 'Never prompt; fail instead [env: SVC_NO_INPUT]' }),
}

export const confirmFlags: FlagSet = {
  yes: booleanFlag({ char: 'y', description: 'Do not ask for confirmation' }),
}

export const fileFlags: FlagSet = {
  file: text({
    description: 'The body as JSON: a file, or - for standard input; flags override it',
    helpValue: 'FILE',
  }),
}

export const createFlags: FlagSet = {
  'if-not-exists': booleanFlag({
    description: 'Print an existing record instead of failing',
  }),
}

export const listFlags: FlagSet = {
  limit: text({ description: 'At most this many rows', helpValue: 'N', parse: integer('--limit') }),
  page: text({ description: 'Page to show, from 1', helpValue: 'N', parse: integer('--page') }),
  all: booleanFlag({ description: 'Every row', exclusive: ['page', 'limit'] }),
  watch: booleanFlag({
    description: 'Redraw every 5 s; in a pipe print rows that changed',
    exclusive: ['all'],
  }),
}

export const secretFlags: FlagSet = {
  'out-file': text({ description: 'Write the secret to a new file, mode 0600', helpValue: 'FILE' }),
}

function integer(flag: string, min = 1) {
  return async (input: string): Promise<number> => {
    const n = /^\d+$/.test(input) ? Number(input) : Number.NaN
    if (!Number.isSafeInteger(n) || n < min)
      throw usageError(`${flag} takes a whole number from ${min}, not "${input}"`)
    return n
  }
}

export const linesFlag = text({
  char: 'n',
  description: 'Number of newest entries to begin with; by default 10',
  helpValue: 'N',
  parse: integer('--lines', 0),
})

/** The flag of a field. Files, standard input and names of records are resolved when the request is built. */
export function fieldFlag(field: Field): AnyFlag {
  const required = field.required && field.resource !== 'organization' ? '(required) ' : ''
  const description = `${required}${describe(field)}`
  if (field.kind === 'boolean' && !field.many) return booleanFlag({ description, allowNo: true })
  return text({
    description,
    helpValue: valueName(field),
    ...(field.formerFlag && { aliases: [field.formerFlag] }),
    ...(field.kind === 'time' && { parse: timeFor(field) }),
    ...(field.many && { multiple: true, multipleNonGreedy: true }),
    ...(field.many && (field.choices || field.kind === 'pair') && { delimiter: ',' }),
    ...(field.choices && !field.nullable && { options: field.choices }),
  })
}

const timeFor = (field: Field) => async (said: string) =>
  field.nullable && said === 'null' ? said : parseTime(said, `--${field.flag}`, field)

function describe(field: Field): string {
  const notes: string[] = []
  if (field.secret) notes.push('- for standard input, @file for a file')
  else if (field.kind === 'file') notes.push('a file, or - for standard input')
  else if (field.kind === 'json') notes.push('JSON, - or @file')
  else if (field.future)
    notes.push('from now, such as 30d or 12h, a date (UTC) such as 2026-01-31, or an instant')
  else if (field.kind === 'time')
    notes.push('an age such as 10m or 7d, a date (UTC) such as 2026-01-31, or an instant')
  else if (field.unitSeconds) notes.push(`or a duration such as ${field.unitSeconds < 86_400 ? '2h' : '4w'}`)
  else if (field.kind === 'pair') notes.push('such as devices:read,alerts:read')
  else if (field.resource && field.key !== 'id') notes.push(lookupKeys[field.resource] ?? 'id')
  if (field.nullable && field.kind !== 'json') notes.push('or null')
  const text = field.description || sentence(field.key)
  return notes.length > 0 ? `${text} (${notes.join('; ')})` : text
}

const sentence = (key: string): string => {
  const words = key.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
  return words[0]!.toUpperCase() + words.slice(1)
}

function valueName(field: Field): string {
  if (field.choices)
    return field.choices.length > 12 ? sentence(field.flag).toUpperCase() : field.choices.join('|')
  if (field.resource) return argNames[field.resource].toUpperCase()
  return {
    text: 'TEXT',
    file: 'FILE',
    number: 'N',
    boolean: 'BOOLEAN',
    choice: 'CHOICE',
    pair: 'PERMISSION',
    time: 'TIME',
    json: 'JSON',
  }[field.kind]
}

/** The name of a record as an argument: `svc orgs show ORG`. */
export const argNames: Record<Resource, string> = {
  partner: 'partner',
  organization: 'org',
  site: 'site',
  enrollment_key: 'key',
  api_key: 'key',
  device: 'device',
  device_group: 'group',
  device_command: 'command',
  filter: 'filter',
  agent: 'agent',
  audit_log: 'entry',
  user: 'user',
  role: 'role',
  script: 'script',
  alert: 'alert',
  webhook: 'webhook',
  webhook_delivery: 'delivery',
  sso_provider: 'provider',
  sso_identity: 'identity',
  trust_policy: 'policy',
  agent_rollout: 'rollout',
  configuration_apply: 'apply',
}

export const resourceNames: Record<Resource, string> = {
  partner: 'partner',
  organization: 'organization',
  site: 'site',
  enrollment_key: 'enrollment key',
  api_key: 'API key',
  device: 'device',
  device_group: 'device group',
  device_command: 'command',
  filter: 'filter',
  agent: 'agent',
  audit_log: 'audit entry',
  user: 'user',
  role: 'role',
  script: 'script',
  alert: 'alert',
  webhook: 'webhook',
  webhook_delivery: 'delivery',
  sso_provider: 'single sign-on provider',
  sso_identity: 'identity',
  trust_policy: 'trust policy',
  agent_rollout: 'rollout',
  configuration_apply: 'apply',
}

export const article = (noun: string): string => `${/^[aeiou]/.test(noun) ? 'an' : 'a'} ${noun}`

type Parse = (input: string) => Promise<string>

/** Without `ignoreStdin` oclif would wait on standard input for a missing argument. */
export const textArg = (
  description: string,
  required = true,
  parse?: Parse,
  multiple = false,
): Arg<unknown> =>
  customArg<string>({})({
    description,
    required,
    ignoreStdin: true,
    ...(multiple && { multiple }),
    ...(parse && { parse }),
  } as Record<string, unknown>) as Arg<unknown>

/** One of the values, in any letter case. */
export function oneOf(name: string, choices: string[]): Parse {
  return async (input) => {
    const found = choices.find((choice) => choice.toLowerCase() === input.toLowerCase())
    if (found !== undefined) return found
    throw usageError(`"${input}" is no ${name}: ${choices.join(', ')}`, didYouMean(input, choices))
  }
}

/** A boolean field as an argument. */
async function onOff(input: string): Promise<boolean> {
  const word = input.toLowerCase()
  if (word === 'on' || word === 'off') return word === 'on'
  throw usageError(`"${input}" is neither on nor off`)
}

const lookupKeys: { [R in Resource]?: string } = {
  partner: 'id, slug or name',
  organization: 'id, slug or name',
  site: 'id or name',
  enrollment_key: 'id or name',
  api_key: 'id or name',
  device: 'id, hostname or display name',
  user: 'id, e-mail or name',
  role: 'id or name',
  device_group: 'id or name',
  script: 'id or name',
  alert: 'id or title',
  webhook: 'id or name',
  sso_provider: 'id or name',
  trust_policy: 'id or name',
  agent_rollout: 'id or version',
}

/**
 * `isEach`: it takes several names, of records that are handled one after the other. `isRead`: the command itself
 * checks what is typed.
 */
export function fieldArg(
  field: Field,
  { isNeeded = true, isEach = false, isRead = false } = {},
): Arg<unknown> {
  const { choices, key, many, resource } = field
  const required = field.required && isNeeded
  const each = isEach ? '; several, or - for those on standard input, one a line' : ''
  if (resource && key === 'id') {
    const known = lookupKeys[resource] ?? 'id'
    return textArg(`The ${resourceNames[resource]}: ${known}${each}`, required, undefined, isEach)
  }
  if (field.kind === 'boolean') {
    return textArg(`${describe(field)}: on or off`, required, onOff as unknown as Parse)
  }
  return textArg(
    `${describe(field)}${each}`,
    required,
    isRead ? undefined : choices && oneOf(key, choices),
    many || isEach,
  )
}

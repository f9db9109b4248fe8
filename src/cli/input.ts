import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import { isJsonObject } from '../core/json.ts'
import { withoutSecrets } from '../core/schema.ts'
import { didYouMean } from '../core/suggest.ts'
import { askText, readSecret, readStdin, readStdinOrFile, readTextFile } from './ask.ts'
import type { CommandContext } from './base.ts'
import { usageError } from './exit-codes.ts'
import type { Field } from './fields.ts'
import { article, resourceNames } from './flags.ts'
import { durationSeconds } from './times.ts'

/** The raw values of the caller, by field; names are not resolved yet. */
export type ValueSource = (field: Field) => unknown

/** Builds the request: files and standard input are read, names become ids. */
export async function buildInput(
  session: CommandContext,
  fields: Field[],
  said: ValueSource,
): Promise<RawInput> {
  const input: Required<Pick<RawInput, 'params' | 'query'>> & { body: Record<string, unknown> } = {
    params: {},
    query: {},
    body: {},
  }
  // The organization first: names of sites and keys are resolved within it.
  const ordered = [...fields].sort((a, b) => rank(a) - rank(b))
  const given: [Field, unknown][] = []
  for (const field of ordered) given.push([field, await said(field)])
  const missing = given.filter(([field, raw]) => raw === undefined && isMissing(session, field))
  if (missing.length > 0) throw missingError(missing.map(([field]) => field))
  for (const [field, value] of given) {
    const raw = value ?? (field.required ? await ask(field) : undefined)
    if (raw === undefined) continue
    const orgId = (input.body.orgId ?? input.query.orgId) as string | undefined
    const partnerId = (input.body.partnerId ?? input.query.partnerId) as string | undefined
    const where = { orgId, partnerId }
    const nothing = field.nullable && Array.isArray(raw) && raw.length === 1 && raw[0] === 'null'
    objectAt(input[field.part], field.within)[field.key] = nothing
      ? null
      : Array.isArray(raw)
        ? await Promise.all(raw.map((one) => valueFor(session, field, one, where)))
        : await valueFor(session, field, raw, where)
  }
  return {
    params: input.params,
    query: input.query,
    ...(fields.some(({ part }) => part === 'body') && { body: input.body }),
  }
}

/** A body from a JSON file, or standard input. */
export async function readBody(file: unknown): Promise<Record<string, unknown>> {
  if (file === undefined) return {}
  const body = await readJson(file === '-' ? '-' : `@${String(file)}`, '--file')
  if (isJsonObject(body)) return { ...body }
  throw usageError('--file is not a JSON object')
}

/** The object that contains a field, created if missing. */
function objectAt(part: Record<string, unknown>, within: string[] = []): Record<string, unknown> {
  let at = part
  for (const step of within) {
    const next = at[step]
    if (next === null || typeof next !== 'object') at[step] = {}
    at = at[step] as Record<string, unknown>
  }
  return at
}

const rank = (field: Field): number =>
  field.resource === 'partner' ? 0 : field.resource === 'organization' ? 1 : 2

/** Whether nobody can be asked for it. */
const isMissing = ({ interactive }: CommandContext, { required, secret, kind }: Field): boolean =>
  required && (!interactive || secret || kind === 'json' || kind === 'file')

const ask = (field: Field): Promise<string> => askText(field.description || field.flag)

function missingError(fields: readonly Field[]): Error {
  const flags = fields.map(({ resource, flag }) => (resource === 'organization' ? '--org' : `--${flag}`))
  const needsOrg = fields.some(({ resource }) => resource === 'organization')
  const hint = needsOrg ? 'for --org also SVC_ORG, or svc context add … --org ORG' : undefined
  return usageError(`Missing ${flags.join(', ')}`, hint)
}

async function valueFor(
  session: CommandContext,
  field: Field,
  raw: unknown,
  { orgId, partnerId }: { orgId: string | undefined; partnerId: string | undefined },
): Promise<unknown> {
  if (field.nullable && raw === 'null') return null
  if (typeof raw !== 'string') return raw
  // It would be another path, or none.
  if (field.part === 'params' && ['', '.', '..'].includes(raw.trim())) throw noIdError(field, raw)
  const flag = `--${field.flag}`
  if (field.secret) return readSecret(raw, flag)
  if (field.kind === 'file') return raw === '-' ? readStdin(flag) : readTextFile(raw, flag)
  if (field.kind === 'json') return readJson(raw, flag)
  if (field.kind === 'pair') return pairFrom(raw, flag)
  if (field.kind === 'number') {
    const seconds = field.unitSeconds && durationSeconds(raw)
    if (seconds) return seconds / field.unitSeconds!
    const n = /^[+-]?\d+(\.\d+)?$/.test(raw) ? Number(raw) : Number.NaN
    if (Number.isNaN(n))
      throw usageError(`${flag} takes a number${field.nullable ? ' or null' : ''}, not "${raw}"`)
    return n
  }
  if (field.resource) {
    const { isId, resolveOrgOrDeleted, resolveId } = await import('./resolve.ts')
    const { withinOrg } = await import('./current-org.ts')
    if (isId(raw)) return raw.toLowerCase()
    if (field.deleted) return resolveOrgOrDeleted(session.client, raw)
    if (field.resource === 'organization' || field.resource === 'partner') {
      // What is shown, changed or deleted is looked up each time.
      if (field.key === 'id') return resolveId(session.client, field.resource, raw)
      return (await import('./tenant-ids.ts')).resolveTenant(session, field.resource, raw)
    }
    const within = orgId ? { orgId, insists: true } : await withinOrg(session)
    return resolveId(session.client, field.resource, raw, { ...within, partnerId })
  }
  return raw
}

function noIdError({ key, resource }: Field, raw: string): Error {
  const what = resource ? `the id or name of ${article(resourceNames[resource])}` : article(key)
  return usageError(
    `"${raw}" is not ${what}`,
    'the lists of svc, with -q, print ids: svc commands has all of them',
  )
}

async function pairFrom(raw: string, flag: string): Promise<unknown> {
  const { pairOf, permissionOf, permissions } = await import('../core/permissions.ts')
  const pair = pairOf(raw)
  if (permissionOf(pair)) return pair
  throw usageError(
    `${flag}: there is no permission "${raw}"`,
    didYouMean(raw, permissions) ?? 'svc roles permissions lists all',
  )
}

export async function readJson(raw: string, flag: string): Promise<unknown> {
  const text = (await readStdinOrFile(raw, flag)) ?? raw
  try {
    return JSON.parse(text) as unknown
  } catch (error) {
    throw usageError(
      `${flag} is not JSON: ${(error as Error).message}`,
      `${flag} '{"a": 1}', or ${flag} @file.json`,
    )
  }
}

/** The input with its secrets masked, for display. */
export function maskSecrets(entry: Endpoint, input: RawInput): RawInput {
  if (input.body === undefined) return input
  const kept = withoutSecrets(entry.body, input.body) as Record<string, unknown>
  const body = Object.fromEntries(
    Object.keys(input.body as object).map((key) => [key, Object.hasOwn(kept, key) ? kept[key] : '********']),
  )
  return { ...input, body }
}

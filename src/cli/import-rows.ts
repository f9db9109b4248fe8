import type { z } from 'zod'
import { zeroId } from '../core/ids.ts'
import { safeParse } from '../core/schema.ts'
import type { CommandContext } from './base.ts'
import { CliError, usageError } from './exit-codes.ts'
import { type ImportKind, keyOf } from './import-kinds.ts'
import { resolveId } from './resolve.ts'

type JsonObject = Record<string, unknown>

/** Most faults that are shown. */
const maxShown = 20

/** The requests of all rows, with names resolved. @throws usage, with the faults of all rows */
export async function readRows(
  session: CommandContext,
  kind: ImportKind,
  records: readonly JsonObject[],
  defaults: JsonObject,
): Promise<JsonObject[]> {
  if (records.length === 0) throw usageError('There is no row to import')
  const faults = new Faults()
  const rows = records.map((record) => kind.complete(record, defaults))
  for (const [at, row] of rows.entries())
    checkRow(kind, row, (column, fault) => faults.add(at, column, fault))
  const resolve = resolver(session)
  const bodies: JsonObject[] = []
  for (const [at, row] of rows.entries()) {
    const add = (column: string, fault: string) => faults.add(at, column, fault)
    bodies.push(await bodyOf(kind, row, resolve, add))
  }
  const first = new Map<string, number>()
  const name = kind.key.at(-1)!
  for (const [at, body] of bodies.entries()) {
    const key = keyOf(kind, body)
    const before = first.get(key)
    if (before === undefined) first.set(key, at)
    else faults.add(at, name, `${String(body[name])} is that of row ${before + 1}`)
  }
  faults.throwAny()
  return bodies
}

type Add = (column: string, fault: string) => void

/** What the schema of the request says, with names of columns. */
function checkRow({ create, references }: ImportKind, row: JsonObject, add: Add): void {
  const body = { ...row }
  for (const { column, field, many } of references) {
    // Names are resolved later.
    if (body[column] !== undefined) body[field] = many ? [zeroId] : zeroId
    delete body[column]
  }
  const columnOf = (field: string) => references.find((one) => one.field === field)?.column ?? field
  for (const issue of safeParse(create.body!, body).error?.issues ?? []) {
    if (issue.code === 'unrecognized_keys') {
      for (const key of issue.keys) add(key, 'is not a known column')
      continue
    }
    const [field = '', ...rest] = issue.path.map(String)
    add([columnOf(field), ...rest].join('.'), inWords(issue, valueAt(body, issue.path)))
  }
}

const valueAt = (body: JsonObject, path: readonly PropertyKey[]): unknown =>
  path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], body)

const kinds: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a JSON object',
  record: 'a JSON object',
}

function inWords(issue: z.core.$ZodIssue, value: unknown): string {
  if (issue.code === 'invalid_type' && value === undefined) return 'is missing'
  const said = typeof value === 'string' && value.length <= 60 ? `, not "${value}"` : ''
  if (issue.code === 'invalid_type') return `must be ${kinds[issue.expected] ?? issue.expected}${said}`
  if (issue.code === 'invalid_value') return `must be one of ${issue.values.map(String).join(', ')}${said}`
  return issue.message
}

type Resolve = (
  ...asked: Parameters<typeof resolveId> extends [unknown, ...infer R] ? R : never
) => Promise<string>

/** Each name is looked up once. */
function resolver({ client }: CommandContext): Resolve {
  const asked = new Map<string, Promise<string>>()
  return (resource, word, within) => {
    const key = JSON.stringify([resource, word, within])
    const known = asked.get(key) ?? resolveId(client, resource, word, within)
    asked.set(key, known)
    return known
  }
}

async function bodyOf(
  { references }: ImportKind,
  row: JsonObject,
  resolve: Resolve,
  add: Add,
): Promise<JsonObject> {
  const body = { ...row }
  for (const { column, field, resource, many } of references) {
    const said = body[column]
    delete body[column]
    if (said === undefined) continue
    const words =
      many && typeof said === 'string' ? said.split(';').map((word) => word.trim()) : [said].flat()
    const ids: string[] = []
    for (const word of words) {
      const { orgId, partnerId } = body as { orgId?: string; partnerId?: string }
      const isTenant = resource === 'organization' || resource === 'partner'
      const within = isTenant ? {} : { orgId, partnerId, insists: true }
      if (typeof word !== 'string') add(column, 'must be text')
      else
        ids.push(
          await resolve(resource, word, within).catch((error: unknown) => unresolved(error, column, add)),
        )
    }
    body[field] = many ? ids : ids[0]
  }
  return body
}

function unresolved(error: unknown, column: string, add: Add): string {
  if (!(error instanceof CliError)) throw error
  add(column, error.hint === undefined ? error.message : `${error.message} (${error.hint})`)
  return zeroId
}

/** The faults of all rows; rows with the same fault share a line. */
class Faults {
  readonly #rows = new Map<string, number[]>()

  add(at: number, column: string, fault: string): void {
    const key = `column ${column}: ${fault}`
    const rows = this.#rows.get(key) ?? []
    if (rows.at(-1) !== at + 1) rows.push(at + 1)
    this.#rows.set(key, rows)
  }

  throwAny(): void {
    if (this.#rows.size === 0) return
    const lines = [...this.#rows].map(([fault, [first, ...others]]) => {
      const few = [first, ...others.slice(0, 4)].join(', ')
      const more = others.length > 4 ? ` and ${others.length - 4} more` : ''
      return `row${others.length > 0 ? 's' : ''} ${few}${more}, ${fault}`
    })
    const rest = lines.length > maxShown ? [`and ${lines.length - maxShown} more`] : []
    throw usageError(['Nothing was imported:', ...lines.slice(0, maxShown), ...rest].join('\n  '))
  }
}

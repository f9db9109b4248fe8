import { sql } from 'kysely'
import type { Storage } from '../../src/storage/open.ts'
import { schemaOf } from './schema.ts'

/** What one release relies on in the schema, and the next one must not take away. */
export type Shape = {
  tables: Map<string, Map<string, Column>>
  /** Each as `table: what`. */
  unique: Set<string>
  /** What refuses rows: foreign keys, checks, and triggers that raise an error. */
  refusals: Set<string>
}
type Column = { type: string; isFilled: boolean; isNullable: boolean }

export async function shapeOf(storage: Storage): Promise<Shape> {
  const tables = (await storage.read.introspection.getTables()).filter(({ name }) => !/_trigrams/.test(name))
  const schema = Object.entries(await schemaOf(storage))
  const unique = schema.flatMap(([table, { primaryKey, unique, indexes }]) => [
    ...(primaryKey.length > 0 ? [`${table}: ${primaryKey.join(', ')}`] : []),
    // Without its name: a row collides, and an upsert finds, whatever the index is called.
    ...unique.map((one) => `${table}: ${one}`),
    ...indexes
      .filter((index) => / unique\b/.test(index))
      .map((one) => `${table}: ${one.replace(/^[^:]*: /, '').replace(' unique', '')}`),
  ])
  const foreign = schema.flatMap(([table, { foreignKeys }]) =>
    foreignKeys.map((one) => `${table}: ${one.replace(/ on delete .*/, '')}`),
  )
  const columnsOf = ({ columns }: (typeof tables)[number]) =>
    columns.map(({ name, dataType: type, isNullable, hasDefaultValue, isAutoIncrementing }) => {
      const isFilled = isNullable || hasDefaultValue || isAutoIncrementing
      return [name, { type, isFilled, isNullable }] as const
    })
  return {
    tables: new Map(tables.map((one) => [one.name, new Map(columnsOf(one))])),
    unique: new Set(unique),
    refusals: new Set([...foreign, ...(await conditionsOf(storage))]),
  }
}

/** Checks, and triggers whose program raises an error. */
async function conditionsOf({ dialect, read }: Storage): Promise<string[]> {
  if (dialect === 'postgres') {
    const { rows } = await sql<{ what: string }>`
      select conrelid::regclass || ': ' || pg_get_constraintdef(oid) as what from pg_constraint
      where contype = 'c' and connamespace = current_schema()::regnamespace
      union all
      select tgrelid::regclass || ': ' || pg_get_triggerdef(t.oid) || ' ' || prosrc from pg_trigger t
      join pg_proc p on p.oid = tgfoid join pg_class c on c.oid = tgrelid
      where not tgisinternal and prosrc ~* 'raise exception' and c.relnamespace = current_schema()::regnamespace`.execute(
      read,
    )
    return rows.map(({ what }) => what)
  }
  const { rows } = await sql<{ type: string; at: string; text: string }>`
    select type, tbl_name as at, sql as text from sqlite_schema where type in ('table', 'trigger') and sql is not null`.execute(
    read,
  )
  return rows.flatMap(({ type, at, text }) => {
    if (type === 'trigger')
      return /\braise\s*\(\s*(abort|fail|rollback)/i.test(text) ? [`${at}: ${text}`] : []
    return [...text.matchAll(/\bcheck\s*\(/gi)].map(({ index }) => `${at}: ${bracketed(text.slice(index))}`)
  })
}

/** Up to the bracket that closes the first one. */
function bracketed(text: string): string {
  let depth = 0
  for (let at = text.indexOf('('); at < text.length; at += 1) {
    if (text[at] === '(') depth += 1
    if (text[at] === ')') depth -= 1
    if (depth === 0) return text.slice(0, at + 1)
  }
  return text
}

/**
 * A trigger as it was before `appendOnly` (src/storage/columns.ts) let some rows go: it refuses less than one that has no
 * exception.
 */
const withoutException = (refusal: string): string =>
  collapsed(
    refusal
      .replace(/ when not \([\s\S]*\) begin select raise/, ' begin select raise')
      .replace(/if tg_op = 'DELETE' then if \([\s\S]*\) then return old; end if; end if;/, ''),
  )

const collapsed = (text: string): string => text.replaceAll(/\s+/g, ' ')

/** What the previous release, which does not know the change, could not do any more. */
export function broken(before: Shape, after: Shape): string[] {
  const found: string[] = []
  for (const [table, columns] of before.tables) {
    const now = after.tables.get(table)
    if (!now) {
      found.push(`${table} is gone`)
      continue
    }
    for (const [name, { type, isFilled, isNullable }] of columns) {
      const column = now.get(name)
      if (!column) found.push(`${table}.${name} is gone`)
      else if (column.type !== type) found.push(`${table}.${name} is of another type`)
      else if (isNullable && !column.isNullable) found.push(`${table}.${name} may not be null any more`)
      else if (isFilled && !column.isFilled) found.push(`${table}.${name} has no default any more`)
    }
    for (const [name, { isFilled }] of now)
      if (!columns.has(name) && !isFilled) found.push(`${table}.${name} has to be given`)
  }
  const ofKnown = (all: ReadonlySet<string>, others: ReadonlySet<string>) =>
    [...all].filter(
      (one) => !others.has(one) && before.tables.has(tableOf(one)) && after.tables.has(tableOf(one)),
    )
  /** Of rows that the previous release writes, new columns are empty. */
  const isOfNewColumn = (one: string) =>
    [...(after.tables.get(tableOf(one))?.keys() ?? [])].some(
      (name) => !before.tables.get(tableOf(one))!.has(name) && new RegExp(`\\b${name}\\b`).test(one),
    )
  for (const one of ofKnown(after.unique, before.unique))
    if (!isOfNewColumn(one)) found.push(`${one} is unique from now on`)
  for (const one of ofKnown(before.unique, after.unique)) found.push(`${one} is not unique any more`)
  const knownRefusals = new Set([...before.refusals].map(collapsed))
  for (const one of ofKnown(after.refusals, before.refusals))
    if (!isOfNewColumn(one) && !knownRefusals.has(withoutException(one)))
      found.push(`${one} is refused from now on`)
  return found
}

const tableOf = (one: string): string => one.slice(0, one.indexOf(':'))

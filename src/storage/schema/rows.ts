import { snake } from '../../core/snake-case.ts'

/**
 * The one place where rows (snake_case, flags as 0/1, JSON as text) become values (camelCase, booleans,
 * objects) and back.
 */

type Camel<S extends string> = S extends `${infer A}_${infer B}` ? `${A}${Capitalize<Camel<B>>}` : S

type ValueOf<Row, Key extends keyof Row, Json, Flags> = Key extends Json
  ? null extends Row[Key]
    ? Record<string, unknown> | null
    : Record<string, unknown>
  : Key extends Flags
    ? null extends Row[Key]
      ? boolean | null
      : boolean
    : Row[Key]

export type Value<Row, Json extends keyof Row = never, Flags extends keyof Row = never> = {
  [Key in keyof Row & string as Camel<Key>]: ValueOf<Row, Key, Json, Flags>
}

type Shape<Row, Json extends keyof Row, Flags extends keyof Row> = {
  /** The value of a row, with only the columns it has. */
  read<R extends Partial<Row>>(row: R): Value<R, Json & keyof R, Flags & keyof R>
  /** The columns of a value. */
  write<V extends Partial<Value<Row, Json, Flags>>>(
    value: V,
  ): { [Key in keyof Row as Camel<Key & string> extends keyof V ? Key : never]: Row[Key] }
}

const camel = (column: string): string =>
  column.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())

const parsed = (cell: unknown) =>
  cell === null ? null : cell === '{}' ? {} : cell === '[]' ? [] : JSON.parse(cell as string)

type Kind = 'plain' | 'json' | 'flag'

/** Fields that are read as one object from several columns; null if the first column is. */
type Groups<Row> = Readonly<Record<string, Readonly<Record<string, keyof Row & string>>>>

/** How objects with these names, in this order, are converted. */
type Plan = { names: readonly string[]; make: (from: object) => object }

/** Limit for each kind: partial values come with many combinations of names. */
const maxPlans = 64

/** Converts by the plan for the object's names, which the first such object creates. */
function convert(plans: Plan[], from: object, planFor: (names: readonly string[]) => Plan['make']): object {
  let plan = plans.find((one) => fits(one, from))
  if (!plan) {
    const names = Object.keys(from)
    plan = { names, make: planFor(names) }
    if (plans.length < maxPlans) plans.push(plan)
  }
  return plan.make(from)
}

function fits({ names }: Plan, from: object): boolean {
  let at = 0
  for (const name in from) if (name !== names[at++]) return false
  return at === names.length
}

/**
 * Written as text of one object literal, because a list has thousands of cells and a loop over them costs a third of its
 * requests (docs/decisions/performance.md). The columns are those of our own queries.
 */
function reading(
  columns: readonly string[],
  kindOf: (column: string) => Kind,
  groups: Groups<Record<string, unknown>>,
): Plan['make'] {
  const cellOf = (column: string) => `row[${JSON.stringify(column)}]`
  const written = (column: string) => {
    const cell = cellOf(column)
    const kind = kindOf(column)
    if (kind === 'json') return `parsed(${cell})`
    return kind === 'flag' ? `(${cell} === null ? null : ${cell} === 1)` : cell
  }
  // A group of which some columns were not selected is read column by column.
  const whole = Object.entries(groups).filter(([, parts]) =>
    Object.values(parts).every((column) => columns.includes(column)),
  )
  const within = new Set(whole.flatMap(([, parts]) => Object.values(parts)))
  const alone = columns.filter((column) => !within.has(column))
  const fields = [
    ...alone.map((column) => `${JSON.stringify(camel(column))}: ${written(column)}`),
    ...whole.map(([field, parts]) => {
      const inner = Object.entries(parts).map(
        ([name, column]) => `${JSON.stringify(name)}: ${written(column)}`,
      )
      const [first = ''] = Object.values(parts)
      return `${JSON.stringify(field)}: ${cellOf(first)} === null ? null : { ${inner.join(', ')} }`
    }),
  ]
  const build = new Function('parsed', `return (row) => ({ ${fields.join(', ')} })`)
  return build(parsed) as Plan['make']
}

/** The reverse. The fields are those of our own types. */
function writing(fields: readonly string[], kindOf: (column: string) => Kind): Plan['make'] {
  const written = (field: string, column: string) => {
    const value = `value[${JSON.stringify(field)}]`
    const kind = kindOf(column)
    if (kind === 'plain') return value
    return `${value} === null ? null : ${kind === 'json' ? `JSON.stringify(${value})` : `${value} ? 1 : 0`}`
  }
  const cells = fields.map((field) => {
    const column = snake(field)
    return `${JSON.stringify(column)}: ${written(field, column)}`
  })
  return new Function('value', `return { ${cells.join(', ')} }`) as Plan['make']
}

/** How rows of a table are read and written, given the columns that hold JSON and those that are flags. */
export const rowsOf =
  <Row>() =>
  <Json extends keyof Row = never, Flags extends keyof Row = never>(
    kinds: { json?: readonly Json[]; flags?: readonly Flags[]; groups?: Groups<Row> } = {},
  ): Shape<Row, Json, Flags> => {
    const json = new Set<PropertyKey>(kinds.json)
    const flags = new Set<PropertyKey>(kinds.flags)
    const kindOf = (column: string): Kind =>
      json.has(column) ? 'json' : flags.has(column) ? 'flag' : 'plain'
    const groups: Groups<Record<string, unknown>> = kinds.groups ?? {}
    const read: Plan[] = []
    const written: Plan[] = []
    return {
      read: (row) => convert(read, row, (columns) => reading(columns, kindOf, groups)) as never,
      write: (value) => convert(written, value, (fields) => writing(fields, kindOf)) as never,
    }
  }

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
  /** The value of a row; only the columns it has. */
  read<R extends Partial<Row>>(row: R): Value<R, Json & keyof R, Flags & keyof R>
  /** The columns of a value. */
  write<V extends Partial<Value<Row, Json, Flags>>>(
    value: V,
  ): { [Key in keyof Row as Camel<Key & string> extends keyof V ? Key : never]: Row[Key] }
}

const camel = (column: string): string =>
  column.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
const snake = (field: string): string => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** What `make` gave for a name, worked out once. */
function memo<T>(make: (name: string) => T & {}): (name: string) => T {
  const known = new Map<string, T>()
  return (name) => {
    const found = known.get(name)
    if (found !== undefined) return found
    const made = make(name)
    known.set(name, made)
    return made
  }
}

const toColumn = memo(snake)

const parsed = (cell: unknown) =>
  cell === null ? null : cell === '{}' ? {} : cell === '[]' ? [] : JSON.parse(cell as string)

type Kind = 'plain' | 'json' | 'flag'

/** Fields that are read as an object of several columns, by their names in it; null where the first of them is. */
type Groups<Row> = Readonly<Record<string, Readonly<Record<string, keyof Row & string>>>>

/** How rows with these columns, in this order, become values. */
type Plan = { columns: readonly string[]; make: (row: object) => object }

function fits({ columns }: Plan, row: object): boolean {
  let at = 0
  for (const column in row) if (column !== columns[at++]) return false
  return at === columns.length
}

/**
 * Written out as one object literal, because a list is made of thousands of cells: thirty times as fast as
 * setting field after field. The columns are those of our own queries.
 */
function planFor(
  columns: readonly string[],
  kindOf: (column: string) => Kind,
  groups: Groups<Record<string, unknown>>,
): Plan {
  const cellOf = (column: string) => `row[${JSON.stringify(column)}]`
  const written = (column: string) => {
    const cell = cellOf(column)
    const kind = kindOf(column)
    if (kind === 'json') return `parsed(${cell})`
    return kind === 'flag' ? `(${cell} === null ? null : ${cell} === 1)` : cell
  }
  // One whose columns were not all asked for is told column by column.
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
  return { columns, make: build(parsed) as Plan['make'] }
}

/** How rows of a table are read and written, given which columns hold JSON and which are flags. */
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
    const plans: Plan[] = []
    return {
      read(row) {
        let plan = plans.find((one) => fits(one, row))
        if (!plan) {
          plan = planFor(Object.keys(row), kindOf, groups)
          plans.push(plan)
        }
        return plan.make(row) as never
      },
      write(value) {
        const row: Record<string, unknown> = {}
        for (const field in value) {
          const column = toColumn(field)
          const cell = value[field] as unknown
          row[column] =
            cell === null
              ? null
              : json.has(column)
                ? JSON.stringify(cell)
                : flags.has(column)
                  ? cell
                    ? 1
                    : 0
                  : cell
        }
        return row as never
      },
    }
  }

import { type AliasedRawBuilder, sql } from 'kysely'
import { toStorable } from '../../core/text.ts'
import { byDialect } from './compilers.ts'

export type Cells = Record<string, string | number | null>
export type Columns<Row> = { [Name in keyof Row]: 'text' | 'bigint' | 'double precision' }

/**
 * Passes rows to a statement in one parameter: the statement is the same for any number of rows, and takes one round
 * trip. `of` makes the parameter, `as` the table to query.
 */
export function rowList<Row extends Record<string, string | number | null>>(columns: Columns<Row>) {
  const names = Object.keys(columns)
  const cells = names.map((name, at) => {
    const type = sql.raw(columns[name]!)
    return sql`cast(value ->> ${sql.lit(at)} as ${type}) as ${sql.ref(name)}`
  })
  return {
    /** Cleans texts of what either database refuses in JSON: one such text would fail all rows. */
    of: (rows: readonly Row[]): string =>
      JSON.stringify(rows.map((row) => names.map((name) => storableCell(row[name])))),
    as<Alias extends string>(parameter: string, alias: Alias): AliasedRawBuilder<Row, Alias> {
      const elements = byDialect({
        sqlite: sql`json_each(${parameter})`,
        // With json each cell would be searched from the beginning of its row.
        postgres: sql`jsonb_array_elements(cast(${parameter} as jsonb))`,
      })
      return sql<Row>`(select ${sql.join(cells)} from ${elements})`.as(alias)
    },
  }
}

const storableCell = (cell: string | number | null | undefined) =>
  typeof cell === 'string' && (cell.includes('\u0000') || !cell.isWellFormed()) ? toStorable(cell) : cell

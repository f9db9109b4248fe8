import { sql } from 'kysely'
import { sealPending } from '../../src/audit/outbox.ts'
import type { Storage } from '../../src/storage/open.ts'

export type Size = { rows: number; bytes: number; longest: number }

/** The rows and bytes of each table, and its longest column value. */
export async function tableSizes(storage: Storage): Promise<Map<string, Size>> {
  await sealPending(storage)
  const { read } = storage
  const lengthOf = (column: string) =>
    storage.traits.serialWrites
      ? sql`coalesce(octet_length(${sql.ref(column)}), 0)`
      : sql`coalesce(octet_length(${sql.ref(column)}::text), 0)`
  const longestOf = storage.traits.serialWrites ? sql`max` : sql`greatest`
  const found = new Map<string, Size>()
  for (const { name, columns } of await read.introspection.getTables()) {
    const lengths = columns.map((one) => lengthOf(one.name))
    const { rows } = await sql<Record<keyof Size, number | string>>`
      select count(*) as rows, coalesce(sum(${sql.join(lengths, sql` + `)}), 0) as bytes,
        coalesce(max(${longestOf}(${sql.join(lengths)}, 0)), 0) as longest from ${sql.table(name)}`.execute(
      read,
    )
    const { rows: count, bytes, longest } = rows[0]!
    found.set(name, { rows: Number(count), bytes: Number(bytes), longest: Number(longest) })
  }
  return found
}

/** The number of rows of each table, which is much faster. */
export async function tableRows(storage: Storage): Promise<Map<string, number>> {
  await sealPending(storage)
  const { read } = storage
  const counts = (await read.introspection.getTables()).map(
    ({ name }) => sql`select ${sql.lit(name)} as name, count(*) as rows from ${sql.table(name)}`,
  )
  const { rows: found } = await sql<{ name: string; rows: number | string }>`
    ${sql.join(counts, sql` union all `)}`.execute(read)
  return new Map(found.map(({ name, rows }) => [name, Number(rows)]))
}

/** Tables with more rows than before, or with more than `by` more bytes. */
export const grownTables = (before: Map<string, Size>, after: Map<string, Size>, by = 0): string[] =>
  [...after].flatMap(([name, { rows: many, bytes }]) => {
    const was = before.get(name)!
    return many > was.rows || bytes > was.bytes + by ? [name] : []
  })

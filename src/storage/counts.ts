import type { SelectQueryBuilder } from 'kysely'

/** How many rows a query finds; it has not selected anything yet. */
export async function countOf<DB, TB extends keyof DB>(
  found: SelectQueryBuilder<DB, TB, object>,
): Promise<number> {
  const counted = found.select((eb) => eb.fn.countAll<number>().as('total'))
  const row = await counted.executeTakeFirstOrThrow()
  return (row as { total: number }).total
}

import type { Schema } from '../src/storage/columns.ts'

/** How much could not be set aside, because as much was as may be. */
export async function up({ db, text, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('set_aside_lost')
    .addColumn('source', text, (column) => column.primaryKey())
    .addColumn('count', bigint, (column) => column.notNull())
    .addColumn('reason', text, (column) => column.notNull())
    .addColumn('last_at', text, (column) => column.notNull())
    .execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** One row that readiness changes, to see that the database takes changes. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('probes')
    .addColumn('id', 'integer', (column) => column.primaryKey())
    .addColumn('at', text, (column) => column.notNull())
    .execute()
  await db.insertInto('probes').values({ id: 1, at: '' }).execute()
}

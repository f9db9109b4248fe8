import type { Schema } from '../src/storage/columns.ts'

/** Which keys a database is used with: a print of each, which tells nothing of it. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('key_prints')
    .addColumn('name', text, (column) => column.primaryKey())
    .addColumn('print', text, (column) => column.notNull())
    .addColumn('since', text, (column) => column.notNull())
    .execute()
}

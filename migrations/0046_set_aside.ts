import type { Schema } from '../src/storage/columns.ts'

/** What was to be written and the database did not take, as it was: it holds nobody else, and is not lost. */
export async function up({ db, text, counter }: Schema): Promise<void> {
  await counter(db.schema.createTable('set_aside'), 'id')
    .addColumn('source', text, (column) => column.notNull())
    .addColumn('org_id', text)
    .addColumn('entry', text, (column) => column.notNull())
    .addColumn('reason', text, (column) => column.notNull())
    .addColumn('created_at', text, (column) => column.notNull())
    .execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** The processes that serve the database, and the fingerprints of the secrets that each of them has. */
export async function up({ db, text, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('service_processes')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('host', text, (c) => c.notNull())
    .addColumn('pid', 'integer', (c) => c.notNull())
    .addColumn('started_at', text, (c) => c.notNull())
    .addColumn('seen_at', bigint, (c) => c.notNull())
    .addColumn('prints', text, (c) => c.notNull())
    .execute()
}

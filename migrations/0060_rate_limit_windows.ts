import type { Schema } from '../src/storage/columns.ts'

/** Windows of the rate limits that all processes count together. */
export async function up({ db, text, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('rate_limit_windows')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('events', text, (c) => c.notNull())
    .addColumn('expires_at', bigint, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('rate_limit_windows_expiry')
    .on('rate_limit_windows')
    .column('expires_at')
    .execute()
}

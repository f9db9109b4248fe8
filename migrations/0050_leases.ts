import type { Schema } from '../src/storage/columns.ts'

/** Background work that one of several processes does. */
export async function up({ db, text, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('leases')
    .addColumn('name', text, (c) => c.primaryKey())
    .addColumn('holder', text)
    .addColumn('epoch', bigint, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
}

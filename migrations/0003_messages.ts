import type { Schema } from '../src/storage/columns.ts'

/** Mail that waits to be sent, and codes sent to phones by the development outbox. */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema
    .createTable('mails')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('kind', text, (c) => c.notNull())
    .addColumn('content', text, (c) => c.notNull())
    .addColumn('attempts', integer, (c) => c.notNull())
    .addColumn('due_at', text, (c) => c.notNull())
    .addColumn('lease', text)
    .addColumn('expires_at', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('mails_due').on('mails').columns(['due_at', 'id']).execute()

  await db.schema
    .createTable('phone_codes')
    .addColumn('phone_number', text, (c) => c.primaryKey())
    .addColumn('code_hash', text, (c) => c.notNull())
    .addColumn('tries', integer, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('phone_codes_expiry').on('phone_codes').column('expires_at').execute()
}

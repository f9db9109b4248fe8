import type { Schema } from '../src/storage/columns.ts'

/** Password resets, registrations that wait for a proof of the address, set-ups that keep recovery codes. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('password_reset_requests')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('email_key', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()

  await db.schema
    .createTable('password_resets')
    .addColumn('user_id', text, (c) => c.primaryKey().references('users.id').onDelete('cascade'))
    .addColumn('token_hash', text, (c) => c.notNull().unique())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('password_resets_expiry').on('password_resets').column('expires_at').execute()

  await db.schema
    .createTable('registrations')
    .addColumn('token_hash', text, (c) => c.primaryKey())
    .addColumn('content', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('registrations_expiry').on('registrations').column('expires_at').execute()

  // Nothing in it lives longer than ten minutes.
  await db.schema.dropTable('mfa_setups').execute()
  await db.schema
    .createTable('mfa_setups')
    .addColumn('user_id', text, (c) => c.primaryKey().references('users.id').onDelete('cascade'))
    .addColumn('content', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
}

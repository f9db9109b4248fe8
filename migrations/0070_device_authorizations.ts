import type { Schema } from '../src/storage/columns.ts'

/** Sign-ins of terminals that a person approves in a browser elsewhere. */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema
    .createTable('device_authorizations')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('device_code_hash', text, (c) => c.notNull().unique())
    .addColumn('user_code_hash', text, (c) => c.notNull().unique())
    .addColumn('client', text, (c) => c.notNull())
    .addColumn('ip', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('user_id', text, (c) => c.references('users.id').onDelete('cascade'))
    .addColumn('context', text)
    .addColumn('mfa', integer)
    .addColumn('sso_provider_id', text, (c) => c.references('sso_providers.id').onDelete('cascade'))
    .addColumn('auth_epoch', integer)
    .addColumn('mfa_epoch', integer)
    .addColumn('proved_at', text)
    .addColumn('ends_by', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  for (const column of ['user_id', 'sso_provider_id', 'expires_at']) {
    await db.schema
      .createIndex(`device_authorizations_${column.replace(/_(id|at)$/, '')}`)
      .on('device_authorizations')
      .column(column)
      .execute()
  }
}

import type { Schema } from '../src/storage/columns.ts'

/**
 * Signing in at an identity provider: in which browser a sign-in began and where it goes on, the codes that end it,
 * assertions that were used, and what a trial of a provider has shown. A session knows the provider it came in by, and
 * ends with it.
 */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema.alterTable('sso_providers').addColumn('token_auth', text).execute()
  for (const column of ['browser_hash', 'challenge', 'provider_version', 'test_id']) {
    await db.schema.alterTable('sso_sessions').addColumn(column, text).execute()
  }
  await db.schema
    .alterTable('sessions')
    .addColumn('sso_provider_id', text, (c) => c.references('sso_providers.id').onDelete('cascade'))
    .execute()
  await db.schema.createIndex('sessions_sso_provider').on('sessions').column('sso_provider_id').execute()

  await db.schema
    .createTable('sso_exchanges')
    .addColumn('code_hash', text, (c) => c.primaryKey())
    .addColumn('provider_id', text, (c) => c.notNull().references('sso_providers.id').onDelete('cascade'))
    .addColumn('user_id', text, (c) => c.notNull().references('users.id').onDelete('cascade'))
    .addColumn('mfa', integer, (c) => c.notNull())
    .addColumn('challenge', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('sso_exchanges_provider').on('sso_exchanges').column('provider_id').execute()
  await db.schema.createIndex('sso_exchanges_user').on('sso_exchanges').column('user_id').execute()
  await db.schema.createIndex('sso_exchanges_expiry').on('sso_exchanges').column('expires_at').execute()

  await db.schema
    .createTable('sso_assertions')
    .addColumn('id_hash', text, (c) => c.primaryKey())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('sso_assertions_expiry').on('sso_assertions').column('expires_at').execute()

  await db.schema
    .createTable('sso_tests')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('provider_id', text, (c) => c.notNull().references('sso_providers.id').onDelete('cascade'))
    .addColumn('token_hash', text, (c) => c.notNull().unique())
    .addColumn('redirect_path', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('steps', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('sso_tests_provider').on('sso_tests').column('provider_id').execute()
  await db.schema.createIndex('sso_tests_expiry').on('sso_tests').column('expires_at').execute()
}

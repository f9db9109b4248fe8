import type { Schema } from '../src/storage/columns.ts'

/**
 * Single sign-on: the identity providers of organizations, sign-ins that are under way at one of them, and who its
 * subjects are here. A provider takes with it what is known through it.
 */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema
    .createTable('sso_providers')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('type', text, (c) => c.notNull())
    .addColumn('status', text, (c) => c.notNull())
    .addColumn('preset', text)
    .addColumn('issuer', text)
    .addColumn('client_id', text)
    .addColumn('client_secret', text)
    .addColumn('authorization_url', text)
    .addColumn('token_url', text)
    .addColumn('user_info_url', text)
    .addColumn('jwks_url', text)
    .addColumn('scopes', text, (c) => c.notNull())
    .addColumn('entity_id', text)
    .addColumn('sso_url', text)
    .addColumn('certificate', text)
    .addColumn('attribute_mapping', text, (c) => c.notNull())
    .addColumn('auto_provision', integer, (c) => c.notNull())
    .addColumn('default_role_id', text, (c) => c.references('roles.id').onDelete('set null'))
    .addColumn('allowed_domains', text)
    .addColumn('enforce_sso', integer, (c) => c.notNull())
    .addColumn('created_by', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('sso_providers_org')
    .on('sso_providers')
    .columns(['org_id', 'created_at', 'id'])
    .execute()
  await db.schema.createIndex('sso_providers_role').on('sso_providers').column('default_role_id').execute()

  await db.schema
    .createTable('sso_sessions')
    .addColumn('state_hash', text, (c) => c.primaryKey())
    .addColumn('provider_id', text, (c) => c.notNull().references('sso_providers.id').onDelete('cascade'))
    .addColumn('nonce', text, (c) => c.notNull())
    .addColumn('code_verifier', text, (c) => c.notNull())
    .addColumn('redirect_path', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('sso_sessions_provider').on('sso_sessions').column('provider_id').execute()
  await db.schema.createIndex('sso_sessions_expiry').on('sso_sessions').column('expires_at').execute()

  await db.schema
    .createTable('sso_identities')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('provider_id', text, (c) => c.notNull().references('sso_providers.id').onDelete('cascade'))
    .addColumn('user_id', text, (c) => c.notNull().references('users.id').onDelete('cascade'))
    .addColumn('external_id', text, (c) => c.notNull())
    .addColumn('email', text, (c) => c.notNull())
    .addColumn('profile', text, (c) => c.notNull())
    .addColumn('access_token', text)
    .addColumn('refresh_token', text)
    .addColumn('token_expires_at', text)
    .addColumn('last_login_at', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('sso_identities_subject')
    .unique()
    .on('sso_identities')
    .columns(['provider_id', 'external_id'])
    .execute()
  await db.schema
    .createIndex('sso_identities_user')
    .unique()
    .on('sso_identities')
    .columns(['user_id', 'provider_id'])
    .execute()
  await db.schema
    .createIndex('sso_identities_login')
    .on('sso_identities')
    .columns(['provider_id', 'last_login_at'])
    .execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** What a provider of SAML is asked with: for which name, for another sign-in, and signed with a key of our own. */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema.alterTable('sso_providers').addColumn('name_id_format', text).execute()
  for (const column of ['force_authn', 'sign_requests']) {
    await db.schema
      .alterTable('sso_providers')
      .addColumn(column, integer, (c) => c.notNull().defaultTo(0))
      .execute()
  }
  await db.schema
    .createTable('saml_keys')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('private_key', text, (c) => c.notNull())
    .addColumn('certificate', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()
}

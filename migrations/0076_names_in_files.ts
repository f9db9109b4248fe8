import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** What files call what they own, as somebody may have given it another name since; and what each apply has changed of that. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('config_applies').addColumn('names', text).execute()
  await db.schema.alterTable('config_objects').addColumn('name', text).execute()
  const named = [
    { section: 'organizations', table: 'organizations', column: 'slug' },
    { section: 'sites', table: 'sites', column: 'name' },
    { section: 'roles', table: 'roles', column: 'name' },
    { section: 'filters', table: 'saved_filters', column: 'name' },
    { section: 'deviceGroups', table: 'device_groups', column: 'name' },
    { section: 'scripts', table: 'scripts', column: 'name' },
    { section: 'webhooks', table: 'webhooks', column: 'name' },
    { section: 'trustPolicies', table: 'trust_policies', column: 'name' },
    { section: 'ssoProviders', table: 'sso_providers', column: 'name' },
    { section: 'apiKeys', table: 'api_keys', column: 'name' },
    { section: 'enrollmentKeys', table: 'enrollment_keys', column: 'name' },
  ]
  for (const { section, table, column } of named)
    await sql`update config_objects
      set name = (select ${sql.ref(`named.${column}`)} from ${sql.table(table)} as named where named.id = config_objects.object_id)
      where section = ${section}`.execute(db)
}

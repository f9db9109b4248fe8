import type { Schema } from '../src/storage/columns.ts'

/** Roles by name within their owner, and their holders within a tenant, page by page. */
export async function up({ db }: Schema): Promise<void> {
  const indexes = [
    ['roles_org_name', 'roles', ['org_id', 'name', 'id']],
    ['roles_partner_name', 'roles', ['partner_id', 'name', 'id']],
    ['roles_built_in', 'roles', ['is_system', 'scope', 'name', 'id']],
    ['partner_memberships_holders', 'partner_memberships', ['role_id', 'partner_id', 'id']],
    ['organization_memberships_holders', 'organization_memberships', ['role_id', 'org_id', 'id']],
  ] as const
  for (const [name, table, columns] of indexes) {
    await db.schema
      .createIndex(name)
      .on(table)
      .columns([...columns])
      .execute()
  }
  // Each is the beginning of one of those above.
  const replaced = ['roles_org', 'roles_partner', 'partner_memberships_role', 'organization_memberships_role']
  for (const name of replaced) await db.schema.dropIndex(name).execute()
}

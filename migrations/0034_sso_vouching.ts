import type { Schema } from '../src/storage/columns.ts'

/**
 * An identity provider vouches for those alone who may do no more than whoever configured it. Those that are there are
 * bound to what everybody may do who could have configured them: members of the organization, or of its partner, who
 * hold organizations:write. Where the one who made it is no longer among them, it keeps the role for new people, which
 * was asked of everybody who changed it.
 */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .alterTable('sso_providers')
    .addColumn('vouches', text, (c) => c.notNull().defaultTo('[]'))
    .execute()
  await db.schema.alterTable('sso_providers').addColumn('vouched_by', text).execute()

  const providers = await db
    .selectFrom('sso_providers')
    .innerJoin('organizations', 'organizations.id', 'sso_providers.org_id')
    .select(['sso_providers.id', 'org_id', 'partner_id', 'default_role_id', 'created_by'])
    .execute()
  if (providers.length === 0) return

  const parents = new Map(
    (await db.selectFrom('roles').select(['id', 'parent_role_id']).execute()).map((role) => [
      role.id as string,
      role.parent_role_id as string | null,
    ]),
  )
  const own = new Map<string, string[]>()
  for (const { role_id, permission } of await db.selectFrom('role_permissions').selectAll().execute()) {
    own.set(role_id, [...(own.get(role_id) ?? []), permission])
  }
  const every = [...new Set(['*:*', ...[...own.values()].flat()])].sort()
  const grants = (roleId: string | null): Set<string> => {
    const seen = new Set<string>()
    for (let id = roleId; id !== null && !seen.has(id); id = parents.get(id) ?? null) seen.add(id)
    return new Set([...seen].flatMap((id) => own.get(id) ?? []))
  }

  for (const { id, org_id, partner_id, default_role_id, created_by } of providers) {
    const inOrg = await db
      .selectFrom('organization_memberships')
      .select(['user_id', 'role_id'])
      .where('org_id', '=', org_id)
      .where('disabled_at', 'is', null)
      .where('narrowed', '=', 0)
      .where('grouped', '=', 0)
      .execute()
    const inPartner = await db
      .selectFrom('partner_memberships')
      .select(['user_id', 'role_id'])
      .where('partner_id', '=', partner_id)
      .where('disabled_at', 'is', null)
      .where('org_access', '<>', 'none')
      .execute()
    const system = await db
      .selectFrom('users')
      .select('id')
      .where('id', '=', created_by)
      .where('is_system', '=', 1)
      .execute()
    const configurers = [...inOrg, ...inPartner]
      .map(({ user_id, role_id }) => ({ user: user_id as string, held: grants(role_id) }))
      .filter(({ held }) => holds(held, 'organizations:write'))
    const isThere = system.length > 0 || configurers.some(({ user }) => user === created_by)
    const vouches = isThere
      ? every.filter((permission) => configurers.every(({ held }) => holds(held, permission)))
      : [...grants(default_role_id)].sort()
    await db
      .updateTable('sso_providers')
      .set({ vouches: JSON.stringify(vouches), vouched_by: isThere ? created_by : null })
      .where('id', '=', id)
      .execute()
  }
}

function holds(held: ReadonlySet<string>, permission: string): boolean {
  const [resource, action] = permission.split(':')
  return [permission, '*:*', `${resource}:*`, `*:${action}`].some((one) => held.has(one))
}

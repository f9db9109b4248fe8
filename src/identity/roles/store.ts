import type { Expression, ExpressionBuilder, SqlBool } from 'kysely'
import type { Db } from '../../storage/open.ts'
import { rowsOf, type Value } from '../../storage/rows.ts'
import type { RoleRow, Tables } from '../../storage/tables.ts'
import type { Tenant } from '../rules.ts'

const roleRows = rowsOf<RoleRow>()({ flags: ['is_system', 'force_mfa'] })

export type Role = Value<RoleRow, never, 'is_system' | 'force_mfa'>

/** Roles that can be held in a tenant: the built-in ones of its kind, and its own. */
function heldIn(eb: ExpressionBuilder<Tables, 'roles'>, tenant: Tenant): Expression<SqlBool> {
  const own =
    tenant.kind === 'partner'
      ? eb.and([eb('partner_id', '=', tenant.partnerId), eb('org_id', 'is', null)])
      : eb('org_id', '=', tenant.orgId)
  return eb.and([eb('scope', '=', tenant.kind), eb.or([eb('is_system', '=', 1), own])])
}

export async function findRole(db: Db, tenant: Tenant, id: string): Promise<Role | undefined> {
  const found = db.selectFrom('roles').selectAll().where('id', '=', id)
  const row = await found.where((eb) => heldIn(eb, tenant)).executeTakeFirst()
  return row && roleRows.read(row)
}

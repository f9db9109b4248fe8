import type { Schema } from '../src/storage/columns.ts'

/** Invitations, memberships that can be disabled, and groups of devices that a membership may be narrowed to. */
export async function up({ db, text, integer }: Schema): Promise<void> {
  await db.schema.alterTable('partner_memberships').addColumn('disabled_at', text).execute()
  await db.schema.alterTable('organization_memberships').addColumn('disabled_at', text).execute()
  await db.schema
    .alterTable('organization_memberships')
    .addColumn('grouped', integer, (c) => c.notNull().defaultTo(0))
    .execute()

  await db.schema.createIndex('users_name').on('users').columns(['name', 'id']).execute()

  await db.schema
    .createTable('invitations')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('user_id', text, (c) => c.notNull().references('users.id').onDelete('cascade'))
    .addColumn('tenant_kind', text, (c) => c.notNull())
    .addColumn('tenant_id', text, (c) => c.notNull())
    .addColumn('token_hash', text, (c) => c.notNull().unique())
    .addColumn('expires_at', text, (c) => c.notNull())
    .addColumn('accepted_at', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .addUniqueConstraint('invitations_tenant', ['user_id', 'tenant_id'])
    .execute()
  await db.schema.createIndex('invitations_expiry').on('invitations').column('expires_at').execute()

  await db.schema
    .createTable('device_groups')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
    .addColumn('site_id', text, (c) => c.references('sites.id'))
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('updated_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('device_groups_org')
    .on('device_groups')
    .columns(['org_id', 'name', 'id'])
    .execute()
  await db.schema.createIndex('device_groups_site').on('device_groups').column('site_id').execute()

  await db.schema
    .createTable('device_group_devices')
    .addColumn('group_id', text, (c) => c.notNull().references('device_groups.id').onDelete('cascade'))
    .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
    .addPrimaryKeyConstraint('device_group_devices_pk', ['group_id', 'device_id'])
    .execute()
  await db.schema
    .createIndex('device_group_devices_device')
    .on('device_group_devices')
    .column('device_id')
    .execute()

  await db.schema
    .createTable('organization_membership_groups')
    .addColumn('membership_id', text, (c) =>
      c.notNull().references('organization_memberships.id').onDelete('cascade'),
    )
    .addColumn('group_id', text, (c) => c.notNull().references('device_groups.id').onDelete('cascade'))
    .addPrimaryKeyConstraint('organization_membership_groups_pk', ['membership_id', 'group_id'])
    .execute()
}

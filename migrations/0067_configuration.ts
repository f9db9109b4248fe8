import type { Schema } from '../src/storage/columns.ts'

/** Sets of configuration files, and which object belongs to which. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('config_sets')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('partner_id', text, (c) => c.notNull().references('partners.id'))
    .addColumn('org_id', text, (c) => c.references('organizations.id'))
    .addColumn('owner', text, (c) => c.notNull())
    .addColumn('name', text, (c) => c.notNull())
    .addColumn('revision', text)
    .addColumn('applied_at', text, (c) => c.notNull())
    .addColumn('applied_by', text, (c) => c.notNull())
    .addUniqueConstraint('config_sets_name', ['owner', 'name'])
    .execute()
  await db.schema
    .createTable('config_objects')
    .addColumn('object_id', text, (c) => c.primaryKey())
    .addColumn('set_id', text, (c) => c.notNull().references('config_sets.id').onDelete('cascade'))
    .addColumn('section', text, (c) => c.notNull())
    .addColumn('partner_id', text, (c) => c.notNull().references('partners.id'))
    .addColumn('org_id', text, (c) => c.references('organizations.id'))
    .execute()
  await db.schema
    .createIndex('config_objects_set')
    .on('config_objects')
    .columns(['set_id', 'section'])
    .execute()
  await db.schema
    .createIndex('config_objects_org')
    .on('config_objects')
    .columns(['org_id', 'section'])
    .execute()
  await db.schema
    .createIndex('config_objects_partner')
    .on('config_objects')
    .columns(['partner_id', 'section'])
    .execute()
  await db.schema.createIndex('config_sets_org').on('config_sets').column('org_id').execute()
  await db.schema.createIndex('config_sets_partner').on('config_sets').column('partner_id').execute()
}

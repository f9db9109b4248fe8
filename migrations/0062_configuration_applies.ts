import type { Schema } from '../src/storage/columns.ts'

/** What was applied from configuration files, with the values that a rollback needs as long as they are kept. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('config_applies')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('partner_id', text, (c) => c.notNull().references('partners.id'))
    .addColumn('org_id', text, (c) => c.references('organizations.id'))
    .addColumn('owner', text, (c) => c.notNull())
    .addColumn('set_name', text, (c) => c.notNull())
    .addColumn('revision', text)
    .addColumn('applied_at', text, (c) => c.notNull())
    .addColumn('applied_by', text, (c) => c.notNull())
    .addColumn('rolls_back', text)
    .addColumn('characters', 'integer', (c) => c.notNull())
    .execute()
  await db.schema
    .createIndex('config_applies_owner')
    .on('config_applies')
    .columns(['owner', 'applied_at'])
    .execute()
  await db.schema.createIndex('config_applies_age').on('config_applies').column('applied_at').execute()
  await db.schema.createIndex('config_applies_org').on('config_applies').column('org_id').execute()
  await db.schema.createIndex('config_applies_partner').on('config_applies').column('partner_id').execute()
  await db.schema
    .createTable('config_changes')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('apply_id', text, (c) => c.notNull().references('config_applies.id').onDelete('cascade'))
    .addColumn('position', 'integer', (c) => c.notNull())
    .addColumn('section', text, (c) => c.notNull())
    .addColumn('action', text, (c) => c.notNull())
    .addColumn('org_id', text)
    .addColumn('content', text)
    .execute()
  await db.schema
    .createIndex('config_changes_apply')
    .on('config_changes')
    .columns(['apply_id', 'position'])
    .execute()
}

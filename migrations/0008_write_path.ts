import type { Schema } from '../src/storage/columns.ts'

/**
 * What every mint and every audit entry paid for without need. Ids are UUIDv7, so a list by creation walks
 * them; few keys have a site; and an entry that must follow the one before it cannot fork its chain.
 */
export async function up({ db, dialect, text, bigint, appendOnly, linked }: Schema): Promise<void> {
  for (const name of ['enrollment_keys_org', 'enrollment_keys_created', 'enrollment_keys_site']) {
    await db.schema.dropIndex(name).execute()
  }
  await db.schema.createIndex('enrollment_keys_org').on('enrollment_keys').columns(['org_id', 'id']).execute()
  await db.schema
    .createIndex('enrollment_keys_site')
    .on('enrollment_keys')
    .column('site_id')
    .where('site_id', 'is not', null)
    .execute()

  if (dialect === 'postgres') {
    await db.schema.alterTable('audit_logs').dropConstraint('audit_logs_no_fork').execute()
  } else {
    // SQLite keeps a table's constraints for as long as the table.
    await db.schema.alterTable('audit_logs').renameTo('audit_logs_before').execute()
    await db.schema
      .createTable('audit_logs')
      .addColumn('chain', text, (c) => c.notNull())
      .addColumn('seq', bigint, (c) => c.notNull())
      .addColumn('id', text, (c) => c.notNull().unique())
      .addColumn('checksum', text, (c) => c.notNull())
      .addColumn('prev_checksum', text, (c) => c.notNull())
      .addColumn('canonical', text, (c) => c.notNull())
      .addColumn('timestamp', text, (c) => c.notNull())
      .addColumn('actor_id', text, (c) => c.notNull())
      .addColumn('actor_email', text)
      .addColumn('action', text, (c) => c.notNull())
      .addColumn('resource_type', text, (c) => c.notNull())
      .addColumn('resource_id', text)
      .addColumn('resource_name', text)
      .addColumn('result', text, (c) => c.notNull())
      .addPrimaryKeyConstraint('audit_logs_pk', ['chain', 'seq'])
      .execute()
    await db.insertInto('audit_logs').expression(db.selectFrom('audit_logs_before').selectAll()).execute()
    await db.schema.dropTable('audit_logs_before').execute()
    await db.schema.createIndex('audit_logs_time').on('audit_logs').columns(['timestamp', 'id']).execute()
    await db.schema
      .createIndex('audit_logs_chain_time')
      .on('audit_logs')
      .columns(['chain', 'timestamp', 'id'])
      .execute()
    await appendOnly('audit_logs')
  }
  await linked('audit_logs', { chain: 'chain', seq: 'seq', checksum: 'checksum', previous: 'prev_checksum' })
}

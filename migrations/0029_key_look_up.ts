import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * A hash goes anywhere in an index over it: every mint wrote a page of its own there, and split one in forty. Eight
 * digits tell keys apart as well, and take a fifth of the pages.
 */
export async function up({ db, dialect, text, integer }: Schema): Promise<void> {
  if (dialect === 'postgres') {
    await db.schema.alterTable('enrollment_keys').dropConstraint('enrollment_keys_key_hash_key').execute()
  } else {
    // SQLite keeps a table's constraints for as long as the table.
    await db.schema.alterTable('enrollment_keys').renameTo('enrollment_keys_before').execute()
    await db.schema
      .createTable('enrollment_keys')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
      .addColumn('site_id', text, (c) => c.references('sites.id'))
      .addColumn('name', text, (c) => c.notNull())
      .addColumn('key_hash', text, (c) => c.notNull())
      .addColumn('usage_count', integer, (c) => c.notNull())
      .addColumn('max_usage', integer)
      .addColumn('expires_at', text, (c) => c.notNull())
      .addColumn('created_by', text, (c) => c.notNull())
      .addColumn('created_at', text, (c) => c.notNull())
      .addColumn('last_used_at', text)
      .addColumn('last_device_id', text)
      .execute()
    const before = db.selectFrom('enrollment_keys_before').selectAll()
    await db.insertInto('enrollment_keys').expression(before).execute()
    await db.schema.dropTable('enrollment_keys_before').execute()
    await db.schema
      .createIndex('enrollment_keys_org')
      .on('enrollment_keys')
      .columns(['org_id', 'id'])
      .execute()
    await db.schema
      .createIndex('enrollment_keys_site')
      .on('enrollment_keys')
      .column('site_id')
      .where('site_id', 'is not', null)
      .execute()
  }
  await db.schema
    .createIndex('enrollment_keys_hash')
    .on('enrollment_keys')
    .expression(sql`substr(key_hash, 1, 8)`)
    .execute()
}

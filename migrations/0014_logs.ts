import type { Schema } from '../src/storage/columns.ts'

/**
 * What agents say of themselves and what their machines wrote down. Both are listed for one device, newest
 * first, and forgotten in the order they came in.
 */
export async function up({ db, text }: Schema): Promise<void> {
  const base = (table: string) =>
    db.schema
      .createTable(table)
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('device_id', text, (c) => c.notNull().references('devices.id').onDelete('cascade'))
      .addColumn('org_id', text, (c) => c.notNull().references('organizations.id'))
      .addColumn('timestamp', text, (c) => c.notNull())
      .addColumn('level', text, (c) => c.notNull())
      .addColumn('message', text, (c) => c.notNull())
      .addColumn('created_at', text, (c) => c.notNull())
  await base('agent_logs')
    .addColumn('component', text, (c) => c.notNull())
    .addColumn('fields', text)
    .addColumn('agent_version', text)
    .execute()
  await base('device_event_logs')
    .addColumn('category', text, (c) => c.notNull())
    .addColumn('source', text, (c) => c.notNull())
    .addColumn('event_id', text)
    .addColumn('details', text)
    .execute()
  for (const table of ['agent_logs', 'device_event_logs']) {
    await db.schema
      .createIndex(`${table}_device`)
      .on(table)
      .columns(['device_id', 'timestamp', 'id'])
      .execute()
    await db.schema.createIndex(`${table}_created`).on(table).column('created_at').execute()
  }
  await db.schema
    .createIndex('device_event_logs_event')
    .unique()
    .on('device_event_logs')
    .columns(['device_id', 'source', 'event_id'])
    .where('event_id', 'is not', null)
    .execute()
}

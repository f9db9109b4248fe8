import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * Logs in the order in which they came in: each entry has its place among all that came in of its device. And
 * which changes of its address a device was audited for.
 */
export async function up({ db, bigint, text }: Schema): Promise<void> {
  const devices = db.schema.alterTable('devices')
  await devices.addColumn('log_seq', bigint, (c) => c.notNull().defaultTo(0)).execute()
  await db.schema.alterTable('devices').addColumn('told_addresses', text).execute()
  for (const table of ['agent_logs', 'device_event_logs']) {
    await db.schema
      .alterTable(table)
      .addColumn('seq', bigint, (c) => c.notNull().defaultTo(0))
      .execute()
    await sql`update ${sql.table(table)} set seq = places.place from (
      select id as entry, row_number() over (partition by device_id order by created_at, id) as place
      from ${sql.table(table)}
    ) as places where places.entry = ${sql.table(table)}.id`.execute(db)
    await sql`update devices set log_seq = max_seq.seq from (
      select device_id, max(seq) as seq from ${sql.table(table)} group by device_id
    ) as max_seq where max_seq.device_id = devices.id and max_seq.seq > devices.log_seq`.execute(db)
    await db.schema.createIndex(`${table}_seq`).unique().on(table).columns(['device_id', 'seq']).execute()
  }
}

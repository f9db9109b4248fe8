import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** The tags of a device stand in its row as well: who reads devices, or looks for tags in all of them, has them there. */
export async function up({ db, dialect, text }: Schema): Promise<void> {
  await db.schema
    .alterTable('devices')
    .addColumn('tags', text, (c) => c.notNull().defaultTo('[]'))
    .execute()
  const list =
    dialect === 'sqlite' ? sql`json_group_array(tag order by tag)` : sql`json_agg(tag order by tag)::text`
  await sql`update devices set tags = (select ${list} from device_tags where device_id = devices.id)
    where id in (select device_id from device_tags)`.execute(db)
}

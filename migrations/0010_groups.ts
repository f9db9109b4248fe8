import type { Schema } from '../src/storage/columns.ts'

/** Device groups listed across organizations, and the end of what is kept of who came and went. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema.createIndex('device_groups_name').on('device_groups').columns(['name', 'id']).execute()
  await db.schema
    .createIndex('device_group_changes_time')
    .on('device_group_changes')
    .column('created_at')
    .execute()
}

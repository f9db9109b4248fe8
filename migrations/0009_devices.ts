import type { Schema } from '../src/storage/columns.ts'

/** The devices of one site in the order of their list. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema.dropIndex('devices_site').execute()
  await db.schema.createIndex('devices_site').on('devices').columns(['site_id', 'hostname', 'id']).execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** The recurring maintenance window of a device, as JSON: the only time when updates of its agent begin. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('devices').addColumn('maintenance_window', text).execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** Why the filter of a dynamic group could not be asked. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('device_groups').addColumn('evaluation_error', text).execute()
}

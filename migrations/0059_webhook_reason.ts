import type { Schema } from '../src/storage/columns.ts'

/** Why a webhook is paused, where the service itself paused it. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('webhooks').addColumn('status_reason', text).execute()
}

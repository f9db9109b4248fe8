import type { Schema } from '../src/storage/columns.ts'

/**
 * What came of a webhook's deliveries is counted beside its queue: who puts outcomes down and who gives out what
 * happened wait for each other no more.
 */
export async function up({ db, text, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('webhook_counts')
    .addColumn('webhook_id', text, (c) => c.primaryKey().references('webhooks.id').onDelete('cascade'))
    .addColumn('success_count', bigint, (c) => c.notNull())
    .addColumn('failure_count', bigint, (c) => c.notNull())
    .addColumn('last_delivery_at', text)
    .addColumn('last_success_at', text)
    .execute()
  const counts = ['success_count', 'failure_count', 'last_delivery_at', 'last_success_at'] as const
  await db
    .insertInto('webhook_counts')
    .columns(['webhook_id', ...counts])
    .expression(db.selectFrom('webhook_queues').select(['webhook_id', ...counts]))
    .execute()
  for (const column of counts) await db.schema.alterTable('webhook_queues').dropColumn(column).execute()
}

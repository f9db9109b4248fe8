import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** A delivery that is sent again is a delivery of its own, which names the one that it repeats. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('webhook_deliveries').addColumn('retry_of', text).execute()
  await db.schema
    .createIndex('webhook_deliveries_retries')
    .on('webhook_deliveries')
    .column('retry_of')
    .where(sql.ref('retry_of'), 'is not', null)
    .execute()
}

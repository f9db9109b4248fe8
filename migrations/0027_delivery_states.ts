import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * Nearly every delivery arrives, and is looked for by its number. The index by state holds the others alone: it was
 * written twice for each delivery, of which once to say that there is nothing more to look for.
 */
export async function up({ db }: Schema): Promise<void> {
  await db.schema.dropIndex('webhook_deliveries_status').execute()
  await db.schema
    .createIndex('webhook_deliveries_undelivered')
    .on('webhook_deliveries')
    .columns(['webhook_id', 'status', 'seq'])
    .where(sql.ref('status'), '<>', sql.lit('delivered'))
    .execute()
}

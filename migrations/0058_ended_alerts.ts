import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** The oldest resolved alerts of an organization make room for new ones. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema
    .createIndex('alerts_ended')
    .on('alerts')
    .columns(['org_id', 'id'])
    .where(sql.ref('resolved_at'), 'is not', null)
    .execute()
}

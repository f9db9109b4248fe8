import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** Every reading of all organizations leaves out what belongs to those that are deleted: which they are is found at once. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema
    .createIndex('organizations_gone')
    .on('organizations')
    .column('id')
    .where(sql.ref('deleted_at'), 'is not', null)
    .execute()
}

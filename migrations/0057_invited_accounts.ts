import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** Accounts that were only ever invited are found at once, to be deleted when no tenant invites them any more. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema
    .createIndex('users_invited')
    .on('users')
    .column('id')
    .where(sql.ref('status'), '=', sql.lit('invited'))
    .execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** What an object was called before its files renamed it: a rename that stays in a file is done once. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('config_objects').addColumn('renamed_from', text).execute()
}

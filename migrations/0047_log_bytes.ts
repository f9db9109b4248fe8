import type { Schema } from '../src/storage/columns.ts'

/** How many bytes of logs are kept of each device. Those that were there before are counted by and by. */
export async function up({ db, bigint }: Schema): Promise<void> {
  await db.schema
    .alterTable('devices')
    .addColumn('log_bytes', bigint, (c) => c.notNull().defaultTo(0))
    .execute()
}

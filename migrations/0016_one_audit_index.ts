import type { Schema } from '../src/storage/columns.ts'

/** One index over a chain in time holds what reports count as well: every entry that is sealed pays for each index. */
export async function up({ db }: Schema): Promise<void> {
  for (const name of ['audit_logs_actions', 'audit_logs_chain_time'])
    await db.schema.dropIndex(name).execute()
  await db.schema
    .createIndex('audit_logs_chain_time')
    .on('audit_logs')
    .columns(['chain', 'timestamp', 'id', 'action', 'actor_id'])
    .execute()
}

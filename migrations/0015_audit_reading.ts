import type { Schema } from '../src/storage/columns.ts'

/** Reports count by action and by person without reading the entries themselves. */
export async function up({ db }: Schema): Promise<void> {
  await db.schema
    .createIndex('audit_logs_actions')
    .on('audit_logs')
    .columns(['chain', 'action', 'timestamp', 'id', 'actor_id'])
    .execute()
}

import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/** How many bytes of what came of commands are kept of each device. */
export async function up({ db, bigint }: Schema): Promise<void> {
  await db.schema
    .alterTable('devices')
    .addColumn('command_bytes', bigint, (c) => c.notNull().defaultTo(0))
    .execute()
  const kept = db
    .selectFrom('agent_commands')
    .select(sql`coalesce(sum(octet_length(result)), 0)`.as('bytes'))
    .whereRef('agent_commands.device_id', '=', 'devices.id')
  await db
    .updateTable('devices')
    .set({ command_bytes: kept })
    .where('id', 'in', db.selectFrom('agent_commands').select('device_id'))
    .execute()
}

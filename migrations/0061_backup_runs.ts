import type { Schema } from '../src/storage/columns.ts'

/** Archives that this installation has written, and the state of its backups and restore drills. */
export async function up({ db, text, integer, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('backups')
    .addColumn('place', text, (c) => c.primaryKey())
    .addColumn('made_at', text, (c) => c.notNull())
    .addColumn('bytes', bigint, (c) => c.notNull())
    .execute()
  await db.schema
    .createTable('backup_runs')
    .addColumn('kind', text, (c) => c.primaryKey())
    .addColumn('due_after', text)
    .addColumn('holder', text)
    .addColumn('held_until', text)
    .addColumn('succeeded_at', text)
    .addColumn('duration_ms', bigint)
    .addColumn('bytes', bigint)
    .addColumn('failed_at', text)
    .addColumn('failure', text)
    .addColumn('failures', integer, (c) => c.notNull().defaultTo(0))
    .execute()
}

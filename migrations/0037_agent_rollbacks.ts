import type { Schema } from '../src/storage/columns.ts'

/** Which of the builds that are offered are offered to machines with a newer one as well. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('agent_builds').addColumn('rollback_at', text).execute()
}

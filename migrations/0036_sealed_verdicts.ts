import type { Schema } from '../src/storage/columns.ts'

/** What the service found of a chain bears a mark that only who has its key can make: a verdict without one counts for nothing. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema.alterTable('audit_verdicts').addColumn('seal', text).execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** Which process signs which chain, and when each chain was last verified to its end. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('audit_checkpoint_claims')
    .addColumn('chain', text, (c) => c.primaryKey())
    .addColumn('holder', text, (c) => c.notNull())
    .addColumn('claimed_until', text, (c) => c.notNull())
    .execute()
  await db.schema.alterTable('audit_verdicts').addColumn('verified_at', text).execute()
}

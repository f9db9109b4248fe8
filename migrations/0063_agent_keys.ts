import type { Schema } from '../src/storage/columns.ts'

/** Public keys by which agents prove who they are when their tokens are refused, and what was restored of audit chains. */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('agent_keys')
    .addColumn('device_id', text, (c) => c.primaryKey().references('devices.id').onDelete('cascade'))
    .addColumn('public_key', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addColumn('proved_at', text)
    .execute()
  await db.schema
    .createTable('audit_restores')
    .addColumn('chain', text, (c) => c.notNull())
    .addColumn('restored_at', text, (c) => c.notNull())
    .addColumn('note', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('audit_restores_pkey', ['chain', 'restored_at'])
    .execute()
}

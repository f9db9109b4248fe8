import type { Schema } from '../src/storage/columns.ts'

/**
 * What happened lately at the door of each account, in one row that is locked by each attempt. The counters in `users`
 * stay for processes of the release before.
 */
export async function up({ db, text }: Schema): Promise<void> {
  await db.schema
    .createTable('sign_in_marks')
    .addColumn('door', text, (c) => c.primaryKey())
    .addColumn('marks', text, (c) => c.notNull())
    .addColumn('guarded_until', text)
    .addColumn('expires_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('sign_in_marks_expiry').on('sign_in_marks').column('expires_at').execute()
}

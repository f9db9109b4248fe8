import { sql } from 'kysely'
import type { Schema } from '../src/storage/columns.ts'

/**
 * Which process holds the connection of an agent, and what processes ask each other because of it. Neither outlives
 * a crash of the database, nor need it: agents connect again, and whoever asked has gone.
 */
export async function up({ db, dialect, text }: Schema): Promise<void> {
  const passing = (table: string) => {
    const made = db.schema.createTable(table)
    return dialect === 'postgres' ? made.modifyFront(sql`unlogged`) : made
  }
  await passing('agent_links')
    .addColumn('device_id', text, (c) => c.primaryKey().references('devices.id').onDelete('cascade'))
    .addColumn('link_id', text, (c) => c.notNull())
    .addColumn('holder', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('agent_links_holder').on('agent_links').column('holder').execute()
  await passing('live_questions')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('device_id', text, (c) => c.notNull())
    .addColumn('holder', text, (c) => c.notNull())
    .addColumn('asker', text, (c) => c.notNull())
    .addColumn('question', text, (c) => c.notNull())
    .addColumn('outcome', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('live_questions_holder').on('live_questions').column('holder').execute()
  await db.schema.createIndex('live_questions_created').on('live_questions').column('created_at').execute()
}

import type { Schema } from '../src/storage/columns.ts'

/** The trees over the audit chains, what the service signed of them, with which keys, and what it last found. */
export async function up({ db, text, integer, bigint }: Schema): Promise<void> {
  await db.schema
    .createTable('audit_tiles')
    .addColumn('chain', text, (c) => c.notNull())
    .addColumn('level', integer, (c) => c.notNull())
    .addColumn('idx', bigint, (c) => c.notNull())
    .addColumn('hashes', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('audit_tiles_pk', ['chain', 'level', 'idx'])
    .execute()

  await db.schema
    .createTable('audit_checkpoints')
    .addColumn('chain', text, (c) => c.notNull())
    .addColumn('seq', bigint, (c) => c.notNull())
    .addColumn('note', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('audit_checkpoints_pk', ['chain', 'seq'])
    .execute()

  await db.schema
    .createTable('audit_keys')
    .addColumn('public_key', text, (c) => c.primaryKey())
    .addColumn('succession', text)
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()

  await db.schema
    .createTable('audit_verdicts')
    .addColumn('chain', text, (c) => c.primaryKey())
    .addColumn('verdict', text, (c) => c.notNull())
    .addColumn('fault', text)
    .addColumn('entries', bigint, (c) => c.notNull())
    .addColumn('checked_at', text, (c) => c.notNull())
    .execute()
}

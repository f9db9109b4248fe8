import type { Schema } from '../src/storage/columns.ts'

/**
 * How long a chain is kept, where it begins since its beginning was removed, what was archived before, and who
 * reads it at present. What an anchor covers may be deleted, unless the chain is held; nothing else may.
 */
export async function up({
  db,
  text,
  integer,
  bigint,
  appendOnly,
  liftAppendOnly,
  growing,
}: Schema): Promise<void> {
  await db.schema
    .createTable('audit_retention')
    .addColumn('chain', text, (c) => c.primaryKey())
    .addColumn('retention_days', integer, (c) => c.notNull())
    .addColumn('archive_to_s3', integer, (c) => c.notNull())
    .addColumn('last_cleanup_at', text)
    .addColumn('hold_reason', text)
    .addColumn('hold_by', text)
    .addColumn('hold_email', text)
    .addColumn('held_at', text)
    .addColumn('error', text)
    .addColumn('error_at', text)
    .addColumn('failures', integer, (c) => c.notNull())
    .addColumn('retry_at', text)
    .addColumn('lease', text)
    .addColumn('leased_until', text)
    .addColumn('archiving_to', bigint)
    .execute()
  await db.schema
    .createTable('audit_anchors')
    .addColumn('chain', text, (c) => c.primaryKey())
    .addColumn('seq', bigint, (c) => c.notNull())
    .addColumn('checksum', text, (c) => c.notNull())
    .addColumn('pruned_count', bigint, (c) => c.notNull())
    .addColumn('note', text, (c) => c.notNull())
    .addColumn('tree', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .execute()
  await db.schema
    .createTable('audit_archives')
    .addColumn('chain', text, (c) => c.notNull())
    .addColumn('first_seq', bigint, (c) => c.notNull())
    .addColumn('last_seq', bigint, (c) => c.notNull())
    .addColumn('object_key', text, (c) => c.notNull())
    .addColumn('bytes', bigint, (c) => c.notNull())
    .addColumn('sha256', text, (c) => c.notNull())
    .addColumn('created_at', text, (c) => c.notNull())
    .addPrimaryKeyConstraint('audit_archives_pk', ['chain', 'last_seq'])
    .execute()
  await db.schema
    .createTable('audit_readings')
    .addColumn('id', text, (c) => c.primaryKey())
    .addColumn('chain', text, (c) => c.notNull())
    .addColumn('until', text, (c) => c.notNull())
    .execute()
  await db.schema.createIndex('audit_readings_chain').on('audit_readings').column('chain').execute()

  await growing('audit_anchors', {
    message: 'an audit anchor only moves forward',
    allowed: 'new.chain = old.chain and new.seq > old.seq and new.pruned_count > old.pruned_count',
  })
  await appendOnly('audit_archives', { message: 'what was archived stays on record' })
  await liftAppendOnly('audit_logs')
  await appendOnly('audit_logs', {
    deletable: `exists (
      select 1 from audit_anchors where audit_anchors.chain = old.chain and audit_anchors.seq >= old.seq
    ) and not exists (
      select 1 from audit_retention where audit_retention.chain = old.chain and audit_retention.held_at is not null
    )`,
  })
}

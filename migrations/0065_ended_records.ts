import type { Schema } from '../src/storage/columns.ts'

/**
 * Since when a key is revoked, as retention found it, and which records of archived parts may go: those of entries
 * that the chain no longer has.
 */
export async function up({ db, text, appendOnly, liftAppendOnly }: Schema): Promise<void> {
  await db.schema.alterTable('api_keys').addColumn('revoked_at', text).execute()
  await liftAppendOnly('audit_archives')
  await appendOnly('audit_archives', {
    message: 'what was archived stays on record',
    deletable: `exists (
      select 1 from audit_anchors where audit_anchors.chain = old.chain and audit_anchors.seq >= old.last_seq
    ) and not exists (
      select 1 from audit_retention where audit_retention.chain = old.chain and audit_retention.held_at is not null
    )`,
  })
}

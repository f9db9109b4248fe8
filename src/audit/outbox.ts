import { forUpdate, prepared, rowOf } from '../storage/dialect.ts'
import type { Db, Storage } from '../storage/open.ts'
import type { AuditLogRow } from '../storage/tables.ts'
import { type ChainEntry, canonicalText, checksumOf, genesis, type Head } from './chain.ts'
import { chainOf, type Draft } from './rules.ts'

const insertion = prepared((db, p: { chain: string; entry: string }) =>
  db.insertInto('outbox').values({ chain: p.chain, entry: p.entry }),
)

/** Says, in the transaction of a change, what happened. */
export async function record(db: Db, draft: Draft): Promise<void> {
  await insertion(db, { chain: chainOf(draft.orgId), entry: JSON.stringify(draft) })
}

/** Entries sealed in one transaction, so that none is long. */
const batch = 200

/**
 * Seals all that is recorded and not sealed yet, chain by chain. Several processes may do so at once: the
 * head of a chain is locked while it grows.
 */
export async function sealPending(storage: Storage): Promise<void> {
  for (;;) {
    const chains = await storage.read.selectFrom('outbox').select('chain').distinct().limit(100).execute()
    if (chains.length === 0) return
    for (const { chain } of chains) {
      // Lost with the power it is done again, with the same result: the outbox is synced, and empties with it.
      while ((await storage.write((tx) => seal(tx, chain), { unsynced: true })) === batch);
    }
  }
}

const pendingOf = prepared((db, p: { chain: string; batch: number }) =>
  db.selectFrom('outbox').select(['id', 'entry']).where('chain', '=', p.chain).orderBy('id').limit(p.batch),
)

const unpend = prepared((db, p: { id: number }) => db.deleteFrom('outbox').where('id', '=', p.id))

const columns = [
  'chain',
  'seq',
  'id',
  'checksum',
  'prev_checksum',
  'canonical',
  'timestamp',
  'actor_id',
  'actor_email',
  'action',
  'resource_type',
  'resource_id',
  'resource_name',
  'result',
] as const

const append = prepared((db, p: AuditLogRow) =>
  db.insertInto('audit_logs').values(rowOf<AuditLogRow>(p, columns)),
)

const moveHead = prepared((db, p: { chain: string; seq: number; checksum: string }) =>
  db.updateTable('audit_heads').set({ seq: p.seq, checksum: p.checksum }).where('chain', '=', p.chain),
)

/** Seals one batch of a chain; how many entries that were. */
async function seal(tx: Db, chain: string): Promise<number> {
  let head = await lockHead(tx, chain)
  const pending = await pendingOf(tx, { chain, batch })
  if (pending.length === 0) return 0
  for (const { id, entry } of pending) {
    head = await link(tx, chain, head, JSON.parse(entry) as Draft)
    await unpend(tx, { id })
  }
  await moveHead(tx, { chain, ...head })
  return pending.length
}

async function link(tx: Db, chain: string, head: Head, draft: Draft): Promise<Head> {
  const seq = head.seq + 1
  const entry: ChainEntry = { ...draft, seq, prevChecksum: head.checksum }
  const row = sealedRow(chain, entry)
  await append(tx, row)
  return { seq, checksum: row.checksum }
}

/** An entry with its place as it is stored. */
export function sealedRow(chain: string, entry: ChainEntry): AuditLogRow {
  const canonical = canonicalText(entry)
  return {
    chain,
    seq: entry.seq,
    id: entry.id,
    checksum: checksumOf(canonical),
    prev_checksum: entry.prevChecksum,
    canonical,
    timestamp: entry.timestamp,
    actor_id: entry.actorId,
    actor_email: entry.actorEmail,
    action: entry.action,
    resource_type: entry.resourceType,
    resource_id: entry.resourceId,
    resource_name: entry.resourceName,
    result: entry.result,
  }
}

const headOf = prepared((db, p: { chain: string }) =>
  forUpdate(db.selectFrom('audit_heads').select(['seq', 'checksum']).where('chain', '=', p.chain)),
)

async function lockHead(tx: Db, chain: string): Promise<Head> {
  const [head] = await headOf(tx, { chain })
  if (head) return head
  await tx
    .insertInto('audit_heads')
    .values({ chain, seq: 0, checksum: genesis })
    .onConflict((c) => c.doNothing())
    .execute()
  return (await headOf(tx, { chain }))[0]!
}

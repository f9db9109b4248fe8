import { Problem } from '../core/errors.ts'
import { parseJson } from '../core/json.ts'
import type { Scope } from '../core/scope.ts'
import { type Clock, type Instant, systemClock } from '../core/time.ts'
import { beforeCommit, deferredBy } from '../storage/before-commit.ts'
import { classifyDatabaseError, isOutage } from '../storage/database-errors.ts'
import { failureReason, insertDeadLetter } from '../storage/dead-letters.ts'
import type { Db, Storage } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { bytesOf } from '../storage/query/expressions.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { keysOf, prepared, rowOf } from '../storage/query/prepared.ts'
import { inScopeHistory } from '../storage/query/scope.ts'
import type { AuditLogRow } from '../storage/schema/tables.ts'
import { currentTrace } from '../storage/trace.ts'
import {
  type ChainEntry,
  type ChainHead,
  canonicalText,
  checksumOf,
  genesisChecksum,
  isChainEntry,
  toChainHead,
} from './chain.ts'
import type { AuditEntry } from './contract.ts'
import { chainOf, type DraftEntry, isChain, orgOfChain, placeholderEntry, toEntry } from './rules.ts'

const insertPending = prepared((db, p: { chain: string; entry: string }) =>
  db.insertInto('outbox').values({ chain: p.chain, entry: p.entry }),
)

/**
 * Records an audit entry in the transaction of the change. Where transactions run one by one, the entry is
 * sealed in the same transaction, together with the other entries that share its commit. Where they run side by
 * side, all transactions of an organization would wait for each other at the head of its chain: there the entry
 * goes to the outbox and is sealed soon after.
 */
export async function recordAudit(db: Db, draft: DraftEntry): Promise<void> {
  currentTrace()?.audited(draft.id)
  if (!beforeCommit(db, sealInTransaction, draft)) await addToOutbox(db, draft)
}

const addToOutbox = (db: Db, draft: DraftEntry) =>
  insertPending(db, { chain: chainOf(draft.orgId), entry: JSON.stringify(draft) })

/** A damaged chain does not block changes: its entries wait in the outbox, and the sealer reports why. */
async function sealInTransaction(tx: Db, drafts: readonly DraftEntry[]): Promise<void> {
  for (const [chain, own] of Map.groupBy(drafts, ({ orgId }) => chainOf(orgId))) {
    let last: AuditLogRow | undefined
    let sealed = 0
    try {
      for (const row of linkEntries(chain, await lockHead(tx, chain), own)) {
        await insertRow(tx, row)
        last = row
        sealed += 1
      }
    } catch (error) {
      if (isOutage(error)) throw error
      // The sealer runs the same steps with the same entries, meets the same fault, and reports it.
    }
    if (last) await moveHead(tx, last)
    for (const draft of own.slice(sealed)) await addToOutbox(tx, draft)
  }
}

/** Most entries that one transaction seals, and most bytes of them, so that no transaction is long. */
const maxBatch = 200
const maxBatchBytes = 1024 * 1024

/**
 * Seals all pending entries; returns the errors of the chains that cannot grow. Neither a chain that cannot
 * grow nor one that grows all the time holds up another: each gets one batch in turn, the longest waiting
 * first. Several processes may run this at once: the head of a chain is locked while it grows.
 */
export async function sealPending(storage: Storage, clock: Clock = systemClock): Promise<unknown[]> {
  const stuck = new Map<string, unknown>()
  const pending = storage.read
    .selectFrom('outbox')
    .select('chain')
    .groupBy('chain')
    .orderBy(({ fn }) => fn.min('id'))
    .limit(100)
  for (;;) {
    const chains = await pending
      .$if(stuck.size > 0, (it) => it.where('chain', 'not in', [...stuck.keys()]))
      .execute()
    if (chains.length === 0) return [...stuck.values()]
    for (const { chain } of chains) {
      try {
        await sealBatch(storage, chain, Number.MAX_SAFE_INTEGER, clock)
      } catch (error) {
        stuck.set(chain, error)
      }
    }
  }
}

/** How many entries wait to be sealed, counted up to `max`, and the time of the first of them. */
export async function countPending(
  db: Db,
  max: number,
): Promise<{ count: number; oldest: Instant | undefined }> {
  const some = db.selectFrom('outbox').select('id').orderBy('id').limit(max)
  const count = await countRowsOf(db.selectFrom(some.as('pending')))
  const first = await db.selectFrom('outbox').select('entry').orderBy('id').limit(1).executeTakeFirst()
  return { count, oldest: first && timeOf(first.entry) }
}

/** How many chains there are, and how many entries they have had. */
export async function sumHeads(db: Db): Promise<{ chains: number; entries: number }> {
  const { chains, entries } = await db
    .selectFrom('audit_heads')
    .select(({ fn }) => [
      fn.countAll<number>().as('chains'),
      fn.sum<number | string | null>('seq').as('entries'),
    ])
    .where('seq', '>', 0)
    .executeTakeFirstOrThrow()
  return { chains, entries: Number(entries ?? 0) }
}

/**
 * Entries that wait to be sealed, the newest first: for whoever cannot wait, as within a transaction. Where transactions share
 * a commit, those that wait for it are among them. What is not an entry is left out.
 */
export async function listPending(db: Db, scope: Scope, limit: number): Promise<AuditEntry[]> {
  const rows = await db
    .selectFrom('outbox')
    .select(['chain', 'entry'])
    .where(inScopeHistory(scope, 'outbox.chain'))
    .orderBy('id', 'desc')
    .limit(limit)
    .execute()
  const inOutbox = rows.flatMap(({ chain, entry }) => {
    try {
      return [parseDraft(entry, chain)]
    } catch {
      // The sealer sets it aside, and reports why.
      return []
    }
  })
  const deferred = deferredBy(db)?.of(sealInTransaction) ?? []
  const seen = new Set(deferred.length === 0 ? [] : await chainsIn(db, scope, deferred))
  const own = deferred.filter(({ orgId }) => seen.has(chainOf(orgId)))
  return [...own.toReversed(), ...inOutbox].slice(0, limit).map((draft) => {
    const unsealed = { ...draft, seq: 0, prevChecksum: genesisChecksum }
    return toEntry(unsealed, genesisChecksum, undefined)
  })
}

/** Those of the chains of some entries that a scope sees. */
async function chainsIn(db: Db, scope: Scope, drafts: readonly DraftEntry[]): Promise<string[]> {
  const chains = [...new Set(drafts.map(({ orgId }) => chainOf(orgId)))]
  const rows = await db
    .selectFrom('audit_heads')
    .select('chain')
    .where(inScopeHistory(scope, 'audit_heads.chain'))
    .where('chain', 'in', chains)
    .execute()
  return rows.map(({ chain }) => chain)
}

/** Undefined for an entry that cannot be read: it becomes a dead letter. */
const timeOf = (entry: string): Instant | undefined =>
  (parseJson(entry) as Partial<DraftEntry> | null | undefined)?.timestamp

/**
 * Seals what is pending at this moment in one chain, else in the chains that a scope sees. It does not wait for
 * entries recorded meanwhile or in other chains. A chain that cannot grow is left as it is.
 * @throws where the database cannot be reached: who goes on would miss entries once it is back
 */
export async function sealPendingFor(
  storage: Storage,
  scope: Scope,
  chain?: string,
  clock: Clock = systemClock,
): Promise<void> {
  const pending = await storage.read
    .selectFrom('outbox')
    .select(({ fn }) => ['chain', fn.max('id').as('upTo')])
    .where(inScopeHistory(scope, 'outbox.chain'))
    .$if(chain !== undefined, (it) => it.where('chain', '=', chain!))
    .groupBy('chain')
    .execute()
  for (const one of pending) {
    try {
      while (await sealBatch(storage, one.chain, Number(one.upTo), clock));
    } catch (error) {
      if (isAway(error)) throw error
      // Its entries stay pending, and the sealer runs the same steps and reports why.
    }
  }
}

/** A database that takes no changes, as on a full disk, is still read. */
const isAway = (error: unknown): boolean =>
  ['unreachable', 'denying access'].includes(classifyDatabaseError(error) ?? '')

/**
 * Seals a batch of a chain; returns whether there may be more. When a batch fails, the entries are retried one
 * by one and then in growing batches: an entry that cannot be sealed is dead-lettered, and a placeholder entry
 * in the chain says so. A chain that does not even take a placeholder cannot grow.
 */
async function sealBatch(storage: Storage, chain: string, upTo: number, clock: Clock): Promise<boolean> {
  let limit = maxBatch
  for (let done = 0; done < maxBatch; ) {
    const at: BatchStart = { first: undefined }
    try {
      // If a power failure loses it, it is done again with the same result: the outbox is synced, and the loss
      // restores its rows.
      const { sealed, more } = await storage.write((tx) => sealUpTo(tx, chain, { upTo, limit }, at), {
        unsynced: true,
      })
      if (!more) return false
      done += sealed
      limit = Math.min(maxBatch, 2 * limit)
    } catch (error) {
      if (isOutage(error) || at.first === undefined) throw error
      if (limit === 1) {
        await deadLetter(storage, chain, at.first, error, clock())
        done += 1
      } else {
        await checkGrowth(storage, chain, clock())
      }
      limit = 1
    }
  }
  return true
}

type BatchStart = { first: number | undefined }

/**
 * Appends a placeholder and undoes it, before entries are retried one by one: a chain that can grow refuses an entry for the
 * entry's own sake, and not for damage that may be mended before its placeholder is written.
 * @throws the refusal of a chain that cannot grow
 */
async function checkGrowth(storage: Storage, chain: string, now: Instant): Promise<void> {
  // An invalid chain name belongs to no chain.
  if (!isChain(chain)) return
  const undone = new Error('undone')
  const about = { number: 0, entry: '', reason: '', sha256: checksumOf(''), isShown: false }
  const attempt = storage.write(async (tx) => {
    await append(tx, chain, await lockHead(tx, chain), placeholderEntry(chain, about, now))
    throw undone
  })
  await attempt.catch((error: unknown) => {
    if (error !== undone) throw error
  })
}

/**
 * Tries to include the rejected entry's text in the placeholder. The database may refuse that text there as
 * well; then the placeholder goes without it.
 */
async function deadLetter(
  storage: Storage,
  chain: string,
  id: number,
  error: unknown,
  now: Instant,
): Promise<void> {
  const pass = (isShown: boolean) =>
    storage.write((tx) => replaceWithPlaceholder(tx, chain, id, { error, isShown, now }))
  // Whatever else refused it refuses the second one too, whose error is thrown.
  await pass(true).catch(() => pass(false))
}

async function replaceWithPlaceholder(
  tx: Db,
  chain: string,
  id: number,
  { error, isShown, now }: { error: unknown; isShown: boolean; now: Instant },
): Promise<void> {
  const head = await lockHead(tx, chain)
  const row = await tx.deleteFrom('outbox').where('id', '=', id).returning('entry').executeTakeFirst()
  // Another process was faster.
  if (!row) return
  const { entry } = row
  const reason = failureReason(error)
  const number = await insertDeadLetter(tx, {
    source: 'audit_logs',
    orgId: orgOfChain(chain),
    entry,
    reason,
    now,
  })
  // An invalid chain name belongs to no chain.
  if (!isChain(chain)) return
  const about = { number, entry, reason, sha256: checksumOf(entry), isShown }
  await append(tx, chain, head, placeholderEntry(chain, about, now))
}

/** Appends an entry to the locked head of its chain. */
async function append(tx: Db, chain: string, head: ChainHead, draft: DraftEntry): Promise<void> {
  const [row] = linkEntries(chain, head, [draft])
  await tx.insertInto('audit_logs').values(row!).execute()
  await moveHead(tx, row!)
}

const selectSizes = prepared((db, p: { chain: string; upTo: number; limit: number }) =>
  db
    .selectFrom('outbox')
    .select(['id', bytesOf(['entry'], 0).as('bytes')])
    .where('chain', '=', p.chain)
    .where('id', '<=', p.upTo)
    .orderBy('id')
    .limit(p.limit),
)

const selectPending = prepared((db, p: { chain: string; upTo: number; limit: number }) =>
  db
    .selectFrom('outbox')
    .select(['id', 'entry'])
    .where('chain', '=', p.chain)
    .where('id', '<=', p.upTo)
    .orderBy('id')
    .limit(p.limit),
)

/** Seals at most `limit` entries of a chain; returns how many it sealed, and whether there may be more. */
async function sealUpTo(
  tx: Db,
  chain: string,
  { upTo, limit }: { upTo: number; limit: number },
  at: BatchStart,
): Promise<{ sealed: number; more: boolean }> {
  // Another process that seals this chain waits here, and then finds fewer entries pending.
  const head = await lockHead(tx, chain)
  const sizes = await selectSizes(tx, { chain, upTo, limit })
  at.first = sizes[0]?.id
  const last = lastWithin(sizes)
  if (last === undefined) return { sealed: 0, more: false }
  const pending = await selectPending(tx, { chain, upTo: last, limit })
  const drafts = pending.map(({ entry }) => parseDraft(entry, chain))
  const rows = linkEntries(chain, head, drafts)
  await tx.insertInto('audit_logs').values(rows).execute()
  // Deleted by id: an entry with a lower id may have been committed after these were read.
  const ids = pending.map(({ id }) => id)
  await tx.deleteFrom('outbox').where('id', 'in', ids).execute()
  await moveHead(tx, rows.at(-1)!)
  return { sealed: pending.length, more: sizes.length === limit || last !== sizes.at(-1)!.id }
}

/** The last entry of a batch: at least the first, however large it is. */
function lastWithin(sizes: readonly { id: number; bytes: number }[]): number | undefined {
  let bytes = 0
  let last: number | undefined
  for (const one of sizes) {
    bytes += one.bytes
    if (last !== undefined && bytes > maxBatchBytes) break
    last = one.id
  }
  return last
}

/** @throws when it is not an entry, or belongs to another chain */
function parseDraft(entry: string, chain: string): DraftEntry {
  const draft: unknown = JSON.parse(entry)
  const sealable = { ...(draft as DraftEntry), seq: 1, prevChecksum: genesisChecksum }
  if (!isChainEntry(sealable)) throw new Error('It is not an audit entry')
  if (chainOf(sealable.orgId) !== chain) throw new Error('It belongs to another chain')
  return draft as DraftEntry
}

/**
 * Records a dead-lettered entry again. It goes to the end of its chain; the placeholder stays where it is.
 * @throws conflict for an entry that its chain can never hold
 */
export async function requeueEntry(db: Db, { orgId, entry }: { orgId: string | null; entry: string }) {
  const chain = chainOf(orgId)
  try {
    parseDraft(entry, chain)
  } catch (error) {
    throw new Problem('conflict', `It can never be written: ${failureReason(error)}`)
  }
  await insertPending(db, { chain, entry })
}

const columns = keysOf<AuditLogRow>({
  chain: true,
  seq: true,
  id: true,
  checksum: true,
  prev_checksum: true,
  canonical: true,
  timestamp: true,
  actor_id: true,
  actor_email: true,
  action: true,
  resource_type: true,
  resource_id: true,
  resource_name: true,
  result: true,
})

/** On SQLite, `orFail` avoids a statement journal, which copies pages so that one refused row can be undone. */
const insertRow = prepared((db, p: AuditLogRow) =>
  db.insertInto('audit_logs').orFail().values(rowOf<AuditLogRow>(p, columns)),
)

const moveHead = prepared((db, p: { chain: string; seq: number; checksum: string }) =>
  db.updateTable('audit_heads').set({ seq: p.seq, checksum: p.checksum }).where('chain', '=', p.chain),
)

/** Links entries, in their order, to the head of a chain and returns them as rows. */
export function linkEntries(chain: string, head: ChainHead, drafts: readonly DraftEntry[]): AuditLogRow[] {
  let { seq, checksum: prevChecksum } = head
  return drafts.map((draft) => {
    seq += 1
    const row = toRow(chain, { ...draft, seq, prevChecksum })
    prevChecksum = row.checksum
    return row
  })
}

function toRow(chain: string, entry: ChainEntry): AuditLogRow {
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

const selectHead = prepared((db, p: { chain: string }) =>
  forUpdate(db.selectFrom('audit_heads').select(['seq', 'checksum']).where('chain', '=', p.chain)),
)

async function lockHead(tx: Db, chain: string): Promise<ChainHead> {
  const [head] = await selectHead(tx, { chain })
  if (head) return toChainHead(head)
  await tx
    .insertInto('audit_heads')
    .values({ chain, seq: 0, checksum: genesisChecksum })
    .onConflict((c) => c.doNothing())
    .execute()
  return toChainHead((await selectHead(tx, { chain }))[0])
}

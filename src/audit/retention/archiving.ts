import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createGzip } from 'node:zlib'
import { type Scope, systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { writeInChunks } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { inScopeHistory } from '../../storage/query/scope.ts'
import { type ChainHead, entryLine, headerLine, trailerLine } from '../chain.ts'
import type { CheckpointDependencies } from '../checkpoints/jobs.ts'
import { orgOfChain } from '../rules.ts'
import { type Anchor, findAnchor, toHeaderAnchor } from './anchors.ts'
import { readExpired } from './entries.ts'
import type { Archive } from './ports.ts'
import { archiveKey } from './rules.ts'

/** Compressed bytes after which an object takes no more entries: it is held in memory until it is stored. */
const maxObjectBytes = 8 * 1024 * 1024
const batchSize = 500

type ArchivingDependencies = Pick<CheckpointDependencies, 'storage' | 'signer' | 'clock'> & {
  archive: Archive
}

const archivesIn = (db: Db, scope: Scope) =>
  db.selectFrom('audit_archives').where(inScopeHistory(scope, 'audit_archives.chain'))

export async function countArchives(
  db: Db,
  scope: Scope,
  chain: string,
): Promise<{ objects: number; upTo: number | null }> {
  return archivesIn(db, scope)
    .where('chain', '=', chain)
    .select((eb) => [eb.fn.countAll<number>().as('objects'), eb.fn.max('last_seq').as('upTo')])
    .executeTakeFirstOrThrow()
}

/** Rows of one transaction. */
const forgottenAtOnce = 200

/**
 * Deletes the records of parts that were archived before a time and whose entries the chain no longer has. The objects
 * stay: each names its chain and its entries, and verifies by itself.
 */
export async function forgetArchives(storage: Storage, before: Instant): Promise<void> {
  const find = (except: readonly string[]) =>
    storage.heavy
      .selectFrom('audit_archives as p')
      .innerJoin('audit_anchors as a', 'a.chain', 'p.chain')
      .leftJoin('audit_retention as r', 'r.chain', 'p.chain')
      .select('p.object_key as id')
      .where('p.created_at', '<', before)
      .whereRef('p.last_seq', '<=', 'a.seq')
      .where('r.held_at', 'is', null)
      .$if(except.length > 0, (q) => q.where('p.object_key', 'not in', except))
      .limit(forgottenAtOnce)
      .execute()
  const remove = (tx: Db, keys: readonly string[]) =>
    tx.deleteFrom('audit_archives').where('object_key', 'in', keys).execute()
  await writeInChunks(storage, find, remove, forgottenAtOnce)
}

/** Sequence number up to which every entry after an anchor is on record as archived. */
export async function archivedUpTo(db: Db, chain: string, anchor: number): Promise<number> {
  const rows = await archivesIn(db, systemScope)
    .select(['first_seq', 'last_seq'])
    .where('chain', '=', chain)
    .where('last_seq', '>', anchor)
    .orderBy('last_seq')
    .execute()
  return rows.reduce((end, row) => (row.first_seq <= end + 1 ? Math.max(end, row.last_seq) : end), anchor)
}

/**
 * Archives the oldest entries of a chain as one object, which can be verified like the file of a chain, and
 * records it; returns how many. Its end is recorded before it is sent, so that the same object is sent again
 * after a crash.
 * @throws ArchiveFailure, audit_history_changed
 */
export async function archiveNext(
  deps: ArchivingDependencies,
  chain: string,
  cutoff: Instant,
): Promise<number> {
  const { storage, clock, archive } = deps
  const anchor = await findAnchor(storage.read, systemScope, chain)
  const planned = await findPlannedEnd(storage.read, chain)
  const until = planned !== null && planned > anchor.head.seq ? planned : undefined
  const found = await buildArchive(deps, chain, anchor, cutoff, until)
  if (!found) return 0
  const { head, body } = found
  const first = anchor.head.seq + 1
  await storage.write((tx) => setPlannedEnd(tx, chain, head.seq))
  const key = archiveKey(chain, first, head.seq)
  const sha256 = createHash('sha256').update(body).digest()
  await archive.put({ key, body, sha256, type: 'application/gzip' })
  await storage.write(async (tx) => {
    await tx
      .insertInto('audit_archives')
      .values({
        chain,
        first_seq: first,
        last_seq: head.seq,
        object_key: key,
        bytes: body.length,
        sha256: sha256.toString('hex'),
        created_at: clock(),
      })
      .onConflict((c) => c.doNothing())
      .execute()
    await setPlannedEnd(tx, chain, null)
  })
  return head.seq - anchor.head.seq
}

async function findPlannedEnd(db: Db, chain: string): Promise<number | null> {
  const row = await db
    .selectFrom('audit_retention')
    .select('archiving_to')
    .where('chain', '=', chain)
    .executeTakeFirst()
  return row?.archiving_to ?? null
}

const setPlannedEnd = (tx: Db, chain: string, upTo: number | null) =>
  tx.updateTable('audit_retention').set({ archiving_to: upTo }).where('chain', '=', chain).execute()

/**
 * A part of a chain as a file of its own, with its anchor in the header and a checkpoint of its end in the
 * trailer.
 */
async function buildArchive(
  { storage, signer, clock }: ArchivingDependencies,
  chain: string,
  anchor: Anchor,
  cutoff: Instant,
  until: number | undefined,
): Promise<{ head: ChainHead; body: Buffer } | undefined> {
  const pieces: Buffer[] = []
  const gzip = createGzip()
  gzip.on('data', (piece: Buffer) => pieces.push(piece))
  const finished = once(gzip, 'end')
  const write = async (text: string) => {
    if (!gzip.write(text)) await once(gzip, 'drain')
  }
  await write(
    headerLine(orgOfChain(chain), { anchor: toHeaderAnchor(anchor), keys: await signer.successions() }),
  )
  let at: Pick<Anchor, 'head' | 'tree'> = anchor
  const isFull = () =>
    until === undefined && pieces.reduce((sum, one) => sum + one.length, 0) >= maxObjectBytes
  while (!isFull()) {
    const upTo = until ?? Number.MAX_SAFE_INTEGER
    if (at.head.seq >= upTo) break
    const next = await readExpired(storage.heavy, chain, at, { cutoff, limit: batchSize, upTo })
    if (next.entries.length === 0) break
    await write(next.entries.map(({ checksum, canonical }) => entryLine(checksum, canonical)).join(''))
    at = next
  }
  const { head, tree } = at
  const orgId = orgOfChain(chain)
  const checkpoint = { orgId, kind: 'checkpoint' as const, head, root: tree!.root(), time: clock() }
  gzip.end(trailerLine(head, signer.sign(checkpoint)))
  await finished
  return head.seq === anchor.head.seq ? undefined : { head, body: Buffer.concat(pieces) }
}

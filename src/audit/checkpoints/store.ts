import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { forUpdate } from '../../storage/query/locks.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { type ChainHead, toChainHead } from '../chain.ts'
import { Frontier, nodeHash, perfectSpans, type ReadNode, spanHash } from './merkle-tree.ts'

/*
 * Trees are stored as tiles (C2SP tlog-tiles): tile `idx` of level L holds the nodes of tree level 8·L from
 * 256·idx on. Only the last tile of a level is partial, and a node is stored once the tile below it is full.
 */
export const tileWidth = 256
const width = tileWidth
const height = 8
const hashSize = 32

/** A node that the tiles should hold is missing: they were tampered with, or pruned. */
export class MissingTileError extends Error {
  constructor(chain: string, level: number, idx: number) {
    super(`The tree of chain ${chain} has no tile ${level}/${idx} of that size`)
    this.name = 'MissingTileError'
  }
}

const selectTile = prepared((db, p: { chain: string; level: number; idx: number }) =>
  db
    .selectFrom('audit_tiles')
    .select('hashes')
    .where('chain', '=', p.chain)
    .where('level', '=', p.level)
    .where('idx', '=', p.idx),
)

const selectLastTile = prepared((db, p: { chain: string; level: number }) =>
  db
    .selectFrom('audit_tiles')
    .select(['idx', 'hashes'])
    .where('chain', '=', p.chain)
    .where('level', '=', p.level)
    .orderBy('idx', 'desc')
    .limit(1),
)

/** Reads nodes of the tree of a chain, and each tile only once. */
export function nodeReader(db: Db, chain: string): ReadNode {
  const tiles = new Map<string, Promise<Buffer>>()
  const tile = (level: number, idx: number): Promise<Buffer> => {
    const name = `${level}/${idx}`
    const known = tiles.get(name)
    if (known) return known
    const read = selectTile(db, { chain, level, idx }).then(([row]) =>
      Buffer.from(row?.hashes ?? '', 'base64'),
    )
    tiles.set(name, read)
    return read
  }
  return async (level, index) => {
    const tileLevel = Math.floor(level / height)
    const count = 2 ** (level % height)
    const first = index * count
    const idx = Math.floor(first / width)
    const from = (first % width) * hashSize
    const hashes = (await tile(tileLevel, idx)).subarray(from, from + count * hashSize)
    if (hashes.length < count * hashSize) throw new MissingTileError(chain, tileLevel, idx)
    return subtreeRoot(hashes)
  }
}

/** The root over a number of hashes that is a power of two. */
function subtreeRoot(hashes: Buffer): Buffer {
  let nodes = split(hashes)
  while (nodes.length > 1) {
    nodes = Array.from({ length: nodes.length / 2 }, (_, n) => nodeHash(nodes[2 * n]!, nodes[2 * n + 1]!))
  }
  return nodes[0]!
}

/** The hashes of a tile without a trailing partial hash, which only a tampered tile has. */
function completeHashes(text: string): Buffer {
  const hashes = Buffer.from(text, 'base64')
  return hashes.subarray(0, hashes.length - (hashes.length % hashSize))
}

const split = (hashes: Buffer): Buffer[] =>
  Array.from({ length: hashes.length / hashSize }, (_, n) =>
    hashes.subarray(n * hashSize, (n + 1) * hashSize),
  )

/** How many leaves the tiles of a chain hold. */
export async function treeSize(db: Db, chain: string): Promise<number> {
  const [last] = await selectLastTile(db, { chain, level: 0 })
  return last ? last.idx * width + split(completeHashes(last.hashes)).length : 0
}

/** Entries before the first lowest tile: retention has deleted what a proof from a smaller size needs. */
export async function firstLeafOf(db: Db, chain: string): Promise<number> {
  const found = db.selectFrom('audit_tiles').select('idx').where('chain', '=', chain).where('level', '=', 0)
  const row = await found.orderBy('idx').limit(1).executeTakeFirst()
  return (row?.idx ?? 0) * width
}

/** The first `size` leaves of a chain as a tree. @throws MissingTileError */
export async function frontierAt(db: Db, chain: string, size: number): Promise<Frontier> {
  const read = nodeReader(db, chain)
  const roots: Buffer[] = []
  for (const span of perfectSpans(size)) roots.push(await spanHash(read, span))
  return new Frontier(size, roots)
}

/** The hash of leaf `index` according to the tiles. @throws MissingTileError */
export const leafAt = async (db: Db, chain: string, index: number): Promise<Buffer> =>
  nodeReader(db, chain)(0, index)

const selectHeadForUpdate = prepared((db, p: { chain: string }) =>
  forUpdate(db.selectFrom('audit_heads').select(['seq', 'checksum']).where('chain', '=', p.chain)),
)

/** The leaves of tile `idx`, in order. */
export async function leavesOfTile(db: Db, chain: string, idx: number): Promise<Buffer[]> {
  const [row] = await selectTile(db, { chain, level: 0, idx })
  return split(completeHashes(row?.hashes ?? ''))
}

/** Locks the tree and the head of a chain until the transaction ends. */
export async function lockTree(tx: Db, chain: string): Promise<ChainHead> {
  const [head] = await selectHeadForUpdate(tx, { chain })
  return toChainHead(head)
}

/** Adds leaves to the tree of a chain; the transaction holds its lock. */
export async function appendLeaves(tx: Db, chain: string, leafHashes: readonly Buffer[]): Promise<void> {
  let nodes: readonly Buffer[] = leafHashes
  for (let level = 0; nodes.length > 0; level += 1) nodes = await appendNodes(tx, chain, level, nodes)
}

const upsertTile = prepared((db, p: { chain: string; level: number; idx: number; hashes: string }) =>
  db
    .insertInto('audit_tiles')
    .values({ chain: p.chain, level: p.level, idx: p.idx, hashes: p.hashes })
    .onConflict((c) => c.columns(['chain', 'level', 'idx']).doUpdateSet({ hashes: p.hashes })),
)

/** Returns the nodes of the level above: one for each tile that is now full. */
async function appendNodes(
  tx: Db,
  chain: string,
  level: number,
  nodes: readonly Buffer[],
): Promise<Buffer[]> {
  const [last] = await selectLastTile(tx, { chain, level })
  const tail = last ? completeHashes(last.hashes) : Buffer.alloc(0)
  const isOpen = tail.length < width * hashSize
  const all = Buffer.concat(isOpen ? [tail, ...nodes] : nodes)
  const full: Buffer[] = []
  let idx = last ? last.idx + (isOpen ? 0 : 1) : 0
  for (let from = 0; from < all.length; from += width * hashSize, idx += 1) {
    const hashes = all.subarray(from, from + width * hashSize)
    await upsertTile(tx, { chain, level, idx, hashes: hashes.toString('base64') })
    if (hashes.length === width * hashSize) full.push(subtreeRoot(hashes))
  }
  return full
}

export type StoredCheckpoint = { seq: number; note: string; created_at: string }

const selectLastCheckpoint = prepared((db, p: { chain: string }) =>
  db
    .selectFrom('audit_checkpoints')
    .select(['seq', 'note', 'created_at'])
    .where('chain', '=', p.chain)
    .orderBy('seq', 'desc')
    .limit(1),
)

export async function findLastCheckpoint(db: Db, chain: string): Promise<StoredCheckpoint | undefined> {
  const [row] = await selectLastCheckpoint(db, { chain })
  return row
}

/** The newest `limit` checkpoints of a chain, newest first. */
export const listCheckpoints = (db: Db, chain: string, limit: number): Promise<StoredCheckpoint[]> =>
  db
    .selectFrom('audit_checkpoints')
    .select(['seq', 'note', 'created_at'])
    .where('chain', '=', chain)
    .orderBy('seq', 'desc')
    .limit(limit)
    .execute()

const upsertCheckpoint = prepared((db, p: { chain: string; seq: number; note: string; now: string }) =>
  db
    .insertInto('audit_checkpoints')
    .values({ chain: p.chain, seq: p.seq, note: p.note, created_at: p.now })
    .onConflict((c) => c.columns(['chain', 'seq']).doUpdateSet({ note: p.note, created_at: p.now })),
)

/** A later checkpoint of the same size replaces the earlier one. */
export async function insertCheckpoint(
  tx: Db,
  chain: string,
  seq: number,
  note: string,
  now: string,
): Promise<void> {
  await upsertCheckpoint(tx, { chain, seq, note, now })
}

/** More restores of one database than anybody makes: the newest are read. */
const maxRestores = 100

/** The statements of a chain, oldest first. */
export async function listRestored(db: Db, chain: string): Promise<string[]> {
  const rows = await db
    .selectFrom('audit_restores')
    .select('note')
    .where('chain', '=', chain)
    .orderBy('restored_at', 'desc')
    .limit(maxRestores)
    .execute()
  return rows.map(({ note }) => note).reverse()
}

export async function insertRestored(
  tx: Db,
  rows: readonly { chain: string; restored_at: Instant; note: string }[],
): Promise<void> {
  if (rows.length > 0) await tx.insertInto('audit_restores').values(rows).execute()
}

import type { Db, Storage } from '../../storage/open.ts'
import { prepared } from '../../storage/query/prepared.ts'
import { type ChainHead, checksumOf, genesisChecksum } from '../chain.ts'
import { storedEntriesAfter } from '../store.ts'
import { type HistoryChange, HistoryChangedError } from './history-changed.ts'
import { leafHash } from './merkle-tree.ts'
import { appendLeaves, leafAt, lockTree, MissingTileError, treeSize } from './store.ts'

/** A chain, and what is known of it. */
export type ChainState = Pick<HistoryChange, 'chain' | 'signed' | 'found'>

const selectEntry = prepared((db, p: { chain: string; seq: number }) =>
  db
    .selectFrom('audit_logs')
    .select(['canonical', 'checksum'])
    .where('chain', '=', p.chain)
    .where('seq', '=', p.seq),
)

const selectFirstSeq = prepared((db, p: { chain: string }) =>
  db.selectFrom('audit_logs').select('seq').where('chain', '=', p.chain).orderBy('seq').limit(1),
)

type StoredEntry = { canonical: string; checksum: string }

/** An entry by its sequence number: `pruned` when the chain has no earlier entry either. */
export async function findStoredEntry(
  db: Db,
  chain: string,
  seq: number,
): Promise<StoredEntry | 'pruned' | 'missing'> {
  const [entry] = await selectEntry(db, { chain, seq })
  if (entry) return entry
  const [first] = await selectFirstSeq(db, { chain })
  return first && first.seq < seq ? 'missing' : 'pruned'
}

/** Whether the newest entry matches its checksum and is the last leaf of the tree. */
export async function isLastLeaf(db: Db, chain: string, head: ChainHead): Promise<boolean> {
  if (head.seq === 0) return true
  const entry = await findStoredEntry(db, chain, head.seq)
  if (entry === 'pruned') return true
  if (entry === 'missing' || entry.checksum !== head.checksum) return false
  if (checksumOf(entry.canonical) !== entry.checksum) return false
  try {
    return leafHash(entry.canonical).equals(await leafAt(db, chain, head.seq - 1))
  } catch (error) {
    if (error instanceof MissingTileError) return false
    throw error
  }
}

/** Entries that become leaves in one transaction: few enough that other writers hardly wait. */
const batchSize = 500

/**
 * Adds the entries up to a head to the tree. Each has to match its checksum and link to the entry before it.
 * With `upTo` it stops there; the next call goes on. Several processes may run this at once.
 * @throws HistoryChangedError
 */
export async function extendTree(
  storage: Storage,
  at: ChainState,
  from: number,
  head: ChainHead,
  upTo = head.seq,
): Promise<void> {
  const { chain } = at
  let size = from
  if (size > head.seq) {
    const why = `The chain has ${head.seq} entries; its tree has ${size}`
    throw new HistoryChangedError({ ...at, kind: 'truncated', why })
  }
  let link = await checksumBefore(storage.read, chain, size)
  while (size < upTo) {
    const rows = await storedEntriesAfter(storage.heavy, {
      chain,
      after: size,
      upTo,
      limit: batchSize,
    })
    const leaves: Buffer[] = []
    for (const row of rows) {
      const wanted = size + leaves.length + 1
      const fault = entryFault(row, wanted, link)
      if (fault) throw new HistoryChangedError({ ...at, ...fault })
      leaves.push(leafHash(row.canonical))
      link = row.checksum
    }
    if (leaves.length === 0) throw new HistoryChangedError({ ...at, ...missing(size + 1) })
    const grown = size + leaves.length
    const add = async (tx: Db) => {
      await lockTree(tx, chain)
      const current = await treeSize(tx, chain)
      if (current !== size) return current
      await appendLeaves(tx, chain, leaves)
      return grown
    }
    // If a power failure loses them, they are built again from the entries.
    const extended = await storage.write(add, { unsynced: true })
    // Another process may have been first; it read the same entries, so this one goes on from there.
    if (extended !== grown) link = await checksumBefore(storage.read, chain, extended)
    size = extended
  }
  if (from < head.seq && size === head.seq && link !== undefined && link !== head.checksum) {
    throw new HistoryChangedError({
      ...at,
      kind: 'rewritten',
      why: 'The head of the chain is not its last entry',
    })
  }
}

/** The checksum that the next entry has to link to; undefined where retention has removed that entry. */
async function checksumBefore(db: Db, chain: string, size: number): Promise<string | undefined> {
  if (size === 0) return genesisChecksum
  const entry = await findStoredEntry(db, chain, size)
  return typeof entry === 'string' ? undefined : entry.checksum
}

type Row = { seq: number; canonical: string; checksum: string; prev_checksum: string }
type Fault = Pick<HistoryChange, 'kind' | 'why'>

const missing = (seq: number): Fault => ({ kind: 'rewritten', why: `Entry ${seq} is missing` })

/**
 * The fault of an entry that has another sequence number, does not match its checksum, or does not link to
 * `link`.
 */
export function entryFault(row: Row, wanted: number, link: string | undefined): Fault | undefined {
  if (row.seq !== wanted) return missing(wanted)
  if (checksumOf(row.canonical) !== row.checksum) {
    return { kind: 'altered', why: `Entry ${wanted} was altered: its checksum does not match its text` }
  }
  if (link !== undefined && row.prev_checksum !== link) {
    return { kind: 'rewritten', why: `Entry ${wanted} does not link to the one before it` }
  }
  return undefined
}

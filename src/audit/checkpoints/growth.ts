import { prepared } from '../../storage/dialect.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { checksumOf, genesis, type Head } from '../chain.ts'
import { entriesBehind } from '../store.ts'
import { type Change, ChangedHistory } from './changed-history.ts'
import { extend, leafAt, lockTree, MissingTile, treeSize } from './store.ts'
import { leafHash } from './tree.ts'

/** The chain at hand, and what is known of it. */
export type Place = Pick<Change, 'chain' | 'signed' | 'found'>

const entryAt = prepared((db, p: { chain: string; seq: number }) =>
  db
    .selectFrom('audit_logs')
    .select(['canonical', 'checksum'])
    .where('chain', '=', p.chain)
    .where('seq', '=', p.seq),
)

const firstSeq = prepared((db, p: { chain: string }) =>
  db.selectFrom('audit_logs').select('seq').where('chain', '=', p.chain).orderBy('seq').limit(1),
)

type StoredEntry = { canonical: string; checksum: string }

/** An entry by its place: `pruned` when no earlier one is there either. */
export async function storedEntry(
  db: Db,
  chain: string,
  seq: number,
): Promise<StoredEntry | 'pruned' | 'missing'> {
  const [entry] = await entryAt(db, { chain, seq })
  if (entry) return entry
  const [first] = await firstSeq(db, { chain })
  return first && first.seq < seq ? 'missing' : 'pruned'
}

/** Whether the newest entry is whole, and the last leaf of the tree. */
export async function isLeafOf(db: Db, chain: string, head: Head): Promise<boolean> {
  if (head.seq === 0) return true
  const entry = await storedEntry(db, chain, head.seq)
  if (entry === 'pruned') return true
  if (entry === 'missing' || entry.checksum !== head.checksum) return false
  if (checksumOf(entry.canonical) !== entry.checksum) return false
  try {
    return leafHash(entry.canonical).equals(await leafAt(db, chain, head.seq - 1))
  } catch (error) {
    if (error instanceof MissingTile) return false
    throw error
  }
}

/** Entries that become leaves in one transaction: so few that nobody waits for them. */
const piece = 500

/**
 * Makes leaves of the entries up to a head, each of which has to fit its checksum and the entry before it.
 * Several processes may do so at once. @throws ChangedHistory
 */
export async function grow(storage: Storage, at: Place, from: number, head: Head): Promise<void> {
  const { chain } = at
  let size = from
  if (size > head.seq) {
    const why = `The chain has ${head.seq} entries; its tree has ${size}`
    throw new ChangedHistory({ ...at, kind: 'truncated', why })
  }
  let link = await linkAfter(storage.read, chain, size)
  while (size < head.seq) {
    const rows = await entriesBehind(storage.heavy, { chain, after: size, upTo: head.seq, limit: piece })
    const leaves: Buffer[] = []
    for (const row of rows) {
      const wanted = size + leaves.length + 1
      const fault = faultOf(row, wanted, link)
      if (fault) throw new ChangedHistory({ ...at, ...fault })
      leaves.push(leafHash(row.canonical))
      link = row.checksum
    }
    if (leaves.length === 0) throw new ChangedHistory({ ...at, ...missing(size + 1) })
    const grown = size + leaves.length
    const add = async (tx: Db) => {
      await lockTree(tx, chain)
      const there = await treeSize(tx, chain)
      if (there !== size) return there
      await extend(tx, chain, leaves)
      return grown
    }
    // Lost with the power they are made again, from the entries.
    const extended = await storage.write(add, { unsynced: true })
    // Another process may have been first; what it read was the same, and it goes on from there.
    if (extended !== grown) link = await linkAfter(storage.read, chain, extended)
    size = extended
  }
  if (from < head.seq && size === head.seq && link !== undefined && link !== head.checksum) {
    throw new ChangedHistory({ ...at, kind: 'rewritten', why: 'The head of the chain is not its last entry' })
  }
}

/** The checksum that the entry after these has to name; undefined where retention has removed it. */
async function linkAfter(db: Db, chain: string, size: number): Promise<string | undefined> {
  if (size === 0) return genesis
  const entry = await storedEntry(db, chain, size)
  return typeof entry === 'string' ? undefined : entry.checksum
}

type Row = { seq: number; canonical: string; checksum: string; prev_checksum: string }
type Fault = Pick<Change, 'kind' | 'why'>

const missing = (seq: number): Fault => ({ kind: 'rewritten', why: `Entry ${seq} is missing` })

/** What is wrong when an entry is not this one, whole, and behind the one with that checksum. */
export function faultOf(row: Row, wanted: number, link: string | undefined): Fault | undefined {
  if (row.seq !== wanted) return missing(wanted)
  if (checksumOf(row.canonical) !== row.checksum) {
    return { kind: 'altered', why: `Entry ${wanted} was altered: its checksum does not match its text` }
  }
  if (link !== undefined && row.prev_checksum !== link) {
    return { kind: 'rewritten', why: `Entry ${wanted} does not link to the one before it` }
  }
  return undefined
}

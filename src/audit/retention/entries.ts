import { Problem } from '../../core/errors.ts'
import { systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { parseEntry } from '../chain.ts'
import { entryFault } from '../checkpoints/extend-tree.ts'
import { Frontier, leafHash } from '../checkpoints/merkle-tree.ts'
import { frontierAt, MissingTileError } from '../checkpoints/store.ts'
import { entriesIn, storedEntriesAfter } from '../store.ts'
import type { Anchor } from './anchors.ts'

export type StoredEntry = { seq: number; checksum: string; canonical: string }

/**
 * The next entries after an anchor that are older than the cutoff, up to the first that is not, whatever
 * follows it. Each has to match what was signed, so that an attacker cannot have retention remove the traces of
 * a forgery.
 * @throws audit_history_changed
 */
export async function readExpired(
  db: Db,
  chain: string,
  { head, tree }: Pick<Anchor, 'head' | 'tree'>,
  { cutoff, limit, upTo }: { cutoff: Instant; limit: number; upTo: number },
): Promise<{ entries: StoredEntry[]; head: Anchor['head']; tree: Frontier }> {
  if (!tree)
    throw new Problem(
      'audit_history_changed',
      'The anchor of the chain cannot be read: nothing more was deleted',
    )
  const rows = await storedEntriesAfter(db, { chain, after: head.seq, upTo, limit })
  const entries: StoredEntry[] = []
  const grown = new Frontier(tree.size, tree.roots)
  let last = head
  for (const row of rows) {
    if (entryFault(row, last.seq + 1, last.checksum)) throw historyChanged(last.seq + 1)
    const { seq, checksum, canonical } = row
    const entry = parseEntry(canonical)
    if (!entry) throw historyChanged(seq)
    if (entry.timestamp >= cutoff) break
    grown.push(leafHash(canonical))
    entries.push({ seq, checksum, canonical })
    last = { seq, checksum }
  }
  if (entries.length > 0 && !(await isSigned(db, chain, grown))) throw historyChanged(head.seq + 1, last.seq)
  return { entries, head: last, tree: grown }
}

/** Whether the tree of the chain, over which checkpoints are signed, begins with this one. */
async function isSigned(db: Db, chain: string, tree: Frontier): Promise<boolean> {
  try {
    return (await frontierAt(db, chain, tree.size)).root().equals(tree.root())
  } catch (error) {
    if (error instanceof MissingTileError) return false
    throw error
  }
}

function historyChanged(first: number, last = first): Problem {
  const which = first === last ? `Entry ${first} is` : `Entries ${first} to ${last} are`
  return new Problem('audit_history_changed', `${which} not what was signed: nothing more was deleted`)
}

/** How many entries have expired, at most `limit`, and the time of the newest of them. */
export async function countExpired(
  db: Db,
  chain: string,
  anchor: number,
  cutoff: Instant,
  limit = Number.POSITIVE_INFINITY,
): Promise<{ entries: number; upTo: Instant | null }> {
  let count = 0
  let upTo: Instant | null = null
  for (;;) {
    const rows = await timestampsAfter(db, chain, anchor + count, Math.min(limit, 5000))
    for (const { timestamp } of rows) {
      if (timestamp >= cutoff || count >= limit) return { entries: count, upTo }
      count += 1
      upTo = timestamp
    }
    if (rows.length === 0 || count >= limit) return { entries: count, upTo }
  }
}

const timestampsAfter = (db: Db, chain: string, after: number, limit: number) =>
  entriesIn(db, systemScope)
    .select('timestamp')
    .where('chain', '=', chain)
    .where('seq', '>', after)
    .orderBy('seq')
    .limit(limit)
    .execute()

/** Deletes entries that an anchor covers; returns how many. */
export async function deleteEntries(tx: Db, chain: string, after: number, upTo: number): Promise<number> {
  const { numDeletedRows } = await tx
    .deleteFrom('audit_logs')
    .where('chain', '=', chain)
    .where('seq', '>', after)
    .where('seq', '<=', upTo)
    .executeTakeFirstOrThrow()
  return Number(numDeletedRows)
}

import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { inScopeHistory } from '../../storage/query/scope.ts'
import { type ChainHead, genesisChecksum, type HeaderAnchor } from '../chain.ts'
import { type Checkpoint, openCheckpoint } from '../checkpoints/checkpoint.ts'
import { Frontier } from '../checkpoints/merkle-tree.ts'

/**
 * Where a chain begins after retention removed its first entries. The anchor of a complete chain lies before
 * its first entry.
 */
export type Anchor = {
  head: ChainHead
  prunedCount: number
  /**
   * Tree over the removed entries; undefined where the stored text is not a tree of that many entries: an
   * attacker changed it.
   */
  tree: Frontier | undefined
  /** null while no entry was removed. */
  signed: { note: string; time: Instant } | null
}

const noAnchor: Anchor = {
  head: { seq: 0, checksum: genesisChecksum },
  prunedCount: 0,
  tree: new Frontier(),
  signed: null,
}

export async function findAnchor(db: Db, scope: Scope, chain: string): Promise<Anchor> {
  const row = await db
    .selectFrom('audit_anchors')
    .selectAll()
    .where('chain', '=', chain)
    .where(inScopeHistory(scope, 'audit_anchors.chain'))
    .executeTakeFirst()
  if (!row) return noAnchor
  return {
    head: { seq: row.seq, checksum: row.checksum },
    prunedCount: row.pruned_count,
    tree: parseTree(row.tree, row.seq),
    signed: { note: row.note, time: row.created_at },
  }
}

/** The text may have been changed by an attacker with access to the database. */
function parseTree(text: string, size: number): Frontier | undefined {
  try {
    return new Frontier(
      size,
      (JSON.parse(text) as string[]).map((root) => Buffer.from(root, 'base64')),
    )
  } catch {
    // It is not a tree of that many entries.
    return undefined
  }
}

/** What the service itself signed of this anchor; undefined when it did not, or while no entry was removed. */
export function openAnchor(
  { head, tree, signed }: Anchor,
  orgId: string | null,
  publicKeys: readonly Buffer[],
): Checkpoint | undefined {
  const it = signed === null ? undefined : openCheckpoint(signed.note, publicKeys)
  if (it?.state !== 'signed') return undefined
  const { kind, head: signedHead, root } = it.checkpoint
  const isIt =
    kind === 'anchor' &&
    it.checkpoint.orgId === orgId &&
    signedHead.seq === head.seq &&
    signedHead.checksum === head.checksum &&
    tree !== undefined &&
    root.equals(tree.root())
  return isIt ? it.checkpoint : undefined
}

/**
 * The anchor in the header of a chain's file; undefined while no entry was removed. An unreadable tree is
 * written as empty, which does not match the note, so a verifier of the file sees it.
 */
export const toHeaderAnchor = ({ signed, tree }: Anchor): HeaderAnchor | undefined =>
  signed === null ? undefined : { note: signed.note, tree: tree ? base64(tree) : [] }

const base64 = ({ roots }: Frontier): string[] => roots.map((root) => root.toString('base64'))

/** Moves the anchor of a chain forward; the database refuses to move it back. */
export async function moveAnchor(tx: Db, chain: string, anchor: Anchor): Promise<void> {
  const { head, prunedCount, tree, signed } = anchor
  const { note, time } = signed!
  const row = {
    seq: head.seq,
    checksum: head.checksum,
    pruned_count: prunedCount,
    note,
    tree: JSON.stringify(base64(tree!)),
    created_at: time,
  }
  await tx
    .insertInto('audit_anchors')
    .values({ chain, ...row })
    .onConflict((c) => c.column('chain').doUpdateSet(row))
    .execute()
}

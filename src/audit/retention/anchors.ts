import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { inScopeHistory } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'
import { type ChainHead, genesisChecksum, type HeaderAnchor } from '../chain.ts'
import { Frontier } from '../checkpoints/merkle-tree.ts'

/** Where a chain begins since its beginning was removed; of a whole chain, before its first entry. */
export type Anchor = {
  head: ChainHead
  prunedCount: number
  /** Over what was removed; undefined where what is stored is no tree of that many entries: somebody changed it. */
  tree: Frontier | undefined
  /** null while nothing was removed. */
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

/** Of a text that whoever holds the database may have changed. */
function parseTree(text: string, size: number): Frontier | undefined {
  try {
    return new Frontier(
      size,
      (JSON.parse(text) as string[]).map((root) => Buffer.from(root, 'base64')),
    )
  } catch {
    return undefined
  }
}

/**
 * What the file of a chain says of its beginning; undefined while nothing was removed. A tree that cannot be read
 * is none, which is not the one that the note names: whoever verifies the file sees it.
 */
export const toHeaderAnchor = ({ signed, tree }: Anchor): HeaderAnchor | undefined =>
  signed === null ? undefined : { note: signed.note, tree: tree ? base64(tree) : [] }

const base64 = ({ roots }: Frontier): string[] => roots.map((root) => root.toString('base64'))

/** Puts the anchor of a chain further on; the database refuses any other way. */
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

import type { ExpressionBuilder } from 'kysely'
import type { Instant } from '../../core/time.ts'
import { forEachSettled, writeInChunks } from '../../storage/bisect-writes.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { rowList } from '../../storage/query/row-list.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import { tileWidth } from './store.ts'

/** Rows of one transaction. */
const batch = 200

/** A checkpoint has no id of its own: its chain and its number. */
const nameOf = ({ cast, fn, val }: ExpressionBuilder<Tables & { c: Tables['audit_checkpoints'] }, 'c'>) =>
  fn<string>('concat', ['c.chain', cast<string>(val(' '), 'text'), 'c.seq'])

const keyList = rowList<{ chain: string; seq: number }>({ chain: 'text', seq: 'bigint' })

/**
 * Thins out checkpoints from before a time: the last one of each month stays, and those at which an anchor or an archived
 * part ends. The newest of a chain stays in any case, because only one with a later one is deleted.
 */
export async function thinCheckpoints(storage: Storage, before: Instant): Promise<void> {
  /** Goes on behind the rows that stay, which would otherwise be read again for each chunk. */
  let from: Instant | undefined
  const find = async (except: readonly string[]) => {
    const rows = await storage.heavy
      .selectFrom('audit_checkpoints as c')
      .select((eb) => [nameOf(eb).as('id'), 'c.created_at'])
      .where('c.created_at', '<', before)
      .$if(from !== undefined, (q) => q.where('c.created_at', '>=', from!))
      .where(({ eb, fn, lit, selectFrom }) =>
        eb(
          fn<string>('substr', ['c.created_at', lit(1), lit(7)]),
          '=',
          selectFrom('audit_checkpoints as later')
            .select(({ fn: of, lit: literal }) =>
              of<string>('substr', ['later.created_at', literal(1), literal(7)]).as('month'),
            )
            .whereRef('later.chain', '=', 'c.chain')
            .whereRef('later.seq', '>', 'c.seq')
            .orderBy('later.seq')
            .limit(1),
        ),
      )
      .where(({ not, exists, selectFrom }) =>
        not(
          exists(
            selectFrom('audit_anchors as a')
              .select('a.seq')
              .whereRef('a.chain', '=', 'c.chain')
              .whereRef('a.seq', '=', 'c.seq'),
          ),
        ),
      )
      .where(({ not, exists, selectFrom }) =>
        not(
          exists(
            selectFrom('audit_archives as p')
              .select('p.last_seq')
              .whereRef('p.chain', '=', 'c.chain')
              .whereRef('p.last_seq', '=', 'c.seq'),
          ),
        ),
      )
      .$if(except.length > 0, (q) => q.where(nameOf, 'not in', except))
      .orderBy('c.created_at')
      .limit(batch)
      .execute()
    from = rows.at(-1)?.created_at
    return rows
  }
  const remove = (tx: Db, ids: readonly string[]) => {
    const keys = ids.map((id) => {
      const [chain = '', seq] = id.split(' ')
      return { chain, seq: Number(seq) }
    })
    const named = tx.selectFrom(keyList.as(keyList.of(keys), 'named')).select(['named.chain', 'named.seq'])
    return tx
      .deleteFrom('audit_checkpoints')
      .where(({ eb, refTuple }) => eb(refTuple('chain', 'seq'), 'in', named.$asTuple('chain', 'seq')))
      .execute()
  }
  await writeInChunks(storage, find, remove, batch)
}

/**
 * Deletes the lowest hashes of trees over entries that retention has removed, of which the last checkpoint before `before`
 * was signed later: proofs that a chain grew from a state before them are no longer given. All other proofs, and whatever is
 * signed, need only the tile of the last such entry and the levels above. The tree of a chain on hold stays whole.
 */
export async function dropOldTiles(storage: Storage, before: Instant): Promise<void> {
  const anchors = await storage.read
    .selectFrom('audit_anchors as a')
    .leftJoin('audit_retention as r', 'r.chain', 'a.chain')
    .select((eb) => [
      'a.chain',
      'a.seq',
      eb
        .selectFrom('audit_checkpoints as c')
        .select(({ fn }) => fn.max('c.seq').as('seq'))
        .whereRef('c.chain', '=', 'a.chain')
        .where('c.created_at', '<', before)
        .as('signed'),
    ])
    .where('r.held_at', 'is', null)
    .execute()
  await forEachSettled(anchors, async ({ chain, seq, signed }) => {
    if (signed === null) return
    const kept = Math.floor((Math.min(seq, Number(signed)) - 1) / tileWidth)
    const find = async (except: readonly string[]) => {
      const rows = await storage.read
        .selectFrom('audit_tiles')
        .select('idx')
        .where('chain', '=', chain)
        .where('level', '=', 0)
        .where('idx', '<', kept)
        .$if(except.length > 0, (q) => q.where('idx', 'not in', except.map(Number)))
        .orderBy('idx')
        .limit(batch)
        .execute()
      return rows.map(({ idx }) => ({ id: String(idx) }))
    }
    const remove = (tx: Db, ids: readonly string[]) =>
      tx
        .deleteFrom('audit_tiles')
        .where('chain', '=', chain)
        .where('level', '=', 0)
        .where('idx', 'in', ids.map(Number))
        .execute()
    await writeInChunks(storage, find, remove, batch)
  })
}

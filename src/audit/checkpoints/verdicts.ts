import { prepared } from '../../storage/dialect.ts'
import type { Db } from '../../storage/open.ts'

/** What the service last found when it verified a chain, or was to sign it. */
export type StoredVerdict = {
  chain: string
  verdict: 'sound' | 'tampered' | 'unverifiable'
  fault?: { kind: string; message: string; seq: number } | undefined
  entries: number
}

const put = prepared(
  (db, p: { chain: string; verdict: string; fault: string | null; entries: number; now: string }) => {
    const values = { verdict: p.verdict, fault: p.fault, entries: p.entries, checked_at: p.now }
    return db
      .insertInto('audit_verdicts')
      .values({ chain: p.chain, ...values })
      .onConflict((c) => c.column('chain').doUpdateSet(values))
  },
)

export async function saveVerdict(tx: Db, verdict: StoredVerdict, now: string): Promise<void> {
  const { chain, verdict: said, fault, entries } = verdict
  await put(tx, { chain, verdict: said, fault: fault ? JSON.stringify(fault) : null, entries, now })
}

/** How many chains there are of each verdict, and when one was last verified. */
export async function countVerdicts(db: Db): Promise<{ verdict: string; count: number; last: string }[]> {
  const rows = await db
    .selectFrom('audit_verdicts')
    .select(({ fn }) => [
      'verdict',
      fn.countAll<number | string>().as('count'),
      fn.max('checked_at').as('last'),
    ])
    .groupBy('verdict')
    .orderBy('verdict')
    .execute()
  return rows.map(({ verdict, count, last }) => ({ verdict, count: Number(count), last }))
}

/** The chains to verify next, longest unverified first: once a day, and what is not sound once an hour. */
export async function listDue(
  db: Db,
  { sound, other, soon }: { sound: string; other: string; soon: string },
  limit: number,
): Promise<{ chain: string; seen: string | null }[]> {
  const rows = await db
    .selectFrom('audit_heads')
    .leftJoin('audit_verdicts', 'audit_verdicts.chain', 'audit_heads.chain')
    .select(['audit_heads.chain', 'checked_at'])
    .where('seq', '>', 0)
    .where((eb) =>
      eb.or([
        eb('checked_at', 'is', null),
        eb('checked_at', '<=', sound),
        // No process of this service wrote such a time: whoever did would have the chain never verified.
        eb('checked_at', '>', soon),
        eb.and([eb('verdict', '<>', 'sound'), eb('checked_at', '<=', other)]),
      ]),
    )
    .orderBy((eb) => eb.fn.coalesce('checked_at', eb.val('')))
    .orderBy('audit_heads.chain')
    .limit(limit)
    .execute()
  return rows.map(({ chain, checked_at: seen }) => ({ chain, seen }))
}

/** Whether this process is the one to verify a chain that was last verified then. */
export async function claim(tx: Db, chain: string, seen: string | null, now: string): Promise<boolean> {
  if (seen === null) {
    const first = { chain, verdict: 'pending', fault: null, entries: 0, checked_at: now }
    const [made] = await tx
      .insertInto('audit_verdicts')
      .values(first)
      .onConflict((c) => c.doNothing())
      .execute()
    return made!.numInsertedOrUpdatedRows === 1n
  }
  const [moved] = await tx
    .updateTable('audit_verdicts')
    .set({ checked_at: now })
    .where('chain', '=', chain)
    .where('checked_at', '=', seen)
    .execute()
  return moved!.numUpdatedRows === 1n
}

import { addSeconds, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { AuditVerdictRow } from '../../storage/schema/tables.ts'
import { systemChain } from '../rules.ts'
import { isPlausibleTime } from './postdated.ts'
import type { Signer } from './signer.ts'

/** The last result when the service verified a chain, or refused to sign it. */
export type StoredVerdict = {
  chain: string
  verdict: 'sound' | 'tampered' | 'unverifiable'
  fault?: { kind: string; message: string; seq: number } | undefined
  entries: number
}

export type VerdictSealer = Pick<Signer, 'seal' | 'isSealed'>

const sealedText = ({ chain, verdict, fault, entries, checked_at }: AuditVerdictRow): string =>
  JSON.stringify([chain, verdict, fault, entries, checked_at])

const sealRow = (row: AuditVerdictRow, { seal }: VerdictSealer): AuditVerdictRow => ({
  ...row,
  seal: seal(sealedText(row)),
})

export async function saveVerdict(
  tx: Db,
  signer: VerdictSealer,
  { chain, verdict, fault, entries }: StoredVerdict,
  now: Instant,
): Promise<void> {
  const found = { chain, verdict, fault: fault ? JSON.stringify(fault) : null, entries, checked_at: now }
  const { chain: _, ...row } = sealRow({ ...found, seal: null }, signer)
  await tx
    .insertInto('audit_verdicts')
    .values({ chain, ...row })
    .onConflict((c) => c.column('chain').doUpdateSet(row))
    .execute()
}

/** How many chains have each verdict, and when one was last verified. */
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

/** The verdicts that are not sound, according to the database. */
export async function listFaults(db: Db): Promise<{ chain: string; verdict: string }[]> {
  return db
    .selectFrom('audit_verdicts')
    .select(['chain', 'verdict'])
    .where('verdict', 'in', ['tampered', 'unverifiable'])
    .execute()
}

export type DueChain = {
  chain: string
  /** The last verdict, as the database has it. */
  seen: AuditVerdictRow | undefined
  /** Whether a process of this service wrote it. */
  isOwn: boolean
}

const day = 86_400
const hour = 3600

/** Verification runs per day; each verifies some chains. */
const runsPerDay = 720
const minPerRun = 3

/**
 * The chains to verify, longest unverified first, and how many of them to verify at a time: a sound chain once
 * a day, any other once an hour. An attacker with access to the database decides neither which chains exist nor
 * when they were verified: chains with a local copy count as well, and a verdict counts only when the service
 * itself sealed it, at a time that has come.
 */
export async function listDueChains(
  db: Db,
  { localChains, signer, now }: { localChains: readonly string[]; signer: VerdictSealer; now: Instant },
): Promise<{ due: DueChain[]; few: number }> {
  const verdicts = new Map(
    (await db.selectFrom('audit_verdicts').selectAll().execute()).map((row) => [row.chain, row]),
  )
  const heads = await db.selectFrom('audit_heads').select('chain').where('seq', '>', 0).execute()
  const chains = new Set([...heads.map(({ chain }) => chain), ...localChains, ...(await listHeadless(db))])
  const [sound, other] = [addSeconds(now, -day), addSeconds(now, -hour)]
  const due: (DueChain & { at: string })[] = []
  for (const chain of chains) {
    const seen = verdicts.get(chain)
    const isOwn =
      seen !== undefined &&
      isPlausibleTime(seen.checked_at, now) &&
      signer.isSealed(sealedText(seen), seen.seal ?? '')
    const isRested = isOwn && seen.checked_at > (seen.verdict === 'sound' ? sound : other)
    if (!isRested) due.push({ chain, seen, isOwn, at: isOwn ? seen.checked_at : '' })
  }
  const few = Math.max(minPerRun, Math.ceil(chains.size / runsPerDay))
  return { due: due.sort((a, b) => compareText(a.at, b.at) || compareText(a.chain, b.chain)), few }
}

const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** The chains that have entries and no head. */
async function listHeadless(db: Db): Promise<string[]> {
  const hasHead = (chain: string) =>
    db
      .selectFrom('audit_heads')
      .select('seq')
      .where('chain', '=', chain)
      .where('seq', '>', 0)
      .executeTakeFirst()
  const hasEntries = (chain: string) =>
    db.selectFrom('audit_logs').select('seq').where('chain', '=', chain).limit(1).executeTakeFirst()
  const isHeadless = !(await hasHead(systemChain)) && (await hasEntries(systemChain))
  const rows = await db
    .selectFrom('organizations')
    .select('id')
    .where(({ and, not, exists, selectFrom }) =>
      and([
        not(
          exists(
            selectFrom('audit_heads')
              .select('seq')
              .whereRef('audit_heads.chain', '=', 'organizations.id')
              .where('seq', '>', 0),
          ),
        ),
        exists(selectFrom('audit_logs').select('seq').whereRef('audit_logs.chain', '=', 'organizations.id')),
      ]),
    )
    .execute()
  return [...rows.map(({ id }) => id), ...(isHeadless ? [systemChain] : [])]
}

/**
 * Claims the verification of a chain; returns whether this process has it. A sound verdict is replaced by
 * `pending` meanwhile: an attacker must not get a sealed verdict with a current time for a chain that was not
 * verified.
 */
export async function claimVerification(
  tx: Db,
  signer: VerdictSealer,
  { chain, seen, isOwn }: DueChain,
  now: Instant,
): Promise<boolean> {
  const pending = { chain, verdict: 'pending', fault: null, entries: 0, seal: null }
  const before = isOwn && seen && seen.verdict !== 'sound' ? seen : pending
  const { chain: _, ...row } = sealRow({ ...before, checked_at: now }, signer)
  if (!seen) {
    const [made] = await tx
      .insertInto('audit_verdicts')
      .values({ chain, ...row })
      .onConflict((c) => c.doNothing())
      .execute()
    return made!.numInsertedOrUpdatedRows === 1n
  }
  const [moved] = await tx
    .updateTable('audit_verdicts')
    .set(row)
    .where('chain', '=', chain)
    .where('checked_at', '=', seen.checked_at)
    .execute()
  return moved!.numUpdatedRows === 1n
}

import type { Selectable } from 'kysely'
import type { Scope } from '../../core/scope.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { inScopeHistory } from '../../storage/query/scope.ts'
import type { AuditVerdictRow, Tables } from '../../storage/schema/tables.ts'
import { systemChain } from '../rules.ts'
import { isPlausibleTime } from './postdated.ts'
import type { MacKey } from './signer.ts'

/** The last result when the service verified a chain, or refused to sign it. */
export type StoredVerdict = {
  chain: string
  verdict: 'sound' | 'tampered' | 'unverifiable'
  fault?: { kind: string; message: string; seq: number } | undefined
  entries: number
}

export type VerificationFault = NonNullable<StoredVerdict['fault']>

type AuthenticatedRow = Omit<AuditVerdictRow, 'seal' | 'verified_at'>

const authenticatedText = ({ chain, verdict, fault, entries, checked_at }: AuthenticatedRow): string =>
  JSON.stringify([chain, verdict, fault, entries, checked_at])

const withMac = <Row extends AuthenticatedRow>(row: Row, { mac }: MacKey): Row & { seal: string } => ({
  ...row,
  seal: mac(authenticatedText(row)),
})

/**
 * Stores a verdict. `claimedAt`: the claim that it was found under. If another process has claimed or verified the chain
 * since, this one was too slow, or frozen: what it found may be out of date, and is not stored unless it is tampering.
 */
export async function saveVerdict(
  tx: Db,
  signer: MacKey,
  { chain, verdict, fault, entries }: StoredVerdict,
  now: Instant,
  claimedAt?: Instant,
): Promise<void> {
  const found = { chain, verdict, fault: fault ? JSON.stringify(fault) : null, entries, checked_at: now }
  const { chain: _, ...row } = { ...withMac(found, signer), verified_at: now }
  const isBound = claimedAt !== undefined && verdict !== 'tampered'
  await tx
    .insertInto('audit_verdicts')
    .values({ chain, ...row })
    .onConflict((c) => {
      const replace = c.column('chain').doUpdateSet(row)
      return isBound ? replace.where('audit_verdicts.checked_at', '=', claimedAt) : replace
    })
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

/** The same for the chains in a scope, by when one was last verified to its end. */
export const countVerdictsIn = (
  db: Db,
  scope: Scope,
): Promise<{ verdict: string; chains: number; verifiedAt: Instant | null }[]> =>
  db
    .selectFrom('audit_verdicts')
    .select(({ fn }) => [
      'verdict',
      fn.countAll<number>().as('chains'),
      fn.max('verified_at').as('verifiedAt'),
    ])
    .where(inScopeHistory(scope, 'audit_verdicts.chain'))
    .groupBy('verdict')
    .execute()

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
  /** The number of its last entry, as the database has it. */
  size: number
}

const day = 86_400
const hour = 3600

/** How long a claim lasts after its last renewal, and how often it is renewed. */
const claimSeconds = 300
export const claimRenewalSeconds = claimSeconds / 3

/** Seconds until a chain with this verdict is due again. */
export const restOf = (verdict: string): number =>
  verdict === 'sound' ? day : verdict === 'pending' ? claimSeconds : hour

/** Rows read at a time: their seals are computed before other work goes on. */
const pageSize = 1000

/**
 * The chains to verify, longest unverified first: a sound chain once a day, any other once an hour. An attacker with
 * access to the database decides neither which chains exist nor when they were verified: chains with a local copy count
 * as well, and a verdict counts only when the service itself sealed it, at a time that has come.
 */
export async function listChainsToVerify(
  db: Db,
  { localChains, signer, now }: { localChains: readonly string[]; signer: MacKey; now: Instant },
): Promise<DueChain[]> {
  const known = new Map<string, { seen: AuditVerdictRow; isOwn: boolean; isRested: boolean }>()
  for await (const rows of pagesOf(db, 'audit_verdicts')) {
    for (const seen of rows) {
      const isOwn =
        isPlausibleTime(seen.checked_at, now) && signer.verifyMac(authenticatedText(seen), seen.seal ?? '')
      const isRested = isOwn && seen.checked_at > addSeconds(now, -restOf(seen.verdict))
      known.set(seen.chain, { seen, isOwn, isRested })
    }
  }
  const sizes = new Map([...localChains, ...(await listHeadless(db))].map((chain) => [chain, 0]))
  for await (const rows of pagesOf(db, 'audit_heads')) {
    for (const { chain, seq } of rows) if (seq > 0) sizes.set(chain, seq)
  }
  const due: (DueChain & { at: string })[] = []
  for (const [chain, size] of sizes) {
    const { seen, isOwn = false, isRested = false } = known.get(chain) ?? {}
    if (!isRested) due.push({ chain, seen, isOwn, size, at: isOwn ? seen!.checked_at : '' })
  }
  return due.sort((a, b) => compareText(a.at, b.at) || compareText(a.chain, b.chain))
}

async function* pagesOf<Table extends 'audit_verdicts' | 'audit_heads'>(
  db: Db,
  table: Table,
): AsyncGenerator<Selectable<Tables[Table]>[]> {
  for (let after = ''; ; ) {
    const rows = await db
      .selectFrom(table as 'audit_heads')
      .selectAll()
      .where('chain', '>', after)
      .orderBy('chain')
      .limit(pageSize)
      .execute()
    yield rows as unknown as Selectable<Tables[Table]>[]
    if (rows.length < pageSize) return
    after = rows.at(-1)!.chain
  }
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
  signer: MacKey,
  { chain, seen, isOwn }: Pick<DueChain, 'chain' | 'seen' | 'isOwn'>,
  now: Instant,
): Promise<boolean> {
  const before = isOwn && seen && seen.verdict !== 'sound' ? seen : pendingOf(chain)
  // For metrics the chain is as old as its last verdict.
  const verified_at = seen ? (seen.verified_at ?? seen.checked_at) : null
  const { chain: _, ...row } = withMac({ ...before, checked_at: now, verified_at }, signer)
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

const pendingOf = (chain: string) => ({ chain, verdict: 'pending', fault: null, entries: 0 })

/** Makes a claim last longer; false when another process has the chain by now. */
export async function renewClaim(
  tx: Db,
  signer: MacKey,
  { chain, claimedAt }: { chain: string; claimedAt: Instant },
  now: Instant,
): Promise<boolean> {
  const rows = await tx.selectFrom('audit_verdicts').selectAll().where('chain', '=', chain).execute()
  const seen = rows.find((row) => row.checked_at === claimedAt)
  if (!seen) return false
  const isOwn = signer.verifyMac(authenticatedText(seen), seen.seal ?? '')
  return claimVerification(tx, signer, { chain, seen, isOwn }, now)
}

import { sql } from 'kysely'
import { type ChainEntry, canonicalText, checksumOf } from '../../src/audit/chain.ts'
import type { HistoryChange } from '../../src/audit/checkpoints/history-changed.ts'
import type { CheckpointDependencies } from '../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../src/audit/checkpoints/local-copies.ts'
import { createSigner, type SigningSeeds } from '../../src/audit/checkpoints/signer.ts'
import type { StoredVerdict } from '../../src/audit/checkpoints/verdicts.ts'
import { VerificationState } from '../../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { TestDatabase } from '../databases.ts'
import { type TestClock, testClock } from '../harness.ts'
import { happening } from './rows.ts'

export const seedOf = (letter: string): Buffer => Buffer.alloc(32, letter)

export const seeds = (current: string, previous?: string): SigningSeeds => ({
  current: seedOf(current),
  previous: previous === undefined ? undefined : seedOf(previous),
  isPreviousAssumed: false,
})

export type TestParts = CheckpointDependencies & {
  clock: TestClock
  refused: HistoryChange[]
  verdicts: StoredVerdict[]
  memory: VerificationState
  onVerdict(verdict: StoredVerdict): void
}

/** The parts that sign and verify the chains of a database, without a service. */
export function partsOn({ storage, dataDir }: Pick<TestDatabase, 'storage' | 'dataDir'>): TestParts {
  const refused: HistoryChange[] = []
  const verdicts: StoredVerdict[] = []
  return {
    storage,
    signer: createSigner(storage, seeds('a')),
    localCopies: localCopiesIn(`${dataDir}/checkpoints`),
    clock: testClock(),
    refused,
    verdicts,
    memory: new VerificationState(),
    onRefusal: (change) => void refused.push(change),
    onVerdict: (verdict) => void verdicts.push(verdict),
  }
}

/** Adds the given number of entries to a chain and seals them. */
export async function happen(storage: Storage, orgId: string | null, count: number): Promise<void> {
  await storage.write(async (tx) => {
    for (let n = 0; n < count; n += 1) {
      await recordAudit(
        tx,
        toDraftEntry(happening(orgId, { resourceName: `thing ${n}` }), '2026-03-01T12:00:00.000Z'),
      )
    }
  })
  await sealPending(storage)
}

/** Works on the database without its triggers, like an attacker who controls it. */
export async function unguarded(
  storage: Storage,
  work: (db: Storage['read']) => Promise<unknown>,
): Promise<void> {
  await storage.write(async (tx) => {
    const off =
      storage.dialect === 'sqlite'
        ? ['update', 'delete'].map((change) => `drop trigger if exists audit_logs_no_${change}`)
        : ['alter table audit_logs disable trigger user']
    for (const statement of off) await sql.raw(statement).execute(tx)
    await work(tx)
  })
}

/** Truncates a chain after an entry. */
export const cutTo = (storage: Storage, chain: string, seq: number): Promise<void> =>
  unguarded(storage, async (tx) => {
    await tx.deleteFrom('audit_logs').where('chain', '=', chain).where('seq', '>', seq).execute()
    const last = tx
      .selectFrom('audit_logs')
      .select('checksum')
      .where('chain', '=', chain)
      .where('seq', '=', seq)
    const { checksum } = await last.executeTakeFirstOrThrow()
    await tx.updateTable('audit_heads').set({ seq, checksum }).where('chain', '=', chain).execute()
  })

/** Changes an entry, and relinks all entries after it. */
export const rechained = (storage: Storage, chain: string, seq: number): Promise<void> =>
  unguarded(storage, async (tx) => {
    const rows = tx.selectFrom('audit_logs').selectAll().where('chain', '=', chain).where('seq', '>=', seq)
    let link: string | undefined
    for (const row of await rows.orderBy('seq').execute()) {
      const entry = JSON.parse(row.canonical) as ChainEntry
      const resourceName = row.seq === seq ? 'something else' : entry.resourceName
      const canonical = canonicalText({ ...entry, resourceName, prevChecksum: link ?? entry.prevChecksum })
      const changed = { canonical, checksum: checksumOf(canonical), prev_checksum: link ?? row.prev_checksum }
      await tx
        .updateTable('audit_logs')
        .set({ ...changed, resource_name: resourceName })
        .where('chain', '=', chain)
        .where('seq', '=', row.seq)
        .execute()
      link = changed.checksum
    }
    await tx.updateTable('audit_heads').set({ checksum: link! }).where('chain', '=', chain).execute()
  })

/** Deletes all checkpoints and tiles of a chain from the database. */
export const forgetSigned = (storage: Storage, chain: string): Promise<unknown> =>
  storage.write(async (tx) => {
    await tx.deleteFrom('audit_checkpoints').where('chain', '=', chain).execute()
    await tx.deleteFrom('audit_tiles').where('chain', '=', chain).execute()
  })

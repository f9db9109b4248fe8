import { hash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { genesisChecksum } from '../../src/audit/chain.ts'
import { type Checkpoint, openCheckpoint } from '../../src/audit/checkpoints/checkpoint.ts'
import { HistoryChangedError } from '../../src/audit/checkpoints/history-changed.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../src/audit/checkpoints/local-copies.ts'
import { signRestored } from '../../src/audit/checkpoints/restored.ts'
import { createSigner, recordKeys, type SigningSeeds } from '../../src/audit/checkpoints/signer.ts'
import { insertRestored } from '../../src/audit/checkpoints/store.ts'
import { isChain, orgOfChain, systemChain } from '../../src/audit/rules.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Instant, systemClock } from '../../src/core/time.ts'
import type { Db, Storage } from '../../src/storage/open.ts'
import type { CheckedArchive } from './archive-check.ts'
import { keptFolders } from './contents.ts'

/*
 * A restore drops what the service signed since the backup. A statement for each chain says so, signed with the key of the
 * audit log: without that key nobody can pass a rollback off as a restore.
 */

/** What a chain is known to have had beyond the backup, by a checkpoint that is still in the data directory. */
export type LostEntries = { chain: string; from: number; to: number }

/**
 * The checkpoints in the data directory that are newer than the backup.
 * @throws SetupError for a file there that this service did not sign, as it belongs to another database, and while the clock is
 * behind: a statement explains what is earlier than itself
 */
export function findLost(
  dataDir: string,
  { head, tail, signers }: CheckedArchive,
  now: Instant,
): LostEntries[] {
  assertPast('The backup', head.madeAt, now)
  const heads = new Map(head.heads.map(({ chain, seq }) => [chain, seq]))
  const lost: LostEntries[] = []
  for (const folder of keptFolders) {
    const path = join(dataDir, folder)
    for (const name of namesIn(path)) {
      const text = readFileSync(join(path, name))
      if (hash('sha256', text, 'hex') === tail.files[`${folder}/${name}`]?.sha256) continue
      const signed = ownCheckpoint(name, text.toString('utf8'), signers)
      if (signed === undefined) {
        throw new SetupError(
          `${join(path, name)} is neither of this backup nor signed with its key, but of what was here before: move ${path} away`,
        )
      }
      assertPast(`The checkpoint ${join(path, name)}`, signed.time, now)
      const before = heads.get(name) ?? 0
      if (signed.head.seq > before) lost.push({ chain: name, from: before + 1, to: signed.head.seq })
    }
  }
  return lost
}

function assertPast(what: string, time: Instant, now: Instant): void {
  if (time < now) return
  throw new SetupError(
    `${what} is dated ${time}, and here it is ${now}: set the clock of this machine, or restore after that time`,
  )
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path).filter((name) => !name.startsWith('.') && !name.includes('.'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function ownCheckpoint(chain: string, note: string, signers: readonly Buffer[]): Checkpoint | undefined {
  const opened = isChain(chain) ? openCheckpoint(note, signers) : undefined
  if (opened?.state !== 'signed' || opened.checkpoint.orgId !== orgOfChain(chain)) return undefined
  return opened.checkpoint
}

/** Rows of one statement. */
const batch = 500

/** Signs what is restored of each chain. */
export async function signStatements(
  tx: Db,
  { head, tail }: CheckedArchive,
  { lost, seed, now }: { lost: readonly LostEntries[]; seed: Buffer; now: Instant },
): Promise<void> {
  const ahead = new Map(lost.map(({ chain, to }) => [chain, to]))
  const known = new Set(head.heads.map(({ chain }) => chain))
  const since = lost.filter(({ chain }) => !known.has(chain))
  const heads = [...head.heads, ...since.map(({ chain }) => ({ chain, seq: 0, checksum: genesisChecksum }))]
  const backup = { madeAt: head.madeAt, sha256: tail.sha256 }
  const rows = heads
    .filter(({ chain }) => isChain(chain))
    .map(({ chain, seq, checksum }) => {
      const restored = { orgId: orgOfChain(chain), time: now, backup, head: { seq, checksum } }
      const note = signRestored({ ...restored, ahead: ahead.get(chain) ?? null }, seed)
      return { chain, restored_at: now, note }
    })
  for (let at = 0; at < rows.length; at += batch) await insertRestored(tx, rows.slice(at, at + batch))
}

/** Signs the system chain, which names the restore, and each chain whose newer checkpoint is given up. */
export async function signChains(
  storage: Storage,
  dataDir: string,
  { lost, seeds }: { lost: readonly LostEntries[]; seeds: SigningSeeds },
): Promise<void> {
  await storage.write((tx) => recordKeys(tx, seeds, systemClock()))
  const parts = {
    storage,
    signer: createSigner(storage, seeds),
    localCopies: localCopiesIn(join(dataDir, 'checkpoints')),
    clock: systemClock,
    onRefusal() {},
  }
  for (const chain of new Set([systemChain, ...lost.map((one) => one.chain)])) {
    try {
      await takeCheckpoint(parts, chain)
    } catch (error) {
      // The finding is stored, and the service reports it.
      if (!(error instanceof HistoryChangedError)) throw error
    }
  }
}

/** Chains that the entry of a restore names; the statements name all. */
const maxNamed = 200

/** What the audit entry says of the chains in the backup. */
export function chainsOf({ head }: CheckedArchive, lost: readonly LostEntries[]) {
  const lines = head.heads.map(({ chain, seq, checksum }) => `${chain} ${seq} ${checksum}\n`)
  return {
    count: lines.length,
    sha256: hash('sha256', lines.join(''), 'hex'),
    heads: head.heads.slice(0, maxNamed),
    lost: lost.slice(0, maxNamed),
  }
}

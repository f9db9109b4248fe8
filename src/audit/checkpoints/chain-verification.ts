import { systemScope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { headerLine, trailerLine } from '../chain.ts'
import { sealPendingFor } from '../outbox.ts'
import { findAnchor, openAnchor } from '../retention/anchors.ts'
import { withReadLease } from '../retention/read-leases.ts'
import { findUnrecordedChange } from '../retention/recorded-policy.ts'
import { orgOfChain } from '../rules.ts'
import { chainLines } from '../store.ts'
import { ChainVerifier } from '../verifier/verifier.ts'
import { type Checkpoint, openCheckpoint } from './checkpoint.ts'
import { HistoryChangedError } from './history-changed.ts'
import { type CheckpointDependencies, findExplainingRestore, takeCheckpoint } from './jobs.ts'
import { findPostdated } from './postdated.ts'
import type { Pause } from './sliced.ts'
import { findLastCheckpoint } from './store.ts'
import { TreeComparer } from './tree-comparer.ts'
import { type StoredVerdict, saveVerdict, type VerificationFault } from './verdicts.ts'

/** What this process knows by itself: an attacker with access to the database cannot change it. */
export type VerdictMemory = {
  recordVerdict(found: Pick<StoredVerdict, 'chain' | 'verdict'>, at: Instant): void
}

export type ChainVerificationDependencies = CheckpointDependencies & {
  memory: VerdictMemory
  /** Called for every verdict. */
  onVerdict(verdict: StoredVerdict): void
}

export type VerificationOptions = {
  /** Time of the verdict before. */
  checkedAt?: Instant | undefined
  /** The claim under which it is verified, as it is at the end: it may have been renewed. */
  claim?: { claimedAt: Instant } | undefined
  pause?: Pause
}

/** Reported before it is stored, so an attacker who blocks the write does not suppress the report. */
async function publishVerdict(
  { storage, signer, memory, clock, onVerdict }: ChainVerificationDependencies,
  verdict: StoredVerdict,
  claim: VerificationOptions['claim'],
): Promise<void> {
  memory.recordVerdict(verdict, clock())
  onVerdict(verdict)
  await storage.write((tx) => saveVerdict(tx, signer, verdict, clock(), claim?.claimedAt))
}

/**
 * Verifies a stored chain from its entries, in constant memory: the entries fit each other, the tree and
 * everything that was signed of them, and no time in its records lies in the future. A chain that cannot be verified is
 * reported, and does not hold up another chain.
 */
export async function verifyStoredChain(
  deps: ChainVerificationDependencies,
  chain: string,
  options: VerificationOptions = {},
): Promise<StoredVerdict> {
  const verdict = await verifyAll(deps, chain, options).catch((error: Error): StoredVerdict => {
    const fault = { kind: 'unreadable', message: `It could not be verified: ${error.message}`, seq: 0 }
    return { chain, verdict: 'unverifiable', fault, entries: 0 }
  })
  await publishVerdict(deps, verdict, options.claim)
  return verdict
}

async function verifyAll(
  deps: ChainVerificationDependencies,
  chain: string,
  { checkedAt, pause }: VerificationOptions,
): Promise<StoredVerdict> {
  const { storage, localCopies, clock } = deps
  const opened = (note: string | undefined): Checkpoint[] => {
    const it = note === undefined ? undefined : openCheckpoint(note, [])
    return it && it.state !== 'unreadable' ? [it.checkpoint] : []
  }
  const stored = opened((await findLastCheckpoint(storage.read, chain))?.note)
  const signed = [...stored]
  for (const copy of opened(await localCopies.read(chain))) {
    if ((await findExplainingRestore(deps, chain, copy)) === undefined) signed.push(copy)
  }
  await sealPendingFor(storage, systemScope, chain)
  // Before anything is signed anew, which would replace the time.
  const postdated = await findPostdated(storage.read, chain, { signed, checkedAt }, clock())
  let refusal: HistoryChangedError | undefined
  let upTo: Checkpoint | undefined
  try {
    upTo = (await takeCheckpoint(deps, chain)).checkpoint
  } catch (error) {
    if (!(error instanceof HistoryChangedError)) throw error
    refusal = error
  }
  const comparer = new TreeComparer(storage.heavy, chain, upTo ? [...signed, upTo] : signed)
  const verifier = new ChainVerifier()
  const found = await scanStoredChain(deps, chain, { head: upTo?.head, verifier, comparer, pause })
  const change = refusal?.change
  const refused = change && { kind: change.kind, message: change.why, seq: change.found }
  const fault = found ?? refused ?? postdated ?? (await unrecordedFault(storage, chain))
  const { entries } = verifier
  return fault ? { chain, verdict: 'tampered', fault, entries } : { chain, verdict: 'sound', entries }
}

type Scan = {
  head: Checkpoint['head'] | undefined
  verifier: ChainVerifier
  comparer: TreeComparer
  pause: Pause | undefined
}

/** The first fault of the anchor and of the entries after it, up to a head, or of all entries without one. */
async function scanStoredChain(
  { storage, clock, signer }: ChainVerificationDependencies,
  chain: string,
  { head, verifier, comparer, pause }: Scan,
): Promise<VerificationFault | undefined> {
  let forged = false
  const lines = withReadLease(storage, chain, clock, async function* (renew) {
    const keep = async () => {
      if (!(await renew())) throw new Error('it was not protected from retention while it was read')
    }
    const anchor = await findAnchor(storage.read, systemScope, chain)
    forged = anchor.signed !== null && !openAnchor(anchor, orgOfChain(chain), await signer.trusted())
    yield forged ? headerLine(orgOfChain(chain)) : await comparer.begin(anchor)
    const upTo = head?.seq ?? Number.MAX_SAFE_INTEGER
    for await (const some of chainLines(storage.heavy, systemScope, chain, upTo)) {
      yield some
      await pause?.(keep)
    }
  })
  for await (const some of lines) {
    if (forged) return unanchored
    const stop = verifier.push(Buffer.from(some))
    if (stop) return 'fault' in stop ? stop.fault : undefined
    const fault = await comparer.add(some)
    // A fault of the entries themselves says more than that they differ from the tree.
    if (fault) return verifierFault(verifier) ?? fault
  }
  if (head) verifier.push(Buffer.from(trailerLine(head)))
  return verifierFault(verifier)
}

/** A stored chain that could not be signed has no trailer; that alone is no fault. */
function verifierFault(verifier: ChainVerifier): VerificationFault | undefined {
  const verdict = verifier.end()
  return verdict.verdict === 'tampered' ? verdict.fault : undefined
}

async function unrecordedFault(
  storage: CheckpointDependencies['storage'],
  chain: string,
): Promise<VerificationFault | undefined> {
  const message = await findUnrecordedChange(storage, chain)
  return message === undefined ? undefined : { kind: 'rewritten', message, seq: 0 }
}

const unanchored: VerificationFault = {
  kind: 'rewritten',
  message: 'The anchor of the chain is not one that the service signed',
  seq: 1,
}

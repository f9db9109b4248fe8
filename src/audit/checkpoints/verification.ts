import { type Instant, secondsBetween } from '../../core/time.ts'
import {
  type ChainVerificationDependencies,
  type VerdictMemory,
  verifyStoredChain,
} from './chain-verification.ts'
import { Sliced } from './sliced.ts'
import {
  claimRenewalSeconds,
  claimVerification,
  type DueChain,
  listChainsToVerify,
  renewClaim,
  type StoredVerdict,
} from './verdicts.ts'

/** A verification that took longer than a slice and goes on in the next turns. */
type UnderWay = { work: Sliced; claim: Claim | undefined }
type Claim = { claimedAt: Instant }

/** What this process knows by itself: an attacker with access to the database cannot change it. */
export class VerificationState implements VerdictMemory {
  /** Chains that it last found not sound, and when. */
  readonly faults = new Map<string, { verdict: StoredVerdict['verdict']; at: Instant }>()
  /** When it first saw that a chain was due, longest waiting first. */
  readonly waiting = new Map<string, Instant>()
  /** When it first failed to claim a chain. */
  readonly unclaimed = new Map<string, Instant>()
  /** Large chains, the one whose turn is next first. */
  readonly underWay = new Map<string, UnderWay>()

  recordVerdict({ chain, verdict }: Pick<StoredVerdict, 'chain' | 'verdict'>, at: Instant): void {
    if (verdict === 'sound') this.faults.delete(chain)
    else this.faults.set(chain, { verdict, at })
  }

  /**
   * The due chains in the order in which this process first saw them due: an attacker who keeps making other
   * chains due puts them behind the waiting ones. `due` starts in the order longest unverified first.
   */
  orderByWaiting(due: readonly DueChain[], now: Instant): DueChain[] {
    const byName = new Map(due.map((one) => [one.chain, one]))
    for (const known of [this.waiting, this.unclaimed])
      for (const chain of known.keys()) if (!byName.has(chain)) known.delete(chain)
    for (const { chain } of due) if (!this.waiting.has(chain)) this.waiting.set(chain, now)
    return [...this.waiting.keys()].map((chain) => byName.get(chain)!)
  }
}

export type VerificationDependencies = ChainVerificationDependencies & { memory: VerificationState }

/** Bounds of one turn: its milliseconds, and those of one chain in it. */
type TurnLimits = { turnMs: number; sliceMs: number }

const defaultLimits: TurnLimits = { turnMs: 5000, sliceMs: 1000 }

/** Most chains that a process has begun to verify, and the entries from which it expects one to take long. */
const maxUnderWay = 128
const largeSize = 20_000

const hour = 3600

/**
 * Verifies due chains for the length of a turn, each chain by one of the processes, and again those that this process
 * itself found not sound, whatever the database says of them now. A chain that takes longer than a slice goes on beside
 * the others, with half of the time. Returns whether there is more to do.
 */
export async function verifyDue(deps: VerificationDependencies, limits = defaultLimits): Promise<boolean> {
  const failures: unknown[] = []
  const isMore = await new Turn(deps, limits, failures).run()
  if (failures.length > 0) throw failures[0]
  return isMore
}

class Turn {
  readonly #deps: VerificationDependencies
  readonly #limits: TurnLimits
  readonly #failures: unknown[]
  readonly #begun = performance.now()
  readonly #now: Instant

  constructor(deps: VerificationDependencies, limits: TurnLimits, failures: unknown[]) {
    this.#deps = deps
    this.#limits = limits
    this.#failures = failures
    this.#now = deps.clock()
  }

  async run(): Promise<boolean> {
    const { storage, signer, localCopies, memory } = this.#deps
    await this.#continueLarge(0.5)
    const localChains = await localCopies.list()
    const due = await listChainsToVerify(storage.heavy, { localChains, signer, now: this.#now })
    // A chain that cannot be claimed is being verified by another process, which takes less than an hour; or an
    // attacker blocks the claim.
    const isFree = ({ chain }: DueChain) =>
      !memory.unclaimed.has(chain) || this.#isLong(memory.unclaimed.get(chain))
    const mine = memory.orderByWaiting(due, this.#now).filter(isFree)
    let isMore = false
    for (const one of mine) {
      if (this.#isOver(1)) {
        isMore = true
        break
      }
      if (!memory.underWay.has(one.chain) && !this.#isTooMuch(one)) await this.#verifyDueChain(one)
    }
    for (const [chain, { at }] of [...memory.faults]) {
      if (!this.#isLong(at) || memory.underWay.has(chain) || this.#isTooMuch({ size: 0 })) continue
      if (!this.#isOver(1)) await this.#start(chain, {})
    }
    await this.#continueLarge(1)
    return isMore || memory.underWay.size > 0
  }

  readonly #isLong = (since: Instant | undefined): boolean =>
    since !== undefined && secondsBetween(since, this.#now) >= hour

  /** Whether this share of the turn has passed. */
  #isOver(share: number): boolean {
    return performance.now() - this.#begun >= share * this.#limits.turnMs
  }

  /** Large chains leave half of the places to small ones, which need them where the database is slow. */
  #isTooMuch({ size }: { size: number }): boolean {
    return this.#deps.memory.underWay.size >= (size < largeSize ? maxUnderWay : maxUnderWay / 2)
  }

  async #verifyDueChain(one: DueChain): Promise<void> {
    const { storage, signer, memory, clock } = this.#deps
    const { chain } = one
    const checkedAt = one.seen?.checked_at
    if (this.#isLong(memory.unclaimed.get(chain))) {
      memory.unclaimed.delete(chain)
      return this.#start(chain, { checkedAt })
    }
    const claimedAt = clock()
    // A claim that is lost in a power failure is made again.
    const isMine = await storage
      .write((tx) => claimVerification(tx, signer, one, claimedAt), { unsynced: true })
      .catch((error: unknown) => {
        this.#failures.push(error)
        return false
      })
    if (isMine) await this.#start(chain, { checkedAt, claim: { claimedAt } })
    else memory.unclaimed.set(chain, this.#now)
  }

  async #start(chain: string, options: { checkedAt?: Instant | undefined; claim?: Claim }): Promise<void> {
    this.#deps.memory.waiting.delete(chain)
    this.#deps.memory.unclaimed.delete(chain)
    const work = new Sliced((pause) => verifyStoredChain(this.#deps, chain, { ...options, pause }))
    await this.#slice(chain, { work, claim: options.claim })
  }

  /** Gives each large chain a slice in turn, until this share of the turn has passed. */
  async #continueLarge(share: number): Promise<void> {
    const { underWay } = this.#deps.memory
    for (const [chain, one] of underWay) await this.#keepClaim(chain, one)
    while (underWay.size > 0 && !this.#isOver(share)) {
      const [[chain, one]] = underWay as unknown as [[string, UnderWay]]
      await this.#slice(chain, one)
    }
  }

  async #slice(chain: string, one: UnderWay): Promise<void> {
    const { underWay } = this.#deps.memory
    underWay.delete(chain)
    try {
      // The one that had its turn goes behind the others.
      if (!(await one.work.run(this.#limits.sliceMs))) underWay.set(chain, one)
    } catch (error) {
      this.#failures.push(error)
    }
  }

  /** If another process has the chain by now, both verify it, and this one stores what it finds only if it is tampering. */
  async #keepClaim(chain: string, { claim }: UnderWay): Promise<void> {
    const { storage, signer, clock } = this.#deps
    const now = clock()
    if (!claim || secondsBetween(claim.claimedAt, now) < claimRenewalSeconds) return
    const renew = () =>
      storage.write((tx) => renewClaim(tx, signer, { chain, claimedAt: claim.claimedAt }, now), {
        unsynced: true,
      })
    try {
      if (await renew()) claim.claimedAt = now
    } catch (error) {
      this.#failures.push(error)
    }
  }
}

import { Problem } from '../core/errors.ts'

/** How many bytes of something are kept at most. */
export type Bytes = { perDevice: number; perOrg: number }

export type Owner = { deviceId: string; orgId: string }

/** What became of what a device hands in of which there is too much. */
export type Excess = Owner & { what: 'refused' | 'deleted'; entries: number }

/** How much this process takes in before it looks at all that is kept again, at most. */
const mostUnseen = 64 * 2 ** 20
/** Until there is room: seconds. */
const roomSeconds = 30

/**
 * How much of what a device hands in is kept, as this process knows it. Each device has its own count in its row; what an
 * organization has is added up now and then, and once that is too much its devices have equal shares of what it may have:
 * those with less than theirs lose nothing.
 */
export class ByteQuota {
  readonly limits: Bytes
  readonly #onExcess: (excess: Excess) => void
  #shares = new Map<string, number>()
  #unseen = 0
  #wake = (): void => {}

  constructor(limits: Bytes, onExcess: (excess: Excess) => void = () => {}) {
    this.limits = limits
    this.#onExcess = onExcess
  }

  /** A device with more gets nothing taken from it, until room is made. */
  roomOf(orgId: string): number {
    return Math.min(this.limits.perDevice, this.#shares.get(orgId) ?? Number.POSITIVE_INFINITY)
  }

  /** Who makes room. */
  onFull(wake: () => void): void {
    this.#wake = wake
  }

  /** So much came in of a device, and so much is kept of it now. */
  took({ orgId }: Owner, bytes: number, kept: number): void {
    this.#unseen += bytes
    if (kept > this.roomOf(orgId) || this.#unseen > Math.min(mostUnseen, this.limits.perOrg / 8)) this.#wake()
  }

  /** What organizations have was added up: those with too much, and the share of each of their devices. */
  seen(shares: Map<string, number>): void {
    this.#shares = shares
    this.#unseen = 0
  }

  deleted(owner: Owner, entries: number): void {
    this.#onExcess({ ...owner, what: 'deleted', entries })
  }

  refused({ deviceId, orgId }: Owner, entries: number): void {
    this.#onExcess({ deviceId, orgId, what: 'refused', entries })
  }

  makeRoom(): void {
    this.#wake()
  }
}

/** That of logs, which may be handed in later. */
export class LogQuota extends ByteQuota {
  /** Takes from a limit how fast they may come in. @throws rate_limited */
  hurry(owner: Owner, entries: number, take: () => void): void {
    try {
      take()
    } catch (error) {
      this.refused(owner, entries)
      throw error
    }
  }

  /** A device that is to hand them in later. */
  refusal(owner: Owner, entries: number): Problem {
    this.refused(owner, entries)
    this.makeRoom()
    return new Problem('log_quota_exceeded', undefined, { retryAfter: roomSeconds })
  }
}

/** What each of them may have at most, so that together they have no more than `total`: who has less keeps all. */
export function equalShare(amounts: readonly number[], total: number): number {
  let left = total
  const ascending = amounts.toSorted((a, b) => a - b)
  for (const [n, amount] of ascending.entries()) {
    const share = Math.floor(left / (ascending.length - n))
    if (amount > share) return share
    left -= amount
  }
  return Number.POSITIVE_INFINITY
}

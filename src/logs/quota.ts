import { Problem } from '../core/errors.ts'

/** Most bytes that are stored. */
export type Bytes = { perDevice: number; perOrg: number }

export type Owner = { deviceId: string; orgId: string }

/** Entries of a device above its quota, and what happened to them. */
export type Excess = Owner & { what: 'refused' | 'deleted'; entries: number }

/** Most bytes this process accepts before all stored bytes are summed up again. */
const maxUnseen = 64 * 2 ** 20
/** Seconds until there is room. */
const roomSeconds = 30

/**
 * Byte quotas for device submissions, as this process knows them. Each device's row has its own count. The
 * bytes of an organization are summed up from time to time; when they exceed its limit, its devices get equal
 * shares of it, and devices below their share lose nothing.
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

  /** Bytes a device may have: above that its entries are refused until there is room. */
  roomOf(orgId: string): number {
    return Math.min(this.limits.perDevice, this.#shares.get(orgId) ?? Number.POSITIVE_INFINITY)
  }

  /** Sets the function that makes room. */
  onFull(wake: () => void): void {
    this.#wake = wake
  }

  /** Records how many bytes a device submitted, and how many it has stored now. */
  recordStored({ orgId }: Owner, bytes: number, kept: number): void {
    this.#unseen += bytes
    if (kept > this.roomOf(orgId) || this.#unseen > Math.min(maxUnseen, this.limits.perOrg / 8)) this.#wake()
  }

  /** Sets the share per device of the organizations above their limit, after a new sum. */
  setShares(shares: Map<string, number>): void {
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

/** Quota of logs, which an agent may submit later. */
export class LogQuota extends ByteQuota {
  /** Applies the rate limit of submissions. @throws rate_limited */
  applyRateLimit(owner: Owner, entries: number, take: () => void): void {
    try {
      take()
    } catch (error) {
      this.refused(owner, entries)
      throw error
    }
  }

  /** Refuses entries that the device should submit later. */
  refusal(owner: Owner, entries: number): Problem {
    this.refused(owner, entries)
    this.makeRoom()
    return new Problem('log_quota_exceeded', undefined, { retryAfter: roomSeconds })
  }
}

/** The most each may have so that the total stays within `total`: amounts below it are kept whole. */
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

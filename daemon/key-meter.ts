import { Problem } from '../src/core/errors.ts'
import { bucketAt, leaseSize, type Quota } from '../src/credentials/api-keys/rate-limit-window.ts'
import {
  type KeyUsage,
  leaseRequests,
  recordUsage,
  releaseRequests,
  type UnusedLease,
} from '../src/credentials/api-keys/usage.ts'
import { forEachSettled, writeBisecting } from '../src/storage/bisect-writes.ts'
import type { Storage, WriteOptions } from '../src/storage/open.ts'

type Metered = { id: string; hash: string; rateLimit: number }

/** The state of one key's window in this process. */
type Lease = {
  bucket: number
  /** Leased requests that are not used yet. */
  left: number
  /** The quota at the time of the lease. */
  quota: Quota
  waiting: number
  leasing: Promise<void> | undefined
  /** A full window is not queried again before this time. */
  fullUntil: number
}

const isMaintenance = (error: unknown): boolean => error instanceof Problem && error.code === 'maintenance'

export type QuotaResult = { accepted: boolean; quota: Quota }

/** Most keys in one transaction, so that it stays short. */
const batch = 200

/**
 * Counts what API keys use. Each request takes one from a lease on its key's window
 * (src/credentials/api-keys/rate-limit-window.ts); the counts for people are written in batches.
 */
export class KeyMeter {
  readonly #storage: Storage
  readonly #leases = new Map<string, Lease>()
  #uses = new Map<string, KeyUsage>()

  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** Counts one request of a key, if its window has room. */
  take(key: Metered, now: string): QuotaResult | Promise<QuotaResult> {
    const nowMs = Date.parse(now)
    const lease = this.#leaseOf(key.id)
    return this.#taken(key, lease, now, nowMs) ?? this.#wait(key, lease, now, nowMs)
  }

  /** Writes the used counts, and returns the rest of leases whose bucket is closed. */
  async flush(now: string): Promise<void> {
    const open = bucketAt(Date.parse(now))
    await this.#write((lease) => lease.bucket < open)
  }

  /** The same with all leases, at the end of the process. */
  async close(): Promise<void> {
    await this.#write(() => true)
  }

  #leaseOf(keyId: string): Lease {
    const known = this.#leases.get(keyId)
    if (known) return known
    const quota = { limit: 0, remaining: 0, reset: 0 }
    const lease = { bucket: 0, left: 0, quota, waiting: 0, leasing: undefined, fullUntil: 0 }
    this.#leases.set(keyId, lease)
    return lease
  }

  /** The answer, if it is known without the database. */
  #taken(key: Metered, lease: Lease, now: string, nowMs: number): QuotaResult | undefined {
    const { quota } = lease
    if (lease.left > 0 && lease.bucket >= bucketAt(nowMs)) {
      lease.left -= 1
      this.#use(key, now)
      return { accepted: true, quota: { ...quota, remaining: quota.remaining + lease.left } }
    }
    const full = nowMs < lease.fullUntil && quota.limit === key.rateLimit
    return full ? { accepted: false, quota } : undefined
  }

  async #wait(key: Metered, lease: Lease, now: string, nowMs: number): Promise<QuotaResult> {
    for (;;) {
      lease.waiting += 1
      lease.leasing ??= this.#lease(key, lease, nowMs)
      try {
        await lease.leasing
      } catch (error) {
        // Reads go on while nothing is written: those few are not counted.
        if (!isMaintenance(error)) throw error
        const quota = { limit: key.rateLimit, remaining: key.rateLimit, reset: lease.quota.reset }
        return { accepted: true, quota }
      } finally {
        lease.waiting -= 1
      }
      const taken = this.#taken(key, lease, now, nowMs)
      if (taken) return taken
    }
  }

  async #lease(key: Metered, lease: Lease, nowMs: number): Promise<void> {
    const left: UnusedLease = { keyId: key.id, bucket: lease.bucket, count: lease.left }
    lease.left = 0
    try {
      const { granted, quota } = await this.#storage.write(async (tx) => {
        if (left.count > 0) await releaseRequests(tx, [left])
        return leaseRequests(tx, key.id, leaseSize(key.rateLimit, lease.waiting), nowMs)
      })
      Object.assign(lease, { bucket: bucketAt(nowMs), left: granted, quota })
      // Only briefly, since other processes may return some.
      lease.fullUntil = granted > 0 ? 0 : Math.min(nowMs + 1000, quota.reset * 1000)
    } finally {
      lease.leasing = undefined
    }
  }

  #use({ id: keyId, hash }: Metered, now: string): void {
    const place = `${keyId} ${hash}`
    const known = this.#uses.get(place)
    if (known) {
      known.count += 1
      known.lastUsedAt = now
    } else {
      this.#uses.set(place, { keyId, hash, count: 1, lastUsedAt: now })
    }
  }

  async #write(isOver: (lease: Lease) => boolean): Promise<void> {
    const leftovers: UnusedLease[] = []
    for (const [keyId, lease] of this.#leases) {
      if (lease.leasing || lease.waiting > 0 || !isOver(lease)) continue
      this.#leases.delete(keyId)
      if (lease.left > 0) leftovers.push({ keyId, bucket: lease.bucket, count: lease.left })
    }
    // Sorted, so that concurrent processes do not deadlock.
    const uses = [...this.#uses.values()].sort((a, b) => (a.keyId < b.keyId ? -1 : 1))
    this.#uses = new Map()
    const waiting = new Set(uses)
    const record = async (some: readonly KeyUsage[], options: WriteOptions) => {
      await this.#storage.write((tx) => recordUsage(tx, some), { ...options, unsynced: true })
      for (const one of some) waiting.delete(one)
    }
    const giveBack = (some: readonly UnusedLease[], options: WriteOptions) =>
      this.#storage.write((tx) => releaseRequests(tx, some), { ...options, unsynced: true })
    try {
      await forEachSettled([() => inParts(uses, record), () => inParts(leftovers, giveBack)], (step) =>
        step(),
      )
    } finally {
      this.#keep([...waiting])
    }
  }

  /** Uses that could not be written wait for the next time. */
  #keep(uses: readonly KeyUsage[]): void {
    for (const one of uses) {
      const place = `${one.keyId} ${one.hash}`
      const newer = this.#uses.get(place)
      if (newer) newer.count += one.count
      else this.#uses.set(place, one)
    }
  }
}

/** @throws the failures, after all other parts were written */
async function inParts<T>(
  items: readonly T[],
  write: (some: readonly T[], options: WriteOptions) => Promise<void>,
): Promise<void> {
  const failures: unknown[] = []
  for (let at = 0; at < items.length; at += batch) {
    const { refused } = await writeBisecting(items.slice(at, at + batch), write, { locked: true })
    failures.push(...refused.map(({ error }) => error))
  }
  if (failures.length > 0) throw failures[0]
}

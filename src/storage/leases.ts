import { addSeconds, type Clock, clockSkew, type Instant } from '../core/time.ts'
import { LeaseLostError } from './database-errors.ts'
import type { Db, Storage } from './db.ts'
import { forKeyShare, forUpdate } from './query/locks.ts'
import { prepared } from './query/prepared.ts'

/*
 * Background work that one of several processes does. The holder of a lease renews it; another process takes it over
 * once it has expired or was released. Each takeover counts up the epoch. A process that was frozen meanwhile finds
 * another epoch in the transaction of its next write, which then fails.
 */

/** How long a lease lasts after its last renewal, and how often it is renewed. */
export const leaseSeconds = 30
export const renewalSeconds = leaseSeconds / 3

export type LeaseOptions = {
  /** This process. */
  holder: string
  clock: Clock
}

export type Leases = {
  /** What this process keeps, or waits for. */
  readonly names: readonly string[]
  add(name: string): void
  /** As far as this process knows without a query. */
  isHeld(name: string): boolean
  /** The storage for the work of a lease: its writes fail with LeaseLostError once another process has the lease. */
  fenced(name: string): Storage
  /** Renews what is held and takes what is free; returns the milliseconds until another lease expires, if one is known. */
  renew(): Promise<number | undefined>
  /** Gives up what is held, so that no other process has to wait until it expires. */
  release(): Promise<void>
}

export const leasesOn = (storage: Storage, options: LeaseOptions): Leases =>
  storage.traits.singleProcess ? unsharedLeases(storage) : new SharedLeases(storage, options)

/** No other process serves the database: nothing is stored. */
function unsharedLeases(storage: Storage): Leases {
  const names: string[] = []
  return {
    names,
    add: (name) => void names.push(name),
    isHeld: () => true,
    fenced: () => storage,
    renew: async () => undefined,
    release: async () => {},
  }
}

type LeaseState = {
  epoch: number
  /** By the monotonic clock of this process, which counts on while it is frozen. */
  until: number
}

class SharedLeases implements Leases {
  readonly names: string[] = []
  readonly #storage: Storage
  readonly #options: LeaseOptions
  readonly #held = new Map<string, LeaseState>()

  constructor(storage: Storage, options: LeaseOptions) {
    this.#storage = storage
    this.#options = options
  }

  add(name: string): void {
    this.names.push(name)
  }

  isHeld(name: string): boolean {
    return performance.now() < (this.#held.get(name)?.until ?? 0)
  }

  fenced(name: string): Storage {
    const storage = this.#storage
    const { holder } = this.#options
    const epoch = this.#held.get(name)?.epoch ?? 0
    return {
      ...storage,
      write: (work, options) =>
        storage.write(async (tx) => {
          // The lock stops a takeover until this transaction has ended, and no renewal.
          if ((await heldRow(tx, { name, holder, epoch })).length === 0) throw new LeaseLostError(name)
          return work(tx)
        }, options),
    }
  }

  async renew(): Promise<number | undefined> {
    const { names } = this
    // Before the query: this process never counts on a lease for longer than the others do.
    const until = performance.now() + leaseSeconds * 1000
    const now = this.#options.clock()
    const known = await this.#storage.read.selectFrom('leases').selectAll().execute()
    const isOwn = (name: string) =>
      known.some((row) => row.name === name && row.holder === this.#options.holder)
    const isFree = (name: string) => {
      const row = known.find((one) => one.name === name)
      return row === undefined || isExpired(row, now)
    }
    const forgotten = known.filter(
      (row) => !names.includes(row.name) && row.expires_at < addSeconds(now, -forgetSeconds),
    )
    if (forgotten.length > 0) await this.#storage.write((tx) => forget(tx, forgotten), unsynced)
    const own = names.filter(isOwn)
    const free = names.filter((name) => !isOwn(name) && isFree(name))
    const epochs = new Map<string, number>()
    // Unsynced: a renewal that is lost in a power failure only shortens the lease.
    if (own.length > 0)
      collect(epochs, await this.#storage.write((tx) => this.#extend(tx, own, now), unsynced))
    if (free.length > 0)
      collect(epochs, await this.#storage.write((tx) => this.#take(tx, free, now), unsynced))
    for (const name of names) {
      const epoch = epochs.get(name)
      if (epoch === undefined) this.#held.delete(name)
      else this.#held.set(name, { epoch, until })
    }
    const next = known
      .filter(({ name }) => names.includes(name) && !epochs.has(name))
      .map((row) => row.expires_at)
    return next.length === 0 ? undefined : Math.max(0, Date.parse(next.sort()[0]!) - Date.parse(now))
  }

  async release(): Promise<void> {
    const { holder, clock } = this.#options
    if (this.#held.size === 0) return
    this.#held.clear()
    const end = (tx: Db) =>
      tx
        .updateTable('leases')
        .set({ holder: null, expires_at: clock() })
        .where('holder', '=', holder)
        .execute()
    await this.#storage.write(end, unsynced)
  }

  #extend(tx: Db, names: readonly string[], now: Instant) {
    return tx
      .updateTable('leases')
      .set({ expires_at: addSeconds(now, leaseSeconds) })
      .where('name', 'in', names)
      .where('holder', '=', this.#options.holder)
      .returning(['name', 'epoch'])
      .execute()
  }

  async #take(tx: Db, names: readonly string[], now: Instant) {
    const taken = { holder: this.#options.holder, expires_at: addSeconds(now, leaseSeconds) }
    const made = await tx
      .insertInto('leases')
      .values(names.map((name) => ({ name, epoch: 1, ...taken })))
      .onConflict((c) => c.doNothing())
      .returning(['name', 'epoch'])
      .execute()
    const found = tx.selectFrom('leases').selectAll().where('name', 'in', names).orderBy('name')
    // A transaction of the former holder that has not ended keeps its lease a little longer.
    const rows = await forUpdate(found, { skipLocked: true }).execute()
    const ended = rows.filter((row) => isExpired(row, now)).map(({ name }) => name)
    if (ended.length === 0) return made
    const moved = await tx
      .updateTable('leases')
      .set((eb) => ({ ...taken, epoch: eb('epoch', '+', 1) }))
      .where('name', 'in', ended)
      .returning(['name', 'epoch'])
      .execute()
    return [...made, ...moved]
  }
}

const unsynced = { unsynced: true }

/** After this long a name that this version does not know is of a version that has ended. */
const forgetSeconds = 86_400

/** A process of that version may have come back meanwhile. */
async function forget(tx: Db, rows: readonly { name: string; expires_at: Instant }[]): Promise<void> {
  for (const { name, expires_at } of rows)
    await tx.deleteFrom('leases').where('name', '=', name).where('expires_at', '=', expires_at).execute()
}

/** A time later than any process writes holds nobody up. */
const isExpired = ({ expires_at: at }: { expires_at: Instant }, now: Instant): boolean =>
  at <= now || at > addSeconds(now, leaseSeconds + clockSkew)

function collect(epochs: Map<string, number>, rows: readonly { name: string; epoch: number }[]): void {
  for (const { name, epoch } of rows) epochs.set(name, epoch)
}

const heldRow = prepared((db, p: { name: string; holder: string; epoch: number }) =>
  forKeyShare(
    db
      .selectFrom('leases')
      .select('epoch')
      .where('name', '=', p.name)
      .where('holder', '=', p.holder)
      .where('epoch', '=', p.epoch),
  ),
)

/** How long a lease may be without a holder before somebody should look. */
const strandedSeconds = 600

/**
 * The leases whose holder has ended for long without giving them up, and whether any is held: none is while the service is
 * stopped. Work that a newer version does not have was given up by the version before.
 */
export async function findStrandedLeases(
  db: Db,
  now: Instant,
): Promise<{ stranded: { name: string; since: Instant }[]; isAnyHeld: boolean }> {
  const rows = await db.selectFrom('leases').selectAll().orderBy('name').execute()
  const since = addSeconds(now, -strandedSeconds)
  return {
    stranded: rows
      .filter((row) => row.holder !== null && row.expires_at < since)
      .map(({ name, expires_at }) => ({ name, since: expires_at })),
    isAnyHeld: rows.some((row) => !isExpired(row, now)),
  }
}

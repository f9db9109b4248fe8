import { setTimeout as sleep } from 'node:timers/promises'
import type { Cipher } from '../../core/cipher.ts'
import { newId } from '../../core/new-id.ts'
import type { Outbound } from '../../core/outbound.ts'
import { type Clock, type Instant, secondsBetween } from '../../core/time.ts'
import { writeLeavingLocked } from '../../storage/bisect-writes.ts'
import { isLockTimeout, isOutage } from '../../storage/database-errors.ts'
import { lacksCurrentKey } from '../../storage/key-check.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { type DeliveryOutcome, outcomeNotStored, type PendingDelivery } from '../deliveries/rules.ts'
import { unreadableFields, type WebhookRecord } from '../rules.ts'
import { attemptDelivery } from './attempt.ts'
import { type EndpointQueue, EndpointQueues, queueStart } from './endpoint-queues.ts'
import { type DeliveryAttempt, recordOutcomes } from './outcomes.ts'
import {
  acquireQueues,
  findDueQueues,
  findNextDueTime,
  isOverdue,
  leaseSeconds,
  listQueuesHeldBy,
  releaseAbandonedQueues,
  releasePredecessorQueues,
  renewalSeconds,
  renewLease,
} from './queue-leases.ts'
import * as store from './store.ts'

export type DeliveryWorkerOptions = {
  storage: Storage
  cipher: Cipher
  outbound: Outbound
  clock: Clock
  /** WEBHOOK_TIMEOUT_MS */
  timeoutMs: number
  /** Schedules another round before the next regular one. */
  wake(): void
  /** Called with the outcome of each attempt, which began at `since` of `Date.now()`. */
  onAttempt(delivery: PendingDelivery, outcome: DeliveryOutcome, since: number): void
  /** Called for each outcome that the database refused to store. */
  onOutcomeNotStored(what: { deliveryId: string; webhookId: string; error: unknown }): void
}

type EndedAttempt = DeliveryAttempt & {
  queue: EndpointQueue
  /** Another transaction kept its row locked: when to try again, of `performance.now()`. */
  retryAt?: number
}
type Recorded = {
  attempts: EndedAttempt[]
  /** Of them, those whose row is locked. */
  locked: Set<EndedAttempt>
  finished: EndpointQueue[]
  results: Map<string, store.ReleaseResult>
}

/** How long an outcome waits for its row, and the queue of its webhook, which others lock for milliseconds. */
const lockMs = 1000
/** When an outcome whose row was locked is recorded again. */
const lockedRetryMs = 10_000
/** Interval between scans for work that no notification announced. */
const scanIntervalMs = 1000
/** How long `close` waits for attempts in progress: less than the service has to shut down (daemon/serve.ts). */
const closeTimeoutMs = 6000

/** Like `Promise.all`, but settles only when all have settled: work of a failed round must not overlap the next. */
async function settleAll<T extends readonly unknown[] | []>(work: T) {
  await Promise.allSettled(work)
  return Promise.all(work)
}

/**
 * Sends deliveries to webhooks. Pending deliveries are stored only in the database, so a process that dies loses none.
 * Deliveries whose outcome it had not recorded are sent again by the next holder of the queue, with the same ids.
 */
export class DeliveryWorker {
  readonly #options: DeliveryWorkerOptions
  readonly #workerId = newId()
  readonly #queues = new EndpointQueues()
  readonly #inFlight = new Set<Promise<void>>()
  #ended: EndedAttempt[] = []
  #sweptAt = Number.NEGATIVE_INFINITY
  #renewedAt: Instant = ''
  #timer: NodeJS.Timeout | undefined
  #isClosing = false
  #hasBegun = false
  /** The database uses an encryption key that this process does not have. */
  #lacksCurrentKey = false

  constructor(on: DeliveryWorkerOptions) {
    this.#options = on
  }

  /** One round: records outcomes, sends due deliveries, and acquires more queues. Rounds must not overlap. */
  async round(): Promise<void> {
    const { storage, clock, wake } = this.#options
    if (!this.#hasBegun) await releasePredecessorQueues(storage)
    this.#hasBegun = true
    const isSweep = performance.now() - this.#sweptAt >= scanIntervalMs
    if (isSweep || this.#sinceRenewal() >= leaseSeconds) await this.#sweep()
    const [hasRecorded, next] = await settleAll([this.#recordAndSend(), findNextDueTime(storage.read)])
    const isDue = next !== undefined && next <= clock() && this.#queues.room > 0
    const hasAcquired = isDue && (await this.#acquire())
    if (hasRecorded || hasAcquired || this.#recordable().length > 0) wake()
    else this.#wakeAt(next)
  }

  /**
   * Called after the last round. Sends nothing more, records the outcomes of attempts in progress, and releases all
   * queues. An attempt that takes too long counts as not made: the next holder of the queue sends the delivery again.
   */
  async close(): Promise<void> {
    this.#isClosing = true
    clearTimeout(this.#timer)
    let isLate = false
    const late = sleep(closeTimeoutMs, undefined, { ref: false }).then(() => {
      isLate = true
    })
    while (this.#ended.length > 0 || this.#queues.size > 0) {
      for (const queue of this.#queues.all()) {
        queue.ready = []
        queue.mayHaveMore = false
        if (isLate) queue.inFlight.clear()
      }
      this.#conclude(await this.#record())
      const isWaiting = this.#ended.length === 0 && this.#inFlight.size > 0
      if (isWaiting && !isLate) await Promise.race([late, ...this.#inFlight])
    }
  }

  /** Reports that these webhooks have new deliveries, due since `dueAt`. */
  notify(webhookIds: readonly string[], dueAt: Instant): void {
    for (const id of webhookIds) {
      const queue = this.#queues.get(id)
      if (!queue) continue
      queue.mayHaveMore = true
      // A retry that became due while these were being inserted may already be loaded: they sort before it.
      if (dueAt < queue.readUpTo.dueAt) queue.readUpTo = queueStart
    }
    this.#options.wake()
  }

  /** Finds deliveries that other processes added to queues held here, and releases the queues of dead processes. */
  async #sweep(): Promise<void> {
    const { storage, cipher, clock } = this.#options
    this.#sweptAt = performance.now()
    // A process whose clock is behind adds deliveries that sort before those already loaded.
    for (const queue of this.#queues.all()) Object.assign(queue, { mayHaveMore: true, readUpTo: queueStart })
    await this.#renew()
    await releaseAbandonedQueues(storage, clock())
    if (this.#lacksCurrentKey) this.#lacksCurrentKey = await lacksCurrentKey(storage.read, cipher)
  }

  /**
   * Renews the lease, before abandoned queues are released: a process that was suspended for longer than its lease
   * would otherwise release its own queues and acquire them again. After such a pause it drops those it has lost.
   */
  async #renew(): Promise<void> {
    const { storage, clock } = this.#options
    const now = clock()
    const passed = this.#sinceRenewal()
    if (passed < renewalSeconds) return
    await storage.write((tx) => renewLease(tx, this.#workerId, now), { unsynced: true })
    this.#renewedAt = now
    if (passed < leaseSeconds) return
    const held = new Set(await listQueuesHeldBy(storage.read, this.#workerId))
    for (const queue of this.#queues.all()) {
      if (held.has(queue.webhookId)) continue
      queue.ready = []
      this.#queues.remove(queue)
    }
  }

  /** Seconds since the lease was renewed; 0 if no queue is held. If the clock was set back, the lease has expired. */
  #sinceRenewal(): number {
    if (this.#queues.size === 0) return 0
    const passed = secondsBetween(this.#renewedAt, this.#options.clock())
    return passed < 0 ? leaseSeconds : passed
  }

  /** Acquires due queues. Returns whether it got any. */
  async #acquire(): Promise<boolean> {
    const { storage, cipher, clock } = this.#options
    const limit = Math.min(storage.traits.batchSize, this.#queues.room)
    const now = clock()
    const marks = this.#lacksCurrentKey ? cipher.marks : undefined
    const queues = await findDueQueues(storage, { now, excluded: this.#queues.full(), marks, limit })
    if (queues.length === 0) return false
    const held = new Set(await acquireQueues(storage, queues, { holder: this.#workerId, now }))
    this.#renewedAt = now
    for (const { webhookId, partnerId, orgId, dueAt } of queues) {
      // A queue that is already held here was considered abandoned, and released, by another process.
      if (!held.has(webhookId) || this.#queues.get(webhookId)) continue
      this.#queues.add(webhookId, [partnerId, orgId], isOverdue(dueAt, now))
    }
    return held.size > 0
  }

  /** Returns whether anything was recorded or released. */
  async #recordAndSend(): Promise<boolean> {
    if (this.#options.storage.traits.serialWrites) {
      // Writes run in this thread: nothing could run beside them.
      const recorded = await this.#record()
      this.#conclude(recorded)
      await this.#sendDue()
      return recorded !== undefined
    }
    // Both start from the same state of the queues: no deliveries are loaded for queues that are being released.
    const [recorded] = await settleAll([this.#record(), this.#sendDue()])
    // Only now: `#sendDue` may still find these deliveries as due, and skips them because they are in flight.
    this.#conclude(recorded)
    return recorded !== undefined
  }

  async #sendDue(): Promise<void> {
    await this.#load()
    this.#send()
  }

  /**
   * Loads due deliveries. The webhooks are read last, right before anything is sent, so that a change to a webhook
   * applies to its next delivery.
   */
  async #load(): Promise<void> {
    const { storage, cipher, clock } = this.#options
    const queues = this.#queues.all().filter((queue) => this.#queues.hasWork(queue))
    if (queues.length === 0) return
    const now = clock()
    const queries = queues.flatMap((queue) => {
      const { webhookId, webhook, ready, inFlight, readUpTo } = queue
      const wanted = this.#queues.wanted(queue)
      const isActive = webhook === undefined || webhook.status === 'active'
      const limit = readUpTo === queueStart ? wanted + inFlight.size + ready.length : wanted
      return wanted > 0 ? [{ queue, webhookId, isActive, limit, now, ...readUpTo }] : []
    })
    for (const { queue } of queries) queue.mayHaveMore = false
    const found = Map.groupBy(
      await store.findPendingDeliveries(storage.read, queries),
      ({ webhookId }) => webhookId,
    )
    for (const { queue, webhookId, limit } of queries) {
      const deliveries = found.get(webhookId) ?? []
      if (deliveries.length === limit) queue.mayHaveMore = true
      const last = deliveries.at(-1)
      if (last) queue.readUpTo = { dueAt: last.dueAt, seq: last.seq }
      const known = new Set([...queue.inFlight, ...queue.ready.map(({ id }) => id)])
      queue.ready.push(...deliveries.filter(({ id }) => !known.has(id)))
    }
    const ids = queues.map(({ webhookId }) => webhookId)
    const webhooks = await store.findWebhooks(storage.read, cipher, ids)
    if (!this.#lacksCurrentKey && [...webhooks.values()].some((one) => this.#usesUnknownKey(one)))
      this.#lacksCurrentKey = await lacksCurrentKey(storage.read, cipher)
    for (const queue of queues) this.#applyWebhook(queue, webhooks.get(queue.webhookId))
  }

  /**
   * Applies the current state of a webhook to its queue. Drops loaded deliveries that must not be sent any more. After
   * a change of status, the next round loads the queue again from its start.
   */
  #applyWebhook(queue: EndpointQueue, webhook: WebhookRecord | undefined): void {
    const was = queue.webhook === undefined ? 'active' : queue.webhook.status
    queue.webhook = webhook
    if (!webhook) Object.assign(queue, { ready: [], mayHaveMore: false })
    else if (webhook.status !== was) Object.assign(queue, { mayHaveMore: true, readUpTo: queueStart })
    if (webhook?.status !== 'active') queue.ready = queue.ready.filter(({ askedFor }) => askedFor === 1)
    // An attempt here would fail, and use up a retry that a process with the key could make.
    queue.isLeftToOthers =
      webhook !== undefined && this.#lacksCurrentKey && !queue.isOverdue && this.#usesUnknownKey(webhook)
    if (queue.isLeftToOthers) Object.assign(queue, { ready: [], mayHaveMore: false })
    this.#queues.enqueue(queue)
  }

  /** Whether a field of the webhook is encrypted with a key that this process does not have. */
  #usesUnknownKey(webhook: WebhookRecord): boolean {
    return unreadableFields(webhook).some(
      (column) => !this.#options.cipher.knows(webhook.unreadable[column]!),
    )
  }

  #send(): void {
    for (let next = this.#queues.next(); next; next = this.#queues.next()) {
      const { queue, delivery } = next
      const sending = this.#deliver(queue, queue.webhook!, delivery).finally(() =>
        this.#inFlight.delete(sending),
      )
      this.#inFlight.add(sending)
    }
  }

  async #deliver(queue: EndpointQueue, webhook: WebhookRecord, delivery: PendingDelivery): Promise<void> {
    const since = Date.now()
    const outcome = await attemptDelivery(this.#options, webhook, delivery)
    queue.isFailing = outcome.status !== 'delivered'
    this.#options.onAttempt(delivery, outcome, since)
    this.#ended.push({ queue, webhook, delivery, outcome })
    this.#queues.attemptEnded(queue)
    this.#options.wake()
  }

  /** Records the outcomes of ended attempts, and releases queues that have nothing to send or must make room. */
  async #record(): Promise<Recorded | undefined> {
    const { storage, clock } = this.#options
    const batch = storage.traits.batchSize
    const attempts = this.#recordable().slice(0, batch)
    const recording = new Map(attempts.map(({ queue, delivery }) => [delivery.id, queue]))
    const finished = this.#queues
      .all()
      .filter((queue) => [...queue.inFlight].every((id) => recording.has(id)))
      .filter((queue) => queue.ready.length === 0 && this.#queues.wanted(queue) === 0)
      .filter(({ retryAt = 0 }) => retryAt <= this.#now())
      .slice(0, batch)
    if (attempts.length === 0 && finished.length === 0) return undefined
    const released = finished.map((queue) => ({
      webhookId: queue.webhookId,
      makesRoom: this.#isClosing || this.#queues.yieldsToOthers(queue),
    }))
    const now = clock()
    const releaseFinished = (tx: Db) => store.releaseQueues(tx, released, { holder: this.#workerId, now })
    const work = async (tx: Db) => {
      await recordOutcomes(tx, attempts, now)
      return releaseFinished(tx)
    }
    // Unsynced: a delivery whose outcome is lost in a power failure is sent again.
    try {
      const results = await storage.write(work, { unsynced: true, lockMs })
      return { attempts, locked: new Set(), finished, results }
    } catch (error) {
      const isLocked = isLockTimeout(error)
      if ((isOutage(error) && !isLocked) || (attempts.length === 0 && !isLocked)) throw error
      const locked = await this.#recordOneByOne(attempts, now)
      const holding = new Set([...locked].map(({ queue }) => queue.webhookId))
      const free = released.filter(({ webhookId }) => !holding.has(webhookId))
      return { attempts, locked, finished, results: await this.#releaseOneByOne(free, now) }
    }
  }

  /** Ended attempts whose outcome may be recorded now. */
  #recordable(): EndedAttempt[] {
    const now = this.#now()
    return this.#ended.filter(({ retryAt = 0 }) => retryAt <= now)
  }

  /** Outcomes whose rows were locked are tried once more at the end. */
  #now(): number {
    return this.#isClosing ? Number.POSITIVE_INFINITY : performance.now()
  }

  /** Releases queues; those whose row is locked are missing in the result. */
  async #releaseOneByOne(
    queues: readonly store.ReleasedQueue[],
    now: Instant,
  ): Promise<Map<string, store.ReleaseResult>> {
    const { storage } = this.#options
    const release = (tx: Db, some: readonly store.ReleasedQueue[]) =>
      store.releaseQueues(tx, some, { holder: this.#workerId, now })
    const { done, refused } = await writeLeavingLocked(storage, queues, release, { unsynced: true, lockMs })
    const failure = refused.find(({ error }) => !isLockTimeout(error))
    if (failure) throw failure.error
    return new Map(done.flatMap((results) => [...results]))
  }

  /**
   * An outcome that cannot be stored must not block the others, which may belong to other organizations: its delivery
   * is recorded as failed instead. If that fails too, the delivery is sent again later, as after a crash. Returns those
   * whose row is locked.
   */
  async #recordOneByOne(attempts: readonly EndedAttempt[], now: Instant): Promise<Set<EndedAttempt>> {
    const { storage, onOutcomeNotStored } = this.#options
    const record = <T extends DeliveryAttempt>(some: readonly T[]) =>
      writeLeavingLocked(storage, some, (tx, part) => recordOutcomes(tx, part, now), {
        unsynced: true,
        lockMs,
      })
    const { refused } = await record(attempts)
    const locked = refused.filter(({ error }) => isLockTimeout(error))
    const spoiled = refused.filter(({ error }) => !isLockTimeout(error))
    for (const { item, error } of spoiled) {
      onOutcomeNotStored({ deliveryId: item.delivery.id, webhookId: item.delivery.webhookId, error })
    }
    await record(spoiled.map(({ item }) => ({ ...item, outcome: outcomeNotStored(item.outcome) })))
    return new Set(locked.map(({ item }) => item))
  }

  #conclude(recorded: Recorded | undefined): void {
    if (!recorded) return
    const { attempts, locked, finished, results } = recorded
    const taken = new Set(attempts)
    this.#ended = this.#ended.filter((one) => !taken.has(one))
    for (const one of attempts) {
      // At the end of the process the next holder of the queue sends the delivery again.
      if (locked.has(one) && !this.#isClosing)
        this.#ended.push({ ...one, retryAt: performance.now() + lockedRetryMs })
      else this.#queues.outcomeRecorded(one.queue, one.delivery.id)
    }
    for (const queue of finished) {
      const result = results.get(queue.webhookId)
      if (result === undefined && !this.#isClosing) queue.retryAt = performance.now() + lockedRetryMs
      else if (result === 'kept') Object.assign(queue, { mayHaveMore: true, readUpTo: queueStart })
      else this.#queues.remove(queue)
    }
  }

  #wakeAt(due: string | undefined): void {
    clearTimeout(this.#timer)
    if (due === undefined) return
    const ms = secondsBetween(this.#options.clock(), due) * 1000
    if (ms > 0 && ms < scanIntervalMs) this.#timer = setTimeout(this.#options.wake, Math.max(1, ms)).unref()
  }
}

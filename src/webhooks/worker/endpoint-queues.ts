import { addCount, countOf } from '../../core/counts.ts'
import type { Instant } from '../../core/time.ts'
import { FairQueue, type FairShareKey } from '../../storage/fair-queue.ts'
import type { PendingDelivery } from '../deliveries/rules.ts'
import type { WebhookRecord } from '../rules.ts'

/** Position of a delivery in its queue: by due time, then by sequence number. */
export type QueuePosition = { dueAt: Instant; seq: number }

/** Before every delivery. */
export const queueStart: QueuePosition = { dueAt: '', seq: 0 }

/** A queue that this process holds. */
export type EndpointQueue = {
  webhookId: string
  /** The partner and the organization. */
  fairShareKey: FairShareKey
  /** undefined: not loaded yet, or deleted. */
  webhook: WebhookRecord | undefined
  /** Deliveries that are due and not sent yet. */
  ready: PendingDelivery[]
  /** Deliveries that were sent and whose outcome is not recorded yet. */
  inFlight: Set<string>
  /** Whether the database may have more that is due. */
  mayHaveMore: boolean
  /** The last delivery that was loaded: the next query starts behind it. */
  readUpTo: QueuePosition
  /** The last attempt failed: deliveries are sent one at a time until one succeeds. */
  isFailing: boolean
  /** Deliveries sent since the queue was acquired. */
  sent: number
  /** Is in line to send its next delivery. */
  isWaiting: boolean
  /** No process with the right key acquired the queue in time: it is tried here, even if it cannot be decrypted. */
  isOverdue: boolean
  /** Cannot be decrypted here, and is released for a process that has the key. */
  isLeftToOthers: boolean
  /** Another transaction kept its row locked: when to release it again, of `performance.now()`. */
  retryAt?: number
}

/** Concurrent deliveries of one webhook. */
const maxConcurrent = 4
/**
 * Most queues held by this process, and most concurrent deliveries: in all, of one partner with all its organizations,
 * and of one organization. Without the limit of a partner, one that creates many organizations whose receivers all
 * answer just before the timeout would delay everyone else.
 */
export const workerLimits = { inAll: 1000, ofPartner: 500, ofOrg: 100 }
/** Deliveries after which a queue is released, while its process, partner or organization holds as many queues as it may. */
const fairShare = 64

/**
 * The queues that this process holds. Decides which of them sends next: partners take turns, and so do the
 * organizations of each partner.
 */
export class EndpointQueues {
  readonly #held = new Map<string, EndpointQueue>()
  readonly #waiting = new FairQueue<EndpointQueue>()
  /** Queues held, and attempts in progress, by id of the partner and of the organization. */
  readonly #queues = new Map<string, number>()
  readonly #active = new Map<string, number>()
  #activeInAll = 0

  get size(): number {
    return this.#held.size
  }

  /** How many more queues may be acquired. */
  get room(): number {
    return Math.max(0, workerLimits.inAll - this.#held.size)
  }

  all(): EndpointQueue[] {
    return [...this.#held.values()]
  }

  get(webhookId: string): EndpointQueue | undefined {
    return this.#held.get(webhookId)
  }

  /** Ids of the partners and organizations that have reached their limit of queues. */
  full(): string[] {
    const full = this.all().flatMap(({ fairShareKey }) =>
      fairShareKey.filter((id, level) => countOf(this.#queues, id) >= maxAt(level)),
    )
    return [...new Set(full)]
  }

  add(webhookId: string, fairShareKey: FairShareKey, isOverdue = false): void {
    const none = {
      webhook: undefined,
      ready: [],
      inFlight: new Set<string>(),
      mayHaveMore: true,
      readUpTo: queueStart,
    }
    const queue = { webhookId, fairShareKey, ...none, isFailing: false, sent: 0, isWaiting: false }
    this.#held.set(webhookId, { ...queue, isOverdue, isLeftToOthers: false })
    addToEachLevel(this.#queues, fairShareKey, 1)
  }

  remove({ webhookId, fairShareKey }: EndpointQueue): void {
    if (this.#held.delete(webhookId)) addToEachLevel(this.#queues, fairShareKey, -1)
  }

  /**
   * How many more deliveries to load: up to twice the concurrency, so that the next ones are ready when the current
   * ones end. 0 while there are more than the concurrency, so that several are loaded at a time.
   */
  wanted(queue: EndpointQueue): number {
    if (!queue.mayHaveMore || this.#hasHadItsShare(queue)) return 0
    const max = this.#width(queue)
    const taken = queue.ready.length + queue.inFlight.size
    return taken > max ? 0 : 2 * max - taken
  }

  /** Whether the queue can load or send deliveries. */
  hasWork(queue: EndpointQueue): boolean {
    return this.wanted(queue) > 0 || this.#maySend(queue)
  }

  yieldsToOthers(queue: EndpointQueue): boolean {
    return queue.isLeftToOthers || this.#hasHadItsShare(queue)
  }

  /** Puts the queue in line if it may send. */
  enqueue(queue: EndpointQueue): void {
    if (queue.isWaiting || !this.#maySend(queue)) return
    queue.isWaiting = true
    this.#waiting.push(queue.fairShareKey, queue)
  }

  /** The next delivery to send, which counts as in flight from now on; undefined when none may be sent. */
  next(): { queue: EndpointQueue; delivery: PendingDelivery } | undefined {
    while (this.#activeInAll < workerLimits.inAll) {
      const queue = this.#waiting.shift(this.#isBelowLimit)
      if (!queue) return undefined
      queue.isWaiting = false
      const delivery = this.#maySend(queue) ? queue.ready.shift() : undefined
      if (delivery) {
        queue.inFlight.add(delivery.id)
        queue.sent += 1
        this.#count(queue, 1)
      }
      this.enqueue(queue)
      if (delivery) return { queue, delivery }
    }
    return undefined
  }

  /** An attempt has ended; its delivery stays in `inFlight` until the outcome is recorded. */
  attemptEnded(queue: EndpointQueue): void {
    this.#count(queue, -1)
  }

  outcomeRecorded(queue: EndpointQueue, deliveryId: string): void {
    queue.inFlight.delete(deliveryId)
    this.enqueue(queue)
  }

  readonly #isBelowLimit = (id: string, level: number): boolean => countOf(this.#active, id) < maxAt(level)

  #count({ fairShareKey }: EndpointQueue, change: 1 | -1): void {
    this.#activeInAll += change
    addToEachLevel(this.#active, fairShareKey, change)
  }

  #hasHadItsShare({ fairShareKey, sent }: EndpointQueue): boolean {
    if (sent < fairShare) return false
    return this.room === 0 || fairShareKey.some((id, level) => countOf(this.#queues, id) >= maxAt(level))
  }

  #width(queue: EndpointQueue): number {
    return queue.isFailing ? 1 : maxConcurrent
  }

  #maySend(queue: EndpointQueue): boolean {
    return queue.ready.length > 0 && queue.inFlight.size < this.#width(queue)
  }
}

const maxAt = (level: number): number => (level === 0 ? workerLimits.ofPartner : workerLimits.ofOrg)

function addToEachLevel(counts: Map<string, number>, fairShareKey: FairShareKey, change: 1 | -1): void {
  for (const id of fairShareKey) addCount(counts, id, change)
}

import { addCount } from '../../core/counts.ts'
import type { Instant } from '../../core/time.ts'
import { FairQueue, type Party } from '../../storage/turns.ts'
import type { PendingDelivery } from '../deliveries/rules.ts'
import type { WebhookRecord } from '../rules.ts'

/** Where a delivery stands in its queue: by when it is due, then by its number. */
export type QueuePosition = { dueAt: Instant; seq: number }

/** Before everything. */
export const queueStart: QueuePosition = { dueAt: '', seq: 0 }

/** A queue that this process holds. */
export type EndpointQueue = {
  webhookId: string
  /** Its partner and its organization. */
  party: Party
  /** undefined: not read yet, or deleted. */
  webhook: WebhookRecord | undefined
  /** Deliveries that are due and not sent yet. */
  ready: PendingDelivery[]
  /** Deliveries that were sent and whose outcome is not recorded yet. */
  inFlight: Set<string>
  /** Whether the database may have more that is due. */
  mayHaveMore: boolean
  /** The last delivery that was loaded: the next query starts behind it. */
  readUpTo: QueuePosition
  /** The last attempt failed: one at a time, until one succeeds. */
  isFailing: boolean
  /** Deliveries sent since it was taken. */
  sent: number
  /** Waits for its turn. */
  isWaiting: boolean
  /** What cannot be decrypted here is tried nevertheless: no other process has taken it. */
  isForsaken: boolean
  /** Cannot be decrypted here, and goes to a process that has the key. */
  isPassedOn: boolean
}

/** Deliveries of a webhook that are sent at once. */
const maxConcurrent = 4
/**
 * Queues held, and deliveries sent, at once: in all, of a partner with all its organizations, and of one organization. A
 * partner can create organizations whose receivers all answer at the last moment.
 */
export const maxQueues = { inAll: 1000, ofPartner: 500, ofOrg: 100 }
/** Deliveries after which a queue makes room, where others wait for one. */
const fairShare = 64

/** The queues this process holds: which of them may send the next one, each partner and each organization in its turn. */
export class EndpointQueues {
  readonly #held = new Map<string, EndpointQueue>()
  readonly #waiting = new FairQueue<EndpointQueue>()
  /** By partner and by organization: queues held, and deliveries that are sent and not answered. */
  readonly #queues = new Map<string, number>()
  readonly #active = new Map<string, number>()
  #activeInAll = 0

  get size(): number {
    return this.#held.size
  }

  /** Queues for which there is room. */
  get room(): number {
    return Math.max(0, maxQueues.inAll - this.#held.size)
  }

  all(): EndpointQueue[] {
    return [...this.#held.values()]
  }

  get(webhookId: string): EndpointQueue | undefined {
    return this.#held.get(webhookId)
  }

  /** Partners and organizations that hold as many queues as they may. */
  full(): string[] {
    const full = this.all().flatMap(({ party }) =>
      party.filter((id, level) => inUse(this.#queues, id) >= maxAt(level)),
    )
    return [...new Set(full)]
  }

  add(webhookId: string, party: Party, isForsaken = false): void {
    const none = {
      webhook: undefined,
      ready: [],
      inFlight: new Set<string>(),
      mayHaveMore: true,
      readUpTo: queueStart,
    }
    const queue = { webhookId, party, ...none, isFailing: false, sent: 0, isWaiting: false }
    this.#held.set(webhookId, { ...queue, isForsaken, isPassedOn: false })
    countOf(this.#queues, party, 1)
  }

  remove({ webhookId, party }: EndpointQueue): void {
    if (this.#held.delete(webhookId)) countOf(this.#queues, party, -1)
  }

  /**
   * How many more deliveries it can take in: those after the next ones are ready when these are done. None while
   * there are enough for now, so that they come several at a time.
   */
  wanted(queue: EndpointQueue): number {
    if (!queue.mayHaveMore || (this.#isPressed() && queue.sent >= fairShare)) return 0
    const most = this.#width(queue)
    const taken = queue.ready.length + queue.inFlight.size
    return taken > most ? 0 : 2 * most - taken
  }

  /** Whether it takes something in, or sends something. */
  hasWork(queue: EndpointQueue): boolean {
    return this.wanted(queue) > 0 || this.#maySend(queue)
  }

  yieldsToOthers(queue: EndpointQueue): boolean {
    return queue.isPassedOn || (this.#isPressed() && queue.sent >= fairShare)
  }

  /** It has something ready: it takes its place in line. */
  enqueue(queue: EndpointQueue): void {
    if (queue.isWaiting || !this.#maySend(queue)) return
    queue.isWaiting = true
    this.#waiting.push(queue.party, queue)
  }

  /** The next to be sent, which counts as on its way; undefined when nothing can be. */
  next(): { queue: EndpointQueue; delivery: PendingDelivery } | undefined {
    while (this.#activeInAll < maxQueues.inAll) {
      const queue = this.#waiting.shift(this.#mayHaveMore)
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

  /** One of its deliveries is no longer on its way; it stays busy until its outcome is recorded. */
  attemptEnded(queue: EndpointQueue): void {
    this.#count(queue, -1)
  }

  /** Its outcome is recorded. */
  outcomeRecorded(queue: EndpointQueue, deliveryId: string): void {
    queue.inFlight.delete(deliveryId)
    this.enqueue(queue)
  }

  readonly #mayHaveMore = (id: string, level: number): boolean => inUse(this.#active, id) < maxAt(level)

  #count({ party }: EndpointQueue, change: 1 | -1): void {
    this.#activeInAll += change
    countOf(this.#active, party, change)
  }

  #isPressed(): boolean {
    return this.room === 0
  }

  #width(queue: EndpointQueue): number {
    return queue.isFailing ? 1 : maxConcurrent
  }

  #maySend(queue: EndpointQueue): boolean {
    return queue.ready.length > 0 && queue.inFlight.size < this.#width(queue)
  }
}

const maxAt = (level: number): number => (level === 0 ? maxQueues.ofPartner : maxQueues.ofOrg)

const inUse = (counts: ReadonlyMap<string, number>, id: string): number => counts.get(id) ?? 0

function countOf(counts: Map<string, number>, party: Party, change: 1 | -1): void {
  for (const id of party) addCount(counts, id, change)
}

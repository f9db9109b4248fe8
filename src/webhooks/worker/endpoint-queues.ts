import type { Instant } from '../../core/time.ts'
import type { PendingDelivery } from '../deliveries/rules.ts'
import type { WebhookRecord } from '../rules.ts'

/** Where in a queue something stands: by when it is due, then by its number. */
export type QueuePosition = { dueAt: Instant; seq: number }

/** Before everything. */
export const queueStart: QueuePosition = { dueAt: '', seq: 0 }

/** A queue that this process holds. */
export type EndpointQueue = {
  webhookId: string
  orgId: string
  /** undefined: not read yet, or deleted. */
  webhook: WebhookRecord | undefined
  /** What is due and not on its way yet. */
  ready: PendingDelivery[]
  /** On its way, or its outcome not put down yet. */
  inFlight: Set<string>
  /** Whether more may be due. */
  mayHaveMore: boolean
  /** The last that was taken in: what comes behind it is read, not all once more. */
  readUpTo: QueuePosition
  /** The last attempt failed: one at a time, until one succeeds. */
  isFailing: boolean
  /** Deliveries sent since it was taken. */
  sent: number
  /** Waits for its turn. */
  isWaiting: boolean
  /** What does not open here is tried nevertheless: nobody else has come for it. */
  isForsaken: boolean
  /** Does not open here, and goes to a process that has the key. */
  isPassedOn: boolean
}

/** Deliveries of a webhook that are on their way at once. */
const maxConcurrent = 4
/** At once in all, and of one organization. */
export const maxQueues = { inAll: 1000, ofOrg: 100 }
/** Deliveries after which a queue makes room, where others wait for one. */
const fairShare = 64

/** What one organization has of them. */
type OrgQueues = { active: number; queues: number; waiting: EndpointQueue[]; isWaiting: boolean }

/** The queues this process holds: which of them may send the next one, each organization in its turn. */
export class EndpointQueues {
  readonly #held = new Map<string, EndpointQueue>()
  readonly #orgs = new Map<string, OrgQueues>()
  readonly #waiting: string[] = []
  #active = 0

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

  /** Organizations that hold as many queues as one may. */
  full(): string[] {
    return [...this.#orgs].filter(([, { queues }]) => queues >= maxQueues.ofOrg).map(([orgId]) => orgId)
  }

  add(webhookId: string, orgId: string, isForsaken = false): void {
    const none = {
      webhook: undefined,
      ready: [],
      inFlight: new Set<string>(),
      mayHaveMore: true,
      readUpTo: queueStart,
    }
    const queue = { webhookId, orgId, ...none, isFailing: false, sent: 0, isWaiting: false }
    this.#held.set(webhookId, { ...queue, isForsaken, isPassedOn: false })
    this.#org(orgId).queues += 1
  }

  remove({ webhookId, orgId }: EndpointQueue): void {
    if (!this.#held.delete(webhookId)) return
    this.#org(orgId).queues -= 1
    this.#forget(orgId)
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
    const org = this.#org(queue.orgId)
    org.waiting.push(queue)
    if (org.isWaiting) return
    org.isWaiting = true
    this.#waiting.push(queue.orgId)
  }

  /** The next to be sent, which counts as on its way; undefined when nothing can be. */
  next(): { queue: EndpointQueue; delivery: PendingDelivery } | undefined {
    while (this.#active < maxQueues.inAll) {
      const orgId = this.#waiting.shift()
      if (orgId === undefined) return undefined
      const org = this.#org(orgId)
      org.isWaiting = false
      const queue = org.active < maxQueues.ofOrg ? org.waiting.shift() : undefined
      if (!queue) continue
      queue.isWaiting = false
      const delivery = this.#maySend(queue) ? queue.ready.shift() : undefined
      if (delivery) {
        queue.inFlight.add(delivery.id)
        queue.sent += 1
        org.active += 1
        this.#active += 1
      }
      this.enqueue(queue)
      this.#line(orgId)
      if (delivery) return { queue, delivery }
    }
    return undefined
  }

  /** One of its deliveries is no longer on its way; it stays busy until its outcome is put down. */
  attemptEnded(queue: EndpointQueue): void {
    this.#active -= 1
    this.#org(queue.orgId).active -= 1
    this.#line(queue.orgId)
  }

  /** Its outcome is put down. */
  outcomeRecorded(queue: EndpointQueue, deliveryId: string): void {
    queue.inFlight.delete(deliveryId)
    this.enqueue(queue)
    this.#forget(queue.orgId)
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

  #line(orgId: string): void {
    const org = this.#org(orgId)
    if (org.isWaiting || org.waiting.length === 0 || org.active >= maxQueues.ofOrg) return
    org.isWaiting = true
    this.#waiting.push(orgId)
  }

  #org(orgId: string) {
    let org = this.#orgs.get(orgId)
    if (!org) {
      org = { active: 0, queues: 0, waiting: [], isWaiting: false }
      this.#orgs.set(orgId, org)
    }
    return org
  }

  #forget(orgId: string): void {
    const org = this.#org(orgId)
    if (org.active === 0 && org.queues === 0 && org.waiting.length === 0) this.#orgs.delete(orgId)
  }
}

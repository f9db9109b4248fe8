import type { Instant } from '../../core/time.ts'
import type { Parcel } from '../deliveries/rules.ts'
import type { Held } from '../rules.ts'

/** Where in a queue something stands: by when it is due, then by its number. */
export type Place = { dueAt: Instant; seq: number }

/** Before everything. */
export const start: Place = { dueAt: '', seq: 0 }

/** A queue that this process holds. */
export type Lane = {
  webhookId: string
  orgId: string
  /** undefined: not read yet, or deleted. */
  webhook: Held | undefined
  /** What is due and not on its way yet. */
  ready: Parcel[]
  /** On its way, or its outcome not put down yet. */
  busy: Set<string>
  /** Whether more may be due. */
  more: boolean
  /** The last that was taken in: what comes behind it is read, not all once more. */
  behind: Place
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
const width = 4
/** At once in all, and of one organization. */
export const most = { inAll: 1000, ofOrg: 100 }
/** Deliveries after which a queue makes room, where others wait for one. */
const turn = 64

/** The queues this process holds: which of them may send the next one, each organization in its turn. */
export class Lanes {
  readonly #held = new Map<string, Lane>()
  readonly #orgs = new Map<string, { active: number; lanes: number; waiting: Lane[]; isWaiting: boolean }>()
  readonly #waiting: string[] = []
  #active = 0

  get size(): number {
    return this.#held.size
  }

  /** Queues for which there is room. */
  get room(): number {
    return Math.max(0, most.inAll - this.#held.size)
  }

  all(): Lane[] {
    return [...this.#held.values()]
  }

  get(webhookId: string): Lane | undefined {
    return this.#held.get(webhookId)
  }

  /** Organizations that hold as many queues as one may. */
  full(): string[] {
    return [...this.#orgs].filter(([, { lanes }]) => lanes >= most.ofOrg).map(([orgId]) => orgId)
  }

  add(webhookId: string, orgId: string, isForsaken = false): void {
    const none = { webhook: undefined, ready: [], busy: new Set<string>(), more: true, behind: start }
    const lane = { webhookId, orgId, ...none, isFailing: false, sent: 0, isWaiting: false }
    this.#held.set(webhookId, { ...lane, isForsaken, isPassedOn: false })
    this.#org(orgId).lanes += 1
  }

  remove({ webhookId, orgId }: Lane): void {
    if (!this.#held.delete(webhookId)) return
    this.#org(orgId).lanes -= 1
    this.#forget(orgId)
  }

  /**
   * How many more deliveries it can take in: those after the next ones are ready when these are done. None while
   * there are enough for now, so that they come several at a time.
   */
  wants(lane: Lane): number {
    if (!lane.more || (this.#isPressed() && lane.sent >= turn)) return 0
    const most = this.#width(lane)
    const taken = lane.ready.length + lane.busy.size
    return taken > most ? 0 : 2 * most - taken
  }

  /** Whether it takes something in, or sends something. */
  moves(lane: Lane): boolean {
    return this.wants(lane) > 0 || this.#maySend(lane)
  }

  makesRoom(lane: Lane): boolean {
    return lane.isPassedOn || (this.#isPressed() && lane.sent >= turn)
  }

  /** It has something ready: it takes its place in line. */
  queue(lane: Lane): void {
    if (lane.isWaiting || !this.#maySend(lane)) return
    lane.isWaiting = true
    const org = this.#org(lane.orgId)
    org.waiting.push(lane)
    if (org.isWaiting) return
    org.isWaiting = true
    this.#waiting.push(lane.orgId)
  }

  /** The next to be sent, which counts as on its way; undefined when nothing can be. */
  next(): { lane: Lane; parcel: Parcel } | undefined {
    while (this.#active < most.inAll) {
      const orgId = this.#waiting.shift()
      if (orgId === undefined) return undefined
      const org = this.#org(orgId)
      org.isWaiting = false
      const lane = org.active < most.ofOrg ? org.waiting.shift() : undefined
      if (!lane) continue
      lane.isWaiting = false
      const parcel = this.#maySend(lane) ? lane.ready.shift() : undefined
      if (parcel) {
        lane.busy.add(parcel.id)
        lane.sent += 1
        org.active += 1
        this.#active += 1
      }
      this.queue(lane)
      this.#line(orgId)
      if (parcel) return { lane, parcel }
    }
    return undefined
  }

  /** One of its deliveries is no longer on its way; it stays busy until its outcome is put down. */
  arrived(lane: Lane): void {
    this.#active -= 1
    this.#org(lane.orgId).active -= 1
    this.#line(lane.orgId)
  }

  /** Its outcome is put down. */
  settled(lane: Lane, parcelId: string): void {
    lane.busy.delete(parcelId)
    this.queue(lane)
    this.#forget(lane.orgId)
  }

  #isPressed(): boolean {
    return this.room === 0
  }

  #width(lane: Lane): number {
    return lane.isFailing ? 1 : width
  }

  #maySend(lane: Lane): boolean {
    return lane.ready.length > 0 && lane.busy.size < this.#width(lane)
  }

  #line(orgId: string): void {
    const org = this.#org(orgId)
    if (org.isWaiting || org.waiting.length === 0 || org.active >= most.ofOrg) return
    org.isWaiting = true
    this.#waiting.push(orgId)
  }

  #org(orgId: string) {
    let org = this.#orgs.get(orgId)
    if (!org) {
      org = { active: 0, lanes: 0, waiting: [], isWaiting: false }
      this.#orgs.set(orgId, org)
    }
    return org
  }

  #forget(orgId: string): void {
    const org = this.#org(orgId)
    if (org.active === 0 && org.lanes === 0 && org.waiting.length === 0) this.#orgs.delete(orgId)
  }
}

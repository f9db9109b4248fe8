import { setTimeout as sleep } from 'node:timers/promises'
import type { Cipher } from '../../core/cipher.ts'
import { newId } from '../../core/new-id.ts'
import { type Outbound, OutboundFailure } from '../../core/outbound.ts'
import { type Clock, type Instant, secondsBetween } from '../../core/time.ts'
import { writeBisecting } from '../../storage/bisect-writes.ts'
import { isOutage, isSingleProcess } from '../../storage/dialect.ts'
import { lacksCurrentKey } from '../../storage/key-check.ts'
import type { Db, Storage } from '../../storage/open.ts'
import {
  answered,
  bodyOf,
  headersOf,
  type Outcome,
  type Parcel,
  spoiled,
  unanswered,
} from '../deliveries/rules.ts'
import { credentialsFault, type Held, secretsAt, unreadableIn, urlFault } from '../rules.ts'
import { type Lane, Lanes, start } from './lanes.ts'
import {
  findDue,
  freeAbandoned,
  freeOfPredecessors,
  heldBy,
  hold,
  isForsaken,
  leaseSeconds,
  nextWork,
  renewalSeconds,
  stayAlive,
} from './leases.ts'
import { type Attempt, putDown } from './settling.ts'
import * as store from './store.ts'

export type Delivering = {
  storage: Storage
  cipher: Cipher
  outbound: Outbound
  clock: Clock
  /** WEBHOOK_TIMEOUT_MS */
  timeoutMs: number
  /** Called when there is something to do before the next sweep. */
  wake(): void
  /** Told what came of each attempt. */
  onAttempt(outcome: Outcome): void
  /** Told of an outcome that the database did not take. */
  onSpoiled(what: { deliveryId: string; webhookId: string; error: unknown }): void
}

type Arrived = Attempt & { lane: Lane }
type Settled = { arrived: Arrived[]; doneWith: Lane[]; fates: Map<string, store.Fate> }

/** What is wrong with where a webhook leads; found out once for each as it is. */
function faultOf(webhook: Held): string | undefined {
  if (!faults.has(webhook)) faults.set(webhook, urlFault(webhook.url) ?? credentialsFault(webhook.url))
  return faults.get(webhook)
}

const faults = new WeakMap<Held, string | undefined>()

/** Outcomes put down, and queues taken, in one transaction. On SQLite it is this thread that writes them. */
const batches = { sqlite: 100, postgres: 200 }
/** How often is looked for what nobody told this process of. */
const sweepMs = 1000
/** How long what is on its way may take when the service ends: less than that takes (daemon/serve.ts). */
const patienceMs = 6000

/** Waits for all of it, also when some has failed: nothing of a round goes on in the next one. */
async function allOf<T extends readonly unknown[] | []>(work: T) {
  await Promise.allSettled(work)
  return Promise.all(work)
}

/**
 * Sends what happened to the webhooks that asked for it. What is to be sent is in the database alone: a process
 * that dies takes nothing with it, and what it had sent without putting it down is sent again by whoever holds the
 * queue next, under the same ids.
 */
export class Courier {
  readonly #on: Delivering
  readonly #me = newId()
  readonly #lanes = new Lanes()
  readonly #underWay = new Set<Promise<void>>()
  #arrived: Arrived[] = []
  #sweptAt = Number.NEGATIVE_INFINITY
  #renewedAt: Instant = ''
  #timer: NodeJS.Timeout | undefined
  #isClosing = false
  #hasBegun = false
  /** Others have a key that this process does not have. */
  #isBehind = false

  constructor(on: Delivering) {
    this.#on = on
  }

  /** One round: what arrived is put down, what is due sent, and queues are taken that have more. One at a time. */
  async round(): Promise<void> {
    const { storage, clock, wake } = this.#on
    if (!this.#hasBegun) await freeOfPredecessors(storage)
    this.#hasBegun = true
    const isSweep = performance.now() - this.#sweptAt >= sweepMs
    if (isSweep || this.#sinceRenewal() >= leaseSeconds) await this.#sweep()
    const [hasSettled, next] = await allOf([this.#settleAndSend(), nextWork(storage.read)])
    const isDue = next !== undefined && next <= clock() && this.#lanes.room > 0
    const hasTaken = isDue && (await this.#take())
    if (hasSettled || hasTaken || this.#arrived.length > 0) wake()
    else this.#wakeAt(next)
  }

  /**
   * After the last round: sends nothing more, puts down what still arrives, and gives everything back. What takes too
   * long counts as not tried: it is sent again by whoever holds its queue next.
   */
  async close(): Promise<void> {
    this.#isClosing = true
    clearTimeout(this.#timer)
    let isLate = false
    const late = sleep(patienceMs, undefined, { ref: false }).then(() => {
      isLate = true
    })
    while (this.#arrived.length > 0 || this.#lanes.size > 0) {
      for (const lane of this.#lanes.all()) {
        lane.ready = []
        lane.more = false
        if (isLate) lane.busy.clear()
      }
      this.#conclude(await this.#settle())
      const isWaiting = this.#arrived.length === 0 && this.#underWay.size > 0
      if (isWaiting && !isLate) await Promise.race([late, ...this.#underWay])
    }
  }

  /** These webhooks have more to send, which is due since `dueAt`. */
  hasNews(webhookIds: readonly string[], dueAt: Instant): void {
    for (const id of webhookIds) {
      const lane = this.#lanes.get(id)
      if (!lane) continue
      lane.more = true
      // What was to be tried again became due while this was given out, and was taken in before it.
      if (dueAt < lane.behind.dueAt) lane.behind = start
    }
    this.#on.wake()
  }

  /** What other processes gave out to queues that are held here is found, and what the dead held is freed. */
  async #sweep(): Promise<void> {
    const { storage, cipher, clock } = this.#on
    this.#sweptAt = performance.now()
    // With a clock that is behind this one's, what another process gave out stands before what is known.
    for (const lane of this.#lanes.all()) Object.assign(lane, { more: true, behind: start })
    await this.#renew()
    await freeAbandoned(storage, clock())
    if (this.#isBehind) this.#isBehind = await lacksCurrentKey(storage.read, cipher)
  }

  /** Before it frees what others held: who was asleep for long would free its own, and take it once more. */
  async #renew(): Promise<void> {
    const { storage, clock } = this.#on
    const now = clock()
    const passed = this.#sinceRenewal()
    if (passed < renewalSeconds) return
    await storage.write((tx) => stayAlive(tx, this.#me, now), { unsynced: true })
    this.#renewedAt = now
    if (passed < leaseSeconds) return
    const held = new Set(await heldBy(storage.read, this.#me))
    for (const lane of this.#lanes.all()) {
      if (held.has(lane.webhookId)) continue
      lane.ready = []
      this.#lanes.remove(lane)
    }
  }

  /** Seconds; of a clock that was set back, as many as can be. None where nothing is held. */
  #sinceRenewal(): number {
    if (this.#lanes.size === 0) return 0
    const passed = secondsBetween(this.#renewedAt, this.#on.clock())
    return passed < 0 ? leaseSeconds : passed
  }

  /** Whether there was something to take. */
  async #take(): Promise<boolean> {
    const { storage, cipher, clock } = this.#on
    const limit = Math.min(batches[storage.dialect], this.#lanes.room)
    const now = clock()
    const marks = this.#isBehind ? cipher.marks : undefined
    const queues = await findDue(storage, { now, apart: this.#lanes.full(), marks, limit })
    if (queues.length === 0) return false
    const held = new Set(await hold(storage, queues, { holder: this.#me, now }))
    this.#renewedAt = now
    for (const { webhookId, orgId, dueAt } of queues) {
      // It may be one that somebody else took to be abandoned.
      if (!held.has(webhookId) || this.#lanes.get(webhookId)) continue
      this.#lanes.add(webhookId, orgId, isForsaken(dueAt, now))
    }
    return held.size > 0
  }

  /** Whether something was put down. */
  async #settleAndSend(): Promise<boolean> {
    if (isSingleProcess(this.#on.storage.read)) {
      // It is this thread that writes: nothing could go on meanwhile.
      const settled = await this.#settle()
      this.#conclude(settled)
      await this.#sendDue()
      return settled !== undefined
    }
    // Both begin with the lanes as they are: nothing is looked for in those that are given back.
    const [settled] = await allOf([this.#settle(), this.#sendDue()])
    // Not before: what is put down may still be found as due, and counts as on its way until then.
    this.#conclude(settled)
    return settled !== undefined
  }

  async #sendDue(): Promise<void> {
    await this.#load()
    this.#send()
  }

  /**
   * Finds what is due. The webhooks are read last, right before anything is sent, so that what people change holds
   * for the next delivery.
   */
  async #load(): Promise<void> {
    const { storage, cipher, clock } = this.#on
    const moving = this.#lanes.all().filter((lane) => this.#lanes.moves(lane))
    if (moving.length === 0) return
    const now = clock()
    const wishes = moving.flatMap((lane) => {
      const { webhookId, webhook, ready, busy, behind } = lane
      const wanted = this.#lanes.wants(lane)
      const isActive = webhook === undefined || webhook.status === 'active'
      const limit = behind === start ? wanted + busy.size + ready.length : wanted
      return wanted > 0 ? [{ lane, webhookId, isActive, limit, now, ...behind }] : []
    })
    for (const { lane } of wishes) lane.more = false
    const found = Map.groupBy(await store.findParcels(storage.read, wishes), ({ webhookId }) => webhookId)
    for (const { lane, webhookId, limit } of wishes) {
      const parcels = found.get(webhookId) ?? []
      if (parcels.length === limit) lane.more = true
      const last = parcels.at(-1)
      if (last) lane.behind = { dueAt: last.dueAt, seq: last.seq }
      const known = new Set([...lane.busy, ...lane.ready.map(({ id }) => id)])
      lane.ready.push(...parcels.filter(({ id }) => !known.has(id)))
    }
    const known = new Map(moving.map(({ webhookId, webhook }) => [webhookId, webhook]))
    const webhooks = await store.findWebhooks(storage.read, cipher, known)
    if (!this.#isBehind && [...webhooks.values()].some((one) => this.#isForeign(one)))
      this.#isBehind = await lacksCurrentKey(storage.read, cipher)
    for (const lane of moving) this.#follow(lane, webhooks.get(lane.webhookId))
  }

  /** What is ready and may not go out any more does not; what was not looked for before is in the next round. */
  #follow(lane: Lane, webhook: Held | undefined): void {
    const was = lane.webhook === undefined ? 'active' : lane.webhook.status
    lane.webhook = webhook
    if (!webhook) Object.assign(lane, { ready: [], more: false })
    else if (webhook.status !== was) Object.assign(lane, { more: true, behind: start })
    if (webhook?.status !== 'active') lane.ready = lane.ready.filter(({ askedFor }) => askedFor === 1)
    // An attempt here would fail, and use up one of those that a process with the key has.
    lane.isPassedOn = webhook !== undefined && this.#isBehind && !lane.isForsaken && this.#isForeign(webhook)
    if (lane.isPassedOn) Object.assign(lane, { ready: [], more: false })
    this.#lanes.queue(lane)
  }

  /** Whether something of it is sealed with a key that this process does not have. */
  #isForeign(webhook: Held): boolean {
    return unreadableIn(webhook).some((column) => !this.#on.cipher.knows(webhook.unreadable[column]!))
  }

  #send(): void {
    for (let next = this.#lanes.next(); next; next = this.#lanes.next()) {
      const { lane, parcel } = next
      const under = this.#deliver(lane, lane.webhook!, parcel).finally(() => this.#underWay.delete(under))
      this.#underWay.add(under)
    }
  }

  async #deliver(lane: Lane, webhook: Held, parcel: Parcel): Promise<void> {
    const outcome = await this.#attempt(webhook, parcel)
    lane.isFailing = outcome.status !== 'delivered'
    this.#on.onAttempt(outcome)
    this.#arrived.push({ lane, webhook, parcel, outcome })
    this.#lanes.arrived(lane)
    this.#on.wake()
  }

  async #attempt(webhook: Held, parcel: Parcel): Promise<Outcome> {
    const { outbound, clock, timeoutMs } = this.#on
    const { url, headers: own, retryPolicy: policy } = webhook
    const unreadable = unreadableIn(webhook)
    if (unreadable.length > 0) {
      // The key may come back: it is tried again, as a receiver that is away is.
      const message = `Cannot be decrypted with the keys of the service: ${unreadable.join(', ')}. Set it anew.`
      return unanswered(parcel, { kind: 'broken', message }, { policy, now: clock() })
    }
    const fault = faultOf(webhook)
    if (fault !== undefined)
      return unanswered(parcel, { kind: 'blocked', message: fault }, { policy, now: clock() })
    try {
      const at = clock()
      const body = bodyOf(parcel)
      const headers = headersOf(parcel, body, { secrets: secretsAt(webhook, at), headers: own, at })
      const reply = await outbound.send({ method: 'POST', url, headers, body, milliseconds: timeoutMs })
      return answered(parcel, reply, { policy, now: clock() })
    } catch (error) {
      const failure =
        error instanceof OutboundFailure
          ? error
          : new OutboundFailure('broken', (error as Error).message, error)
      return unanswered(parcel, failure, { policy, now: clock() })
    }
  }

  /** Puts down what came of the attempts, and gives back the queues that are done. */
  async #settle(): Promise<Settled | undefined> {
    const { storage, clock } = this.#on
    const batch = batches[storage.dialect]
    const arrived = this.#arrived.slice(0, batch)
    const inWork = new Map(arrived.map(({ lane, parcel }) => [parcel.id, lane]))
    const doneWith = this.#lanes
      .all()
      .filter((lane) => [...lane.busy].every((id) => inWork.has(id)))
      .filter((lane) => lane.ready.length === 0 && this.#lanes.wants(lane) === 0)
      .slice(0, batch)
    if (arrived.length === 0 && doneWith.length === 0) return undefined
    // Lost with the power it is sent once more.
    const finished = doneWith.map((lane) => ({
      webhookId: lane.webhookId,
      makesRoom: this.#isClosing || this.#lanes.makesRoom(lane),
    }))
    const now = clock()
    const letGo = (tx: Db) => store.letGo(tx, finished, { holder: this.#me, now })
    const work = async (tx: Db) => {
      await putDown(tx, arrived, now)
      return letGo(tx)
    }
    const fates = await storage.write(work, { unsynced: true }).catch(async (error) => {
      if (arrived.length === 0 || isOutage(error)) throw error
      await this.#settleApart(arrived, now)
      return storage.write(letGo, { unsynced: true })
    })
    return { arrived, doneWith, fates }
  }

  /**
   * One outcome that cannot be put down does not hold the others, which may be of other organizations: its delivery
   * fails, with the reason. One that does not even do that is sent again later, as after a crash.
   */
  async #settleApart(arrived: readonly Arrived[], now: Instant): Promise<void> {
    const { storage, onSpoiled } = this.#on
    const put = (some: readonly Attempt[]) =>
      storage.write((tx) => putDown(tx, some, now), { unsynced: true })
    const { refused } = await writeBisecting(arrived, put)
    for (const { item, error } of refused) {
      onSpoiled({ deliveryId: item.parcel.id, webhookId: item.parcel.webhookId, error })
    }
    await writeBisecting(
      refused.map(({ item }) => ({ ...item, outcome: spoiled(item.outcome) })),
      put,
    )
  }

  #conclude(settled: Settled | undefined): void {
    if (!settled) return
    const { arrived, doneWith, fates } = settled
    this.#arrived.splice(0, arrived.length)
    for (const { lane, parcel } of arrived) this.#lanes.settled(lane, parcel.id)
    for (const lane of doneWith) {
      if (fates.get(lane.webhookId) === 'kept') Object.assign(lane, { more: true, behind: start })
      else this.#lanes.remove(lane)
    }
  }

  #wakeAt(due: string | undefined): void {
    clearTimeout(this.#timer)
    if (due === undefined) return
    const ms = secondsBetween(this.#on.clock(), due) * 1000
    if (ms > 0 && ms < sweepMs) this.#timer = setTimeout(this.#on.wake, Math.max(1, ms)).unref()
  }
}

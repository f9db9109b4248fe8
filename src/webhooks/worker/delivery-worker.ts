import { setTimeout as sleep } from 'node:timers/promises'
import type { Cipher } from '../../core/cipher.ts'
import { newId } from '../../core/new-id.ts'
import { type Outbound, OutboundFailure } from '../../core/outbound.ts'
import { type Clock, type Instant, secondsBetween } from '../../core/time.ts'
import { writeBisecting } from '../../storage/bisect-writes.ts'
import { isOutage } from '../../storage/dialect.ts'
import { lacksCurrentKey } from '../../storage/key-check.ts'
import type { Db, Storage } from '../../storage/open.ts'
import {
  bodyOf,
  type DeliveryOutcome,
  headersOf,
  outcomeNotStored,
  outcomeOfFailure,
  outcomeOfResponse,
  type PendingDelivery,
} from '../deliveries/rules.ts'
import { activeSecrets, credentialsFault, unreadableFields, urlFault, type WebhookRecord } from '../rules.ts'
import { type EndpointQueue, EndpointQueues, queueStart } from './endpoint-queues.ts'
import { type Attempt, recordOutcomes } from './outcomes.ts'
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
  /** Called when there is something to do before the next sweep. */
  wake(): void
  /** Told what came of each attempt. */
  onAttempt(outcome: DeliveryOutcome): void
  /** Told of an outcome that the database did not take. */
  onSpoiled(what: { deliveryId: string; webhookId: string; error: unknown }): void
}

type EndedAttempt = Attempt & { queue: EndpointQueue }
type Recorded = {
  arrived: EndedAttempt[]
  doneWith: EndpointQueue[]
  results: Map<string, store.ReleaseResult>
}

/** What is wrong with where a webhook leads; found out once for each as it is. */
function faultOf(webhook: WebhookRecord): string | undefined {
  if (!faults.has(webhook)) faults.set(webhook, urlFault(webhook.url) ?? credentialsFault(webhook.url))
  return faults.get(webhook)
}

const faults = new WeakMap<WebhookRecord, string | undefined>()

/** Interval between scans for work that no notification announced. */
const scanIntervalMs = 1000
/** How long what is on its way may take when the service ends: less than that takes (daemon/serve.ts). */
const closeTimeoutMs = 6000

/** Waits for all of it, also when some has failed: nothing of a round goes on in the next one. */
async function settleAll<T extends readonly unknown[] | []>(work: T) {
  await Promise.allSettled(work)
  return Promise.all(work)
}

/**
 * Sends what happened to the webhooks that asked for it. What is to be sent is in the database alone: a process
 * that dies takes nothing with it, and what it had sent without putting it down is sent again by whoever holds the
 * queue next, under the same ids.
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
  /** Others have a key that this process does not have. */
  #isBehind = false

  constructor(on: DeliveryWorkerOptions) {
    this.#options = on
  }

  /** One round: what arrived is put down, what is due sent, and queues are taken that have more. One at a time. */
  async round(): Promise<void> {
    const { storage, clock, wake } = this.#options
    if (!this.#hasBegun) await releasePredecessorQueues(storage)
    this.#hasBegun = true
    const isSweep = performance.now() - this.#sweptAt >= scanIntervalMs
    if (isSweep || this.#sinceRenewal() >= leaseSeconds) await this.#sweep()
    const [hasSettled, next] = await settleAll([this.#recordAndSend(), findNextDueTime(storage.read)])
    const isDue = next !== undefined && next <= clock() && this.#queues.room > 0
    const hasTaken = isDue && (await this.#take())
    if (hasSettled || hasTaken || this.#ended.length > 0) wake()
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

  /** These webhooks have more to send, which is due since `dueAt`. */
  notify(webhookIds: readonly string[], dueAt: Instant): void {
    for (const id of webhookIds) {
      const queue = this.#queues.get(id)
      if (!queue) continue
      queue.mayHaveMore = true
      // What was to be tried again became due while this was given out, and was taken in before it.
      if (dueAt < queue.readUpTo.dueAt) queue.readUpTo = queueStart
    }
    this.#options.wake()
  }

  /** What other processes gave out to queues that are held here is found, and what the dead held is freed. */
  async #sweep(): Promise<void> {
    const { storage, cipher, clock } = this.#options
    this.#sweptAt = performance.now()
    // With a clock that is behind this one's, what another process gave out stands before what is known.
    for (const queue of this.#queues.all()) Object.assign(queue, { mayHaveMore: true, readUpTo: queueStart })
    await this.#renew()
    await releaseAbandonedQueues(storage, clock())
    if (this.#isBehind) this.#isBehind = await lacksCurrentKey(storage.read, cipher)
  }

  /** Before it frees what others held: who was asleep for long would free its own, and take it once more. */
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

  /** Seconds; of a clock that was set back, as many as can be. None where nothing is held. */
  #sinceRenewal(): number {
    if (this.#queues.size === 0) return 0
    const passed = secondsBetween(this.#renewedAt, this.#options.clock())
    return passed < 0 ? leaseSeconds : passed
  }

  /** Whether there was something to take. */
  async #take(): Promise<boolean> {
    const { storage, cipher, clock } = this.#options
    const limit = Math.min(storage.traits.batchSize, this.#queues.room)
    const now = clock()
    const marks = this.#isBehind ? cipher.marks : undefined
    const queues = await findDueQueues(storage, { now, apart: this.#queues.full(), marks, limit })
    if (queues.length === 0) return false
    const held = new Set(await acquireQueues(storage, queues, { holder: this.#workerId, now }))
    this.#renewedAt = now
    for (const { webhookId, partnerId, orgId, dueAt } of queues) {
      // It may be one that another process considered abandoned.
      if (!held.has(webhookId) || this.#queues.get(webhookId)) continue
      this.#queues.add(webhookId, [partnerId, orgId], isOverdue(dueAt, now))
    }
    return held.size > 0
  }

  /** Whether something was put down. */
  async #recordAndSend(): Promise<boolean> {
    if (this.#options.storage.traits.serialWrites) {
      // This thread writes: nothing else could proceed meanwhile.
      const settled = await this.#record()
      this.#conclude(settled)
      await this.#sendDue()
      return settled !== undefined
    }
    // Both begin with the queues as they are: nothing is looked for in those that are given back.
    const [settled] = await settleAll([this.#record(), this.#sendDue()])
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
    const { storage, cipher, clock } = this.#options
    const moving = this.#queues.all().filter((queue) => this.#queues.hasWork(queue))
    if (moving.length === 0) return
    const now = clock()
    const queries = moving.flatMap((queue) => {
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
    const known = new Map(moving.map(({ webhookId, webhook }) => [webhookId, webhook]))
    const webhooks = await store.findWebhooks(storage.read, cipher, known)
    if (!this.#isBehind && [...webhooks.values()].some((one) => this.#isForeign(one)))
      this.#isBehind = await lacksCurrentKey(storage.read, cipher)
    for (const queue of moving) this.#follow(queue, webhooks.get(queue.webhookId))
  }

  /** What is ready and may not go out any more does not; what was not looked for before is in the next round. */
  #follow(queue: EndpointQueue, webhook: WebhookRecord | undefined): void {
    const was = queue.webhook === undefined ? 'active' : queue.webhook.status
    queue.webhook = webhook
    if (!webhook) Object.assign(queue, { ready: [], mayHaveMore: false })
    else if (webhook.status !== was) Object.assign(queue, { mayHaveMore: true, readUpTo: queueStart })
    if (webhook?.status !== 'active') queue.ready = queue.ready.filter(({ askedFor }) => askedFor === 1)
    // An attempt here would fail, and use up one of those that a process with the key has.
    queue.isPassedOn =
      webhook !== undefined && this.#isBehind && !queue.isForsaken && this.#isForeign(webhook)
    if (queue.isPassedOn) Object.assign(queue, { ready: [], mayHaveMore: false })
    this.#queues.enqueue(queue)
  }

  /** Whether something of it is sealed with a key that this process does not have. */
  #isForeign(webhook: WebhookRecord): boolean {
    return unreadableFields(webhook).some(
      (column) => !this.#options.cipher.knows(webhook.unreadable[column]!),
    )
  }

  #send(): void {
    for (let next = this.#queues.next(); next; next = this.#queues.next()) {
      const { queue, delivery } = next
      const under = this.#deliver(queue, queue.webhook!, delivery).finally(() => this.#inFlight.delete(under))
      this.#inFlight.add(under)
    }
  }

  async #deliver(queue: EndpointQueue, webhook: WebhookRecord, delivery: PendingDelivery): Promise<void> {
    const outcome = await this.#attempt(webhook, delivery)
    queue.isFailing = outcome.status !== 'delivered'
    this.#options.onAttempt(outcome)
    this.#ended.push({ queue, webhook, delivery, outcome })
    this.#queues.attemptEnded(queue)
    this.#options.wake()
  }

  async #attempt(webhook: WebhookRecord, delivery: PendingDelivery): Promise<DeliveryOutcome> {
    const { outbound, clock, timeoutMs } = this.#options
    const { url, headers: own, retryPolicy: policy } = webhook
    const unreadable = unreadableFields(webhook)
    if (unreadable.length > 0) {
      // The key may come back: it is tried again, as a receiver that is away is.
      const message = `Cannot be decrypted with the keys of the service: ${unreadable.join(', ')}. Set it anew.`
      return outcomeOfFailure(delivery, { kind: 'broken', message }, { policy, now: clock() })
    }
    const fault = faultOf(webhook)
    if (fault !== undefined)
      return outcomeOfFailure(delivery, { kind: 'blocked', message: fault }, { policy, now: clock() })
    try {
      const at = clock()
      const body = bodyOf(delivery)
      const headers = headersOf(delivery, body, { secrets: activeSecrets(webhook, at), headers: own, at })
      const reply = await outbound.send({ method: 'POST', url, headers, body, milliseconds: timeoutMs })
      return outcomeOfResponse(delivery, reply, { policy, now: clock() })
    } catch (error) {
      const failure =
        error instanceof OutboundFailure
          ? error
          : new OutboundFailure('broken', (error as Error).message, error)
      return outcomeOfFailure(delivery, failure, { policy, now: clock() })
    }
  }

  /** Puts down what came of the attempts, and gives back the queues that are done. */
  async #record(): Promise<Recorded | undefined> {
    const { storage, clock } = this.#options
    const batch = storage.traits.batchSize
    const arrived = this.#ended.slice(0, batch)
    const inWork = new Map(arrived.map(({ queue, delivery }) => [delivery.id, queue]))
    const doneWith = this.#queues
      .all()
      .filter((queue) => [...queue.inFlight].every((id) => inWork.has(id)))
      .filter((queue) => queue.ready.length === 0 && this.#queues.wanted(queue) === 0)
      .slice(0, batch)
    if (arrived.length === 0 && doneWith.length === 0) return undefined
    // Lost with the power it is sent once more.
    const finished = doneWith.map((queue) => ({
      webhookId: queue.webhookId,
      makesRoom: this.#isClosing || this.#queues.yieldsToOthers(queue),
    }))
    const now = clock()
    const releaseFinished = (tx: Db) => store.releaseQueues(tx, finished, { holder: this.#workerId, now })
    const work = async (tx: Db) => {
      await recordOutcomes(tx, arrived, now)
      return releaseFinished(tx)
    }
    const results = await storage.write(work, { unsynced: true }).catch(async (error) => {
      if (arrived.length === 0 || isOutage(error)) throw error
      await this.#recordOneByOne(arrived, now)
      return storage.write(releaseFinished, { unsynced: true })
    })
    return { arrived, doneWith, results }
  }

  /**
   * One outcome that cannot be put down does not hold the others, which may be of other organizations: its delivery
   * fails, with the reason. One that does not even do that is sent again later, as after a crash.
   */
  async #recordOneByOne(arrived: readonly EndedAttempt[], now: Instant): Promise<void> {
    const { storage, onSpoiled } = this.#options
    const put = (some: readonly Attempt[]) =>
      storage.write((tx) => recordOutcomes(tx, some, now), { unsynced: true })
    const { refused } = await writeBisecting(arrived, put)
    for (const { item, error } of refused) {
      onSpoiled({ deliveryId: item.delivery.id, webhookId: item.delivery.webhookId, error })
    }
    await writeBisecting(
      refused.map(({ item }) => ({ ...item, outcome: outcomeNotStored(item.outcome) })),
      put,
    )
  }

  #conclude(settled: Recorded | undefined): void {
    if (!settled) return
    const { arrived, doneWith, results } = settled
    this.#ended.splice(0, arrived.length)
    for (const { queue, delivery } of arrived) this.#queues.outcomeRecorded(queue, delivery.id)
    for (const queue of doneWith) {
      if (results.get(queue.webhookId) === 'kept')
        Object.assign(queue, { mayHaveMore: true, readUpTo: queueStart })
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

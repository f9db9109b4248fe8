import { newId } from '../core/new-id.ts'
import { addSeconds, type Clock } from '../core/time.ts'
import type { Db, Notifications, Storage } from '../storage/db.ts'
import type { AgentChannels, Outcome, Wait } from './ports.ts'
import * as store from './store.ts'
import type { Command } from './wire/contract.ts'

type Connection = { id: string; agent: { deviceId: string } }

/** The connections of this process. */
export type LocalAgentChannels = AgentChannels & {
  [Symbol.iterator](): Iterator<Connection>
  has(deviceId: string): boolean
  /** Closes a connection because another process has a newer one of the same agent. */
  supersede(deviceId: string, linkId: string): void
  /** Wakes the agent of this device, if it is connected here, since work waits for it. */
  nudge(deviceId: string): void
}

type Question = { type: string; payload: Record<string, unknown>; timeoutMs: number }
type Message =
  | { asked: string }
  | { answered: string }
  | { dropped: string }
  | { superseded: { deviceId: string; linkId: string } }
  | { nudged: string }

/** Interval between checks that the other process is still alive, while a question to it is open. */
const pollMs = 2000
const expirySeconds = 600
const channelOf = (holder: string): string => `svc_live_${holder.replaceAll('-', '')}`

/**
 * Queries agents that are connected to another process on the same Postgres. Question and answer are rows,
 * since a notification has to be shorter than 8000 bytes; the notification only names the row. The process that has a
 * connection is recorded in a row as well, and the database knows that the process is alive by its listening
 * session.
 */
export class ReplicaRelay implements AgentChannels {
  readonly #storage: Storage
  readonly #signals: Notifications
  readonly #local: LocalAgentChannels
  readonly #clock: Clock
  readonly #onError: (error: unknown) => void
  readonly #self = newId()
  /** Open questions of this process to others, with the function that checks for an answer. */
  readonly #open = new Map<string, () => void>()
  /** Questions from other processes that were passed to an agent here. */
  readonly #answering = new Map<string, AbortController>()
  #listening: Promise<() => Promise<void>> | undefined

  constructor(
    deps: { storage: Storage; signals: Notifications; local: LocalAgentChannels; clock: Clock },
    onError: (error: unknown) => void,
  ) {
    this.#storage = deps.storage
    this.#signals = deps.signals
    this.#local = deps.local
    this.#clock = deps.clock
    this.#onError = onError
  }

  /** Records that an agent connected to this process. */
  async arrived({ id: linkId, agent: { deviceId } }: Connection): Promise<void> {
    await this.#listen()
    const place = { deviceId, linkId, holder: this.#self }
    await this.#storage.write(
      async (tx) => {
        const before = await store.moveLink(tx, place, this.#clock())
        if (before && before.holder !== this.#self)
          await this.#send(tx, before.holder, { superseded: before })
      },
      { unsynced: true },
    )
  }

  async left({ id: linkId, agent: { deviceId } }: Connection): Promise<void> {
    await this.#storage.write((tx) => store.dropLink(tx, { deviceId, linkId }), { unsynced: true })
  }

  async request(deviceId: string, question: Omit<Command, 'id'>, wait: Wait): Promise<Outcome> {
    if (this.#local.has(deviceId)) return this.#local.request(deviceId, question, wait)
    const place = await store.findLink(this.#storage.read, deviceId)
    if (!place || place.holder === this.#self) return { status: 'unreachable' }
    if (!(await this.#isAlive(place.holder))) return { status: 'unreachable' }
    await this.#listen()
    return this.#askOther(place.holder, deviceId, question, wait)
  }

  /** Notifies the process that has the agent's connection that work waits for it, when `tx` is committed. */
  async nudge(tx: Db, deviceId: string): Promise<void> {
    const place = await store.findLink(tx, deviceId)
    if (place) await this.#send(tx, place.holder, { nudged: deviceId })
  }

  async close(): Promise<void> {
    if (!this.#listening) return
    // What has not begun needs no end; whoever began it got the error.
    const stop = await this.#listening.catch(() => undefined)
    await stop?.()
    await this.#storage.write((tx) => store.dropLinksOf(tx, this.#self), { unsynced: true })
  }

  /** Starts with the first connection or question: a service without agents holds no listening session. */
  async #listen(): Promise<void> {
    this.#listening ??= this.#signals.listen(channelOf(this.#self), {
      onMessage: (text) => this.#receive(text),
      onReconnect: () => this.#catchUp().catch(this.#onError),
    })
    try {
      await this.#listening
    } catch (error) {
      this.#listening = undefined
      throw error
    }
  }

  /** Whether a process is alive; the rows of a dead one are deleted. */
  async #isAlive(holder: string): Promise<boolean> {
    if (await this.#signals.hasListener(channelOf(holder))) return true
    await this.#storage.write((tx) => store.dropLinksOf(tx, holder), { unsynced: true })
    return false
  }

  async #askOther(
    holder: string,
    deviceId: string,
    { type, payload }: Omit<Command, 'id'>,
    wait: Wait,
  ): Promise<Outcome> {
    const id = newId()
    const { timeoutMs, signal } = wait
    const question: Question = { type, payload, timeoutMs }
    const now = this.#clock()
    const row = { id, device_id: deviceId, holder, asker: this.#self, created_at: now }
    const settled = Promise.withResolvers<Outcome['status'] | undefined>()
    this.#open.set(id, () => settled.resolve(undefined))
    const giveUp = (): void => settled.resolve('timeout')
    const timer = setTimeout(giveUp, timeoutMs)
    const poll = setInterval(() => {
      this.#isAlive(holder).then((isAlive) => isAlive || settled.resolve('unreachable'), this.#onError)
    }, pollMs)
    signal?.addEventListener('abort', giveUp)
    try {
      await this.#storage.write(
        async (tx) => {
          await store.sweepQuestions(tx, addSeconds(now, -expirySeconds))
          await store.insertQuestion(tx, { ...row, question: JSON.stringify(question) })
          await this.#send(tx, holder, { asked: id })
        },
        { unsynced: true },
      )
      if (signal?.aborted) giveUp()
      const why = await settled.promise
      // An answer may have arrived whose notification was lost.
      const outcome = await this.#storage.write(
        async (tx) => {
          const taken = await store.takeQuestion(tx, id)
          if (taken === null && why === 'timeout') await this.#send(tx, holder, { dropped: id })
          return taken
        },
        { unsynced: true },
      )
      if (outcome !== null) return JSON.parse(outcome) as Outcome
      return { status: why === 'unreachable' ? 'unreachable' : 'timeout' }
    } finally {
      clearTimeout(timer)
      clearInterval(poll)
      signal?.removeEventListener('abort', giveUp)
      this.#open.delete(id)
    }
  }

  /** The sender may be of another release: a message that is unknown here must not end this process. */
  #receive(text: string): void {
    try {
      this.#handle(JSON.parse(text) as Message)
    } catch (error) {
      this.#onError(error)
    }
  }

  #handle(message: Message): void {
    if ('asked' in message) this.#answer(message.asked).catch(this.#onError)
    else if ('answered' in message) this.#open.get(message.answered)?.()
    else if ('dropped' in message) this.#answering.get(message.dropped)?.abort()
    else if ('nudged' in message) this.#local.nudge(message.nudged)
    else if ('superseded' in message)
      this.#local.supersede(message.superseded.deviceId, message.superseded.linkId)
  }

  async #answer(id: string): Promise<void> {
    const row = await store.findQuestion(this.#storage.read, id)
    if (!row || row.outcome !== null || this.#answering.has(id)) return
    const { type, payload, timeoutMs } = JSON.parse(row.question) as Question
    const dropped = new AbortController()
    this.#answering.set(id, dropped)
    const outcome = await this.#local
      .request(row.device_id, { type, payload }, { timeoutMs, signal: dropped.signal })
      .finally(() => this.#answering.delete(id))
    await this.#storage.write(
      async (tx) => {
        const awaited = await store.answerQuestion(tx, id, JSON.stringify(outcome))
        if (awaited) await this.#send(tx, row.asker, { answered: id })
      },
      { unsynced: true },
    )
  }

  /** The listening session was lost for a while: the messages sent meanwhile are read from the tables. */
  async #catchUp(): Promise<void> {
    const { read } = this.#storage
    // Other processes may have considered this one dead.
    for (const link of this.#local) {
      await this.arrived(link)
      this.#local.nudge(link.agent.deviceId)
    }
    for (const id of await store.listQuestionsTo(read, this.#self)) this.#answer(id).catch(this.#onError)
    for (const [id, settle] of this.#open) {
      const row = await store.findQuestion(read, id)
      if (row?.outcome != null) settle()
    }
  }

  #send(tx: Parameters<Notifications['send']>[0], holder: string, message: Message): Promise<void> {
    return this.#signals.send(tx, channelOf(holder), JSON.stringify(message))
  }
}

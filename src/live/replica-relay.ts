import { newId } from '../core/new-id.ts'
import { addSeconds, type Clock } from '../core/time.ts'
import type { Db, Notifications, Storage } from '../storage/db.ts'
import type { Outcome, Switchboard, Wait } from './ports.ts'
import * as store from './store.ts'
import type { Command } from './wire/contract.ts'

type Connection = { id: string; agent: { deviceId: string } }

/** The connections that end in this process. */
export type LocalSwitchboard = Switchboard & {
  [Symbol.iterator](): Iterator<Connection>
  has(deviceId: string): boolean
  /** Another process has a newer connection of the agent. */
  supersede(deviceId: string, linkId: string): void
  /** Something waits for the agent of this device, if it is connected here. */
  nudge(deviceId: string): void
}

type Question = { type: string; payload: Record<string, unknown>; timeoutMs: number }
type Message =
  | { asked: string }
  | { answered: string }
  | { dropped: string }
  | { superseded: { deviceId: string; linkId: string } }
  | { nudged: string }

/** How often one who waits looks whether the process it waits for still lives. */
const lookMs = 2000
const forgottenSeconds = 600
const channelOf = (holder: string): string => `svc_live_${holder.replaceAll('-', '')}`

/**
 * Asks agents that are connected to another process on the same Postgres. Question and answer are rows, for a
 * notification holds 8000 bytes; it only says which row. Which process holds a connection is a row as well, and
 * whether that process lives is known to the database by the session that listens.
 */
export class ReplicaRelay implements Switchboard {
  readonly #storage: Storage
  readonly #signals: Notifications
  readonly #local: LocalSwitchboard
  readonly #clock: Clock
  readonly #onError: (error: unknown) => void
  readonly #self = newId()
  /** Questions of this process to others: what looks whether there is an answer. */
  readonly #open = new Map<string, () => void>()
  /** Questions of others that an agent here was asked. */
  readonly #answering = new Map<string, AbortController>()
  #listening: Promise<() => Promise<void>> | undefined

  constructor(
    parts: { storage: Storage; signals: Notifications; local: LocalSwitchboard; clock: Clock },
    onError: (error: unknown) => void,
  ) {
    this.#storage = parts.storage
    this.#signals = parts.signals
    this.#local = parts.local
    this.#clock = parts.clock
    this.#onError = onError
  }

  /** A connection began here. */
  async arrived({ id: linkId, agent: { deviceId } }: Connection): Promise<void> {
    await this.#listen()
    const place = { deviceId, linkId, holder: this.#self }
    await this.#storage.write(
      async (tx) => {
        const before = await store.moveLink(tx, place, this.#clock())
        if (before && before.holder !== this.#self)
          await this.#tell(tx, before.holder, { superseded: before })
      },
      { unsynced: true },
    )
  }

  async left({ id: linkId, agent: { deviceId } }: Connection): Promise<void> {
    await this.#storage.write((tx) => store.dropLink(tx, { deviceId, linkId }), { unsynced: true })
  }

  async ask(deviceId: string, question: Omit<Command, 'id'>, wait: Wait): Promise<Outcome> {
    if (this.#local.has(deviceId)) return this.#local.ask(deviceId, question, wait)
    const place = await store.findLink(this.#storage.read, deviceId)
    if (!place || place.holder === this.#self) return { status: 'unreachable' }
    if (!(await this.#lives(place.holder))) return { status: 'unreachable' }
    await this.#listen()
    return this.#askOther(place.holder, deviceId, question, wait)
  }

  /** Something waits for the agent of this device: whoever holds its connection hears of it when `tx` is committed. */
  async nudge(tx: Db, deviceId: string): Promise<void> {
    const place = await store.findLink(tx, deviceId)
    if (place) await this.#tell(tx, place.holder, { nudged: deviceId })
  }

  async close(): Promise<void> {
    if (!this.#listening) return
    const stop = await this.#listening.catch(() => undefined)
    await stop?.()
    await this.#storage.write((tx) => store.dropLinksOf(tx, this.#self), { unsynced: true })
  }

  /** Begun with the first connection or question: a service without agents holds no session for them. */
  async #listen(): Promise<void> {
    this.#listening ??= this.#signals.listen(channelOf(this.#self), {
      heard: (text) => this.#hear(text),
      missed: () => this.#catchUp().catch(this.#onError),
    })
    try {
      await this.#listening
    } catch (error) {
      this.#listening = undefined
      throw error
    }
  }

  /** The rows of a process that died are of no use to anybody. */
  async #lives(holder: string): Promise<boolean> {
    if (await this.#signals.isHeard(channelOf(holder))) return true
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
    const look = setInterval(() => {
      this.#lives(holder).then((lives) => lives || settled.resolve('unreachable'), this.#onError)
    }, lookMs)
    signal?.addEventListener('abort', giveUp)
    try {
      await this.#storage.write(
        async (tx) => {
          await store.sweepQuestions(tx, addSeconds(now, -forgottenSeconds))
          await store.insertQuestion(tx, { ...row, question: JSON.stringify(question) })
          await this.#tell(tx, holder, { asked: id })
        },
        { unsynced: true },
      )
      if (signal?.aborted) giveUp()
      const why = await settled.promise
      // An answer may have come whose message was lost.
      const outcome = await this.#storage.write(
        async (tx) => {
          const taken = await store.takeQuestion(tx, id)
          if (taken === null && why === 'timeout') await this.#tell(tx, holder, { dropped: id })
          return taken
        },
        { unsynced: true },
      )
      if (outcome !== null) return JSON.parse(outcome) as Outcome
      return { status: why === 'unreachable' ? 'unreachable' : 'timeout' }
    } finally {
      clearTimeout(timer)
      clearInterval(look)
      signal?.removeEventListener('abort', giveUp)
      this.#open.delete(id)
    }
  }

  /** Whoever says it may be of another release: what means nothing here must not end this process. */
  #hear(text: string): void {
    try {
      this.#heard(JSON.parse(text) as Message)
    } catch (error) {
      this.#onError(error)
    }
  }

  #heard(message: Message): void {
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
      .ask(row.device_id, { type, payload }, { timeoutMs, signal: dropped.signal })
      .finally(() => this.#answering.delete(id))
    await this.#storage.write(
      async (tx) => {
        const awaited = await store.answerQuestion(tx, id, JSON.stringify(outcome))
        if (awaited) await this.#tell(tx, row.asker, { answered: id })
      },
      { unsynced: true },
    )
  }

  /** The session was lost for a while: what others said meanwhile is in the tables. */
  async #catchUp(): Promise<void> {
    const { read } = this.#storage
    // They may have taken this process for dead.
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

  #tell(tx: Parameters<Notifications['send']>[0], holder: string, message: Message): Promise<void> {
    return this.#signals.send(tx, channelOf(holder), JSON.stringify(message))
  }
}

import type { WebSocket } from 'ws'
import type { ConnectedAgent } from '../../src/agents/socket.ts'
import type { Outcome } from '../../src/live/ports.ts'
import { type Closing, type Command, closings, type ServiceFrame } from '../../src/live/wire/contract.ts'

/** The agent of a connection, as it was at the start. */
export type LinkedAgent = ConnectedAgent & { tokenHash: string }

/** Concurrent commands of one agent. */
const maxWaiting = 8
/** Frames of one agent that wait for the database, and commands whose results may be large. */
const maxInTurn = 64
const maxOwed = 100
/** Unsent bytes: an agent that does not read gets nothing more. */
const maxUnsentBytes = 1024 * 1024
/** Time limit of the closing handshake. */
const closeMs = 2000

/** One agent's connection. */
export class AgentConnection {
  readonly id: string
  readonly agent: LinkedAgent
  readonly #socket: WebSocket
  readonly #waiting = new Map<string, (outcome: Outcome) => void>()
  /** Durable commands sent on this connection, oldest first. */
  readonly #owed = new Set<string>()
  #turn: Promise<void> = Promise.resolve()
  #inTurn = 0
  /** The next ping, and since when a pong is missing. By performance.now(). */
  pingAt: number
  silentSince: number | undefined
  ended = false
  /** The `connected` frame was sent: nothing else is sent before it, and pending work is only noted. */
  greeted = false
  nudged = false

  constructor(id: string, agent: LinkedAgent, socket: WebSocket, pingAt: number) {
    this.id = id
    this.agent = agent
    this.#socket = socket
    this.pingAt = pingAt
  }

  /** Whether a large result is expected. */
  get waits(): boolean {
    return this.#waiting.size > 0 || this.#owed.size > 0
  }

  say(frame: ServiceFrame): void {
    this.#say(frame)
  }

  #say(frame: ServiceFrame | Command): void {
    if (this.ended) return
    if (this.#socket.bufferedAmount > maxUnsentBytes) this.end(closings.silent)
    else this.#socket.send(JSON.stringify(frame))
  }

  /** Sends a durable command. Its result may come here, elsewhere, or never. */
  give(command: Command): void {
    this.#owe(command)
    this.#say(command)
  }

  /** Answers a heartbeat. */
  acknowledge({
    commands,
    ...rest
  }: {
    commands: readonly Command[]
    manifestTrustKeys: readonly unknown[]
  }): void {
    for (const command of commands) this.#owe(command)
    this.say({ type: 'heartbeat_ack', timestamp: new Date().toISOString(), commands, ...rest })
  }

  /** The result of a durable command is stored. */
  settled(commandId: string): void {
    this.#owed.delete(commandId)
    this.say({ type: 'ack', commandId })
  }

  /** Runs work after all earlier work of this connection; undefined when too much is waiting. `work` never fails. */
  inTurn(work: () => Promise<void>): Promise<void> | undefined {
    if (this.#inTurn >= maxInTurn) return undefined
    this.#inTurn += 1
    this.#turn = this.#turn.then(async () => {
      if (!this.ended) await work()
      this.#inTurn -= 1
    })
    return this.#turn
  }

  #owe({ id }: Command): void {
    const [oldest] = this.#owed
    if (oldest !== undefined && this.#owed.size >= maxOwed) this.#owed.delete(oldest)
    this.#owed.add(id)
  }

  ask(
    command: Command,
    { timeoutMs, signal }: { timeoutMs: number; signal?: AbortSignal },
  ): Promise<Outcome> {
    if (this.ended) return Promise.resolve({ status: 'unreachable' })
    if (this.#waiting.size >= maxWaiting) return Promise.resolve({ status: 'busy' })
    if (signal?.aborted) return Promise.resolve({ status: 'timeout' })
    return new Promise((resolve) => {
      const settle = (outcome: Outcome): void => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', giveUp)
        this.#waiting.delete(command.id)
        resolve(outcome)
      }
      const giveUp = (): void => settle({ status: 'timeout' })
      const timer = setTimeout(giveUp, timeoutMs)
      signal?.addEventListener('abort', giveUp)
      this.#waiting.set(command.id, settle)
      this.#socket.send(JSON.stringify(command))
    })
  }

  /** False when nobody waits for this command on this connection. */
  settle(commandId: string, outcome: Outcome): boolean {
    const waiting = this.#waiting.get(commandId)
    waiting?.(outcome)
    return waiting !== undefined
  }

  /** Closes the connection of an agent that sends too much, and stops reading. */
  cutOff(closing: Closing): void {
    this.end(closing)
    this.#socket.pause()
  }

  /** Later frames are ignored. */
  end(closing?: Closing): void {
    if (this.ended) return
    this.ended = true
    for (const settle of [...this.#waiting.values()]) settle({ status: 'unreachable' })
    if (!closing) {
      this.#socket.terminate()
      return
    }
    this.#socket.close(closing.code, closing.reason)
    setTimeout(() => this.#socket.terminate(), closeMs).unref()
  }
}

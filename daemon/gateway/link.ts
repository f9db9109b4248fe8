import type { WebSocket } from 'ws'
import type { ConnectedAgent } from '../../src/agents/socket.ts'
import type { Outcome } from '../../src/live/ports.ts'
import { type Closing, type Command, closings, type ServiceFrame } from '../../src/live/wire/contract.ts'

/** Whose connection it is, as it was when it began. */
export type LinkedAgent = ConnectedAgent & { tokenHash: string }

/** Commands that one agent may have under way at once. */
const mostWaiting = 8
/** Frames of one agent that wait for the database, and commands whose results may be large. */
const mostInTurn = 64
const mostOwed = 100
/** Bytes that lie unsent: an agent that does not read is not talked to. */
const mostUnsent = 1024 * 1024
/** How long a closed agent may take to say goodbye. */
const closeMs = 2000

/** One agent's connection. */
export class AgentConnection {
  readonly id: string
  readonly agent: LinkedAgent
  readonly #socket: WebSocket
  readonly #waiting = new Map<string, (outcome: Outcome) => void>()
  /** Durable commands that it was given here, oldest first. */
  readonly #owed = new Set<string>()
  #turn: Promise<void> = Promise.resolve()
  #inTurn = 0
  /** When to ping next, and since when it owes a pong. By performance.now(). */
  pingAt: number
  silentSince: number | undefined
  ended = false
  /** It was told that it is connected: before that nothing else is said, and what waits is only noted. */
  greeted = false
  nudged = false

  constructor(id: string, agent: LinkedAgent, socket: WebSocket, pingAt: number) {
    this.id = id
    this.agent = agent
    this.#socket = socket
    this.pingAt = pingAt
  }

  /** Whether something is to come that may be large. */
  get waits(): boolean {
    return this.#waiting.size > 0 || this.#owed.size > 0
  }

  say(frame: ServiceFrame): void {
    this.#say(frame)
  }

  #say(frame: ServiceFrame | Command): void {
    if (this.ended) return
    if (this.#socket.bufferedAmount > mostUnsent) this.end(closings.silent)
    else this.#socket.send(JSON.stringify(frame))
  }

  /** A durable command. Its result may come here, or elsewhere, or never. */
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

  /** What came of a durable command is kept. */
  settled(commandId: string): void {
    this.#owed.delete(commandId)
    this.say({ type: 'ack', commandId })
  }

  /** Does this after all that came before it; undefined when too much is waiting already. `work` fails never. */
  inTurn(work: () => Promise<void>): Promise<void> | undefined {
    if (this.#inTurn >= mostInTurn) return undefined
    this.#inTurn += 1
    this.#turn = this.#turn.then(async () => {
      if (!this.ended) await work()
      this.#inTurn -= 1
    })
    return this.#turn
  }

  #owe({ id }: Command): void {
    const [oldest] = this.#owed
    if (oldest !== undefined && this.#owed.size >= mostOwed) this.#owed.delete(oldest)
    this.#owed.add(id)
  }

  ask(
    command: Command,
    { timeoutMs, signal }: { timeoutMs: number; signal?: AbortSignal },
  ): Promise<Outcome> {
    if (this.ended) return Promise.resolve({ status: 'unreachable' })
    if (this.#waiting.size >= mostWaiting) return Promise.resolve({ status: 'busy' })
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

  /** False for a command that nobody waits for on this connection. */
  settle(commandId: string, outcome: Outcome): boolean {
    const waiting = this.#waiting.get(commandId)
    waiting?.(outcome)
    return waiting !== undefined
  }

  /** Closes the connection of an agent that sends too much, and reads no more of it. */
  cutOff(closing: Closing): void {
    this.end(closing)
    this.#socket.pause()
  }

  /** Nothing that still comes is listened to. */
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

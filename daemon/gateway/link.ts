import type { WebSocket } from 'ws'
import type { Outcome } from '../../src/live/ports.ts'
import { type Closing, type Command, closings, type ServiceFrame } from '../../src/live/wire/contract.ts'

/** Whose connection it is, as it was when it began. */
export type Linked = { agentId: string; deviceId: string; orgId: string; tokenHash: string }

/** Commands that one agent may have under way at once. */
const mostWaiting = 8
/** Bytes that lie unsent: an agent that does not read is not talked to. */
const mostUnsent = 1024 * 1024
/** How long a closed agent may take to say goodbye. */
const closeMs = 2000

/** One agent's connection. */
export class Link {
  readonly id: string
  readonly agent: Linked
  readonly #socket: WebSocket
  readonly #waiting = new Map<string, (outcome: Outcome) => void>()
  /** When to ping next, and since when it owes a pong. By performance.now(). */
  pingAt: number
  silentSince: number | undefined
  ended = false

  constructor(id: string, agent: Linked, socket: WebSocket, pingAt: number) {
    this.id = id
    this.agent = agent
    this.#socket = socket
    this.pingAt = pingAt
  }

  get waits(): boolean {
    return this.#waiting.size > 0
  }

  say(frame: ServiceFrame): void {
    if (this.ended) return
    if (this.#socket.bufferedAmount > mostUnsent) this.end(closings.silent)
    else this.#socket.send(JSON.stringify(frame))
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

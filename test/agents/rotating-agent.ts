import { api } from '../../src/api.ts'
import type { TestClock, TestService } from '../harness.ts'

export type Fate = 'arrives' | 'answer lost' | 'request lost'

type Enrolled = { agentId: string; authToken: string }

/**
 * An agent as svc-agent(7) specifies: it stores new tokens before it confirms them, keeps the old one until
 * they are confirmed, and returns to it when the new one is refused. Whatever a test declares lost does not
 * reach it, as by a network failure or by a crash before it is stored.
 */
export class RotatingAgent {
  readonly #service: TestService
  readonly #clock: TestClock
  readonly #agentId: string
  /** As stored on its disk. */
  #current: string
  #staged: string | undefined
  /** For every token so far: until when the service may accept it. */
  readonly #ends = new Map<string, number>()
  #counts: string
  #pending: string | undefined

  constructor(service: TestService, { agentId, authToken }: Enrolled, clock: TestClock) {
    this.#service = service
    this.#clock = clock
    this.#agentId = agentId
    this.#current = authToken
    this.#counts = authToken
  }

  async rotate(fate: Fate): Promise<void> {
    if (fate === 'request lost') return
    const reply = await this.#call('rotate', this.#current)
    if (!reply) return
    if (this.#pending) this.#ends.set(this.#pending, 0)
    this.#pending = reply.authToken
    this.#ends.set(reply.authToken, this.#now() + 3600)
    if (fate === 'answer lost') return
    this.#staged = reply.authToken
  }

  async confirm(fate: Fate): Promise<void> {
    if (this.#staged === undefined || fate === 'request lost') return
    const reply = await this.#call('confirm', this.#staged)
    if (reply && this.#pending === this.#staged) {
      this.#ends.set(this.#counts, this.#now() + 300)
      this.#ends.delete(this.#staged)
      this.#counts = this.#staged
      this.#pending = undefined
    }
    if (fate === 'answer lost') return
    if (reply) this.#current = this.#staged
    this.#staged = undefined
  }

  /** With the new token, or with the old one where that is refused. */
  async getsIn(): Promise<boolean> {
    const mine = [this.#staged, this.#current].filter((token) => token !== undefined)
    for (const token of mine) if (await this.#isLetIn(token)) return true
    return false
  }

  /** The prefixes of tokens that are accepted after their end. */
  async tokensLetInTooLong(): Promise<string[]> {
    const wrong: string[] = []
    for (const [token, end] of this.#ends) {
      if (end <= this.#now() && (await this.#isLetIn(token))) wrong.push(token.slice(0, 12))
    }
    return wrong
  }

  async #isLetIn(token: string): Promise<boolean> {
    const body = { status: 'ok', agentVersion: '0.1.0' } as const
    const beat = this.#service
      .client(token)
      .call(api.agents.heartbeat, { params: { id: this.#agentId }, body })
    return beat.then(
      () => true,
      (error: { status?: number }) => {
        if (error.status === 401) return false
        throw error
      },
    )
  }

  /** undefined where the protocol refuses it. */
  async #call(step: 'rotate' | 'confirm', token: string): Promise<{ authToken: string } | undefined> {
    const call = this.#service.client(token).call(api.agentTokens[step], { params: { id: this.#agentId } })
    return call.then(
      (reply) => ('authToken' in reply ? reply : { authToken: token }),
      (error: { status?: number }) => {
        if (error.status === 401 || error.status === 409) return undefined
        throw error
      },
    )
  }

  #now(): number {
    return Date.parse(this.#clock()) / 1000
  }
}

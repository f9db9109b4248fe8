import { randomUUID } from 'node:crypto'
import { api } from '../../src/api.ts'
import { depth } from '../depth.ts'
import { clientOf } from '../harness.ts'
import { send } from './request.ts'

/** Milliseconds between two writes of a client. In the soak they come as fast as they are answered. */
const rest = depth(20, 0)

type Reply = { status: number | 'cut'; retryAfter: string | undefined }
type Body = { orgId: string; name: string; address: object }
type Unsure = { key: string; body: Body }

/**
 * Clients that create one site after the other, each with an Idempotency-Key, and remember each reply. Whatever a failure left
 * unsure is sent again afterwards, as a careful client does.
 */
export class Writers {
  /** The names that were acknowledged as stored. */
  readonly acknowledged: string[] = []
  readonly replies: Reply[] = []
  readonly #token: string
  readonly #orgId: string
  /** The requests that were not acknowledged: nobody knows whether they were stored. */
  #unsure: Unsure[] = []
  readonly #made: string[] = []
  #ended = false
  #running: Promise<unknown> = Promise.resolve()

  constructor(token: string, orgId: string) {
    this.#token = token
    this.#orgId = orgId
  }

  begin(url: string, clients = 4): void {
    this.#running = Promise.all(
      Array.from({ length: clients }, async () => {
        while (!this.#ended) await pause((await this.add(url)) === 201 ? rest : 50)
      }),
    )
  }

  async end(): Promise<void> {
    this.#ended = true
    await this.#running
  }

  async add(url: string): Promise<number | 'cut'> {
    const name = `Site number ${this.#made.length + 1}`
    this.#made.push(name)
    // With some volume, so that it needs another page soon.
    const one = { key: randomUUID(), body: { orgId: this.#orgId, name, address: { note: name.repeat(100) } } }
    const reply = await this.#send(url, one)
    if (reply.status !== 201) this.#unsure.push(one)
    this.replies.push(reply)
    return reply.status
  }

  async #send(url: string, { key, body }: Unsure): Promise<Reply> {
    const headers = { 'idempotency-key': key }
    const reply = await send(url, 'POST', '/api/v1/orgs/sites', { token: this.#token, body, headers }).then(
      ({ status, headers: had }): Reply => ({ status, retryAfter: had['retry-after'] }),
      (): Reply => ({ status: 'cut', retryAfter: undefined }),
    )
    if (reply.status === 201) this.acknowledged.push(body.name)
    return reply
  }

  /** Replies that are neither stored nor refused with Retry-After. */
  get wrong(): Reply[] {
    return this.replies.filter(
      ({ status, retryAfter }) =>
        status !== 201 && status !== 'cut' && !(status === 503 && retryAfter === '5'),
    )
  }

  /**
   * Names that are stored otherwise than exactly once, by how often, after each request that was not acknowledged was sent again
   * with its key.
   */
  async notOnce(url: string): Promise<[name: string, times: number][]> {
    await this.#sendAgain(url)
    const client = clientOf(url, this.#token)
    const times = new Map(this.#made.map((name) => [name, 0]))
    for (let page = 1; ; page += 1) {
      const { data } = await client.call(api.sites.list, { query: { page, limit: 100 } })
      for (const { name } of data) if (times.has(name)) times.set(name, times.get(name)! + 1)
      if (data.length < 100) break
    }
    return [...times].filter(([, count]) => count !== 1)
  }

  /** A service that has just recovered may refuse some once more. */
  async #sendAgain(url: string): Promise<void> {
    for (let round = 0; this.#unsure.length > 0; round += 1) {
      const [all, answers]: [Unsure[], Reply['status'][]] = [this.#unsure, []]
      for (let at = 0; at < all.length; at += 10) {
        const some = all.slice(at, at + 10).map((one) => this.#send(url, one))
        answers.push(...(await Promise.all(some)).map(({ status }) => status))
      }
      this.#unsure = all.filter((_, n) => answers[n] !== 201)
      if (round === 20 && this.#unsure.length > 0) {
        throw new Error(`sent again with their keys, requests got ${[...new Set(answers)].join()}`)
      }
      if (this.#unsure.length > 0) await pause(100)
    }
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

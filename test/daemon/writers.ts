import { api } from '../../src/api.ts'
import { clientOf } from '../harness.ts'
import { send } from './request.ts'

type Reply = { status: number | 'cut'; retryAfter: string | undefined }

/** Clients that create one site after the other, and remember each reply. */
export class Writers {
  /** The names that were acknowledged as stored. */
  readonly acknowledged: string[] = []
  readonly replies: Reply[] = []
  readonly #token: string
  readonly #orgId: string
  #made = 0
  #ended = false
  #running: Promise<unknown> = Promise.resolve()

  constructor(token: string, orgId: string) {
    this.#token = token
    this.#orgId = orgId
  }

  begin(url: string, clients = 4): void {
    this.#running = Promise.all(
      Array.from({ length: clients }, async () => {
        while (!this.#ended) if ((await this.add(url)) !== 201) await pause(50)
      }),
    )
  }

  async end(): Promise<void> {
    this.#ended = true
    await this.#running
  }

  async add(url: string): Promise<number | 'cut'> {
    this.#made += 1
    const name = `Site number ${this.#made}`
    // With some volume, so that it needs another page soon.
    const body = { orgId: this.#orgId, name, address: { note: name.repeat(100) } }
    const reply = await send(url, 'POST', '/api/v1/orgs/sites', { token: this.#token, body }).then(
      ({ status, headers }): Reply => ({ status, retryAfter: headers['retry-after'] }),
      (): Reply => ({ status: 'cut', retryAfter: undefined }),
    )
    if (reply.status === 201) this.acknowledged.push(name)
    this.replies.push(reply)
    return reply.status
  }

  /** Replies that are neither stored nor refused with Retry-After. */
  get wrong(): Reply[] {
    return this.replies.filter(
      ({ status, retryAfter }) =>
        status !== 201 && status !== 'cut' && !(status === 503 && retryAfter === '5'),
    )
  }

  /** Acknowledged names that are not stored. */
  async missing(url: string): Promise<string[]> {
    const client = clientOf(url, this.#token)
    const stored = new Set<string>()
    for (let page = 1; ; page += 1) {
      const { data } = await client.call(api.sites.list, { query: { page, limit: 100 } })
      for (const { name } of data) stored.add(name)
      if (data.length < 100) break
    }
    return this.acknowledged.filter((name) => !stored.has(name))
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

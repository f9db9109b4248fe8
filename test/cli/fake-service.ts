import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A request that the fake service received. `path` is below /api/v1, with its query string. */
export type RecordedRequest = {
  method: string
  path: string
  headers: IncomingMessage['headers']
  body: unknown
}

export type Answer = {
  status?: number
  headers?: Record<string, string>
  /** JSON, or text when it is a string. */
  body?: unknown
  /** Lines that are sent one after another, in place of a body. */
  stream?: AsyncIterable<string>
}

type Handler = (seen: RecordedRequest) => Answer | Promise<Answer>

/** A fake service with the given answers. Keys are such as `GET /orgs/`, without query. */
export class FakeService {
  readonly seen: RecordedRequest[] = []
  readonly answers: Record<string, Handler | Answer>
  #server: Server | undefined

  constructor(answers: Record<string, Handler | Answer> = {}) {
    this.answers = answers
  }

  async start(): Promise<this> {
    this.#server = createServer((request, reply) => void this.#answer(request, reply))
    await new Promise<void>((resolve) => this.#server!.listen(0, '127.0.0.1', resolve))
    return this
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server!.address() as AddressInfo).port}`
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections()
    await new Promise((resolve) => this.#server?.close(resolve))
  }

  /** The received requests of one route. */
  calls(route: string): RecordedRequest[] {
    return this.seen.filter(({ method, path }) => `${method} ${path.split('?')[0]}` === route)
  }

  async #answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const text = Buffer.concat(chunks).toString('utf8')
    const path = (request.url ?? '').replace(/^\/api\/v1/, '')
    const seen = {
      method: request.method ?? '',
      path,
      headers: request.headers,
      body: text === '' ? undefined : (JSON.parse(text) as unknown),
    }
    this.seen.push(seen)
    const answer =
      this.answers[`${seen.method} ${path.split('?')[0]}`] ?? problem(404, 'not_found', 'Not found')
    const whole = typeof answer === 'function' ? await answer(seen) : answer
    const { status = 200, headers = {}, body, stream } = whole
    const isText = typeof body === 'string' || stream !== undefined
    reply.writeHead(status, {
      'content-type': isText ? 'application/x-ndjson' : 'application/json',
      ...headers,
    })
    for await (const line of stream ?? []) reply.write(line)
    reply.end(isText ? body : JSON.stringify(body ?? {}))
  }
}

export const problem = (status: number, code: string, error: string, more: object = {}): Answer => ({
  status,
  body: { error, code, requestId: 'req-1', ...more },
})

export const page = (
  rows: unknown[],
  more: { page?: number; limit?: number; total?: number } = {},
): Answer => ({
  body: { data: rows, pagination: { page: 1, limit: 50, total: rows.length, ...more } },
})

const stamps = { createdAt: '2026-01-31T12:00:00.000Z', updatedAt: '2026-01-31T12:00:00.000Z' }

export const uuid = (n: number): string => `0197c1c4-0000-7000-8000-${String(n).padStart(12, '0')}`

export const organization = (n: number, slug: string, name: string, more: object = {}) => ({
  id: uuid(n),
  partnerId: uuid(900),
  name,
  slug,
  type: 'customer',
  status: 'active',
  maxDevices: null,
  settings: {},
  ssoConfig: null,
  contractStart: null,
  contractEnd: null,
  billingContact: null,
  ...stamps,
  deletedAt: null,
  ...more,
})

export const site = (n: number, orgId: string, name: string) => ({
  id: uuid(n),
  orgId,
  name,
  address: null,
  timezone: 'UTC',
  contact: null,
  settings: {},
  ...stamps,
})

export const enrollmentKey = (n: number, orgId: string, name: string, more: object = {}) => ({
  id: uuid(n),
  orgId,
  siteId: null,
  name,
  usageCount: 0,
  maxUsage: 1,
  expiresAt: '2026-02-01T12:00:00.000Z',
  createdBy: uuid(1),
  createdAt: stamps.createdAt,
  lastUsedAt: null,
  lastDeviceId: null,
  ...more,
})

export const identity = {
  id: uuid(1),
  email: 'admin@example.com',
  name: 'Admin',
  avatarUrl: null,
  status: 'active',
  mfaEnabled: false,
  mfaMethod: null,
  phoneVerified: false,
  phoneLast4: null,
  lastLoginAt: null,
  createdAt: stamps.createdAt,
}

export const me = {
  user: identity,
  scope: 'system',
  partnerId: null,
  orgId: null,
  role: { id: uuid(2), name: 'System Administrator' },
  permissions: ['*:*'],
  mfaVerified: false,
}

export const signIn = (n = 1, more: object = {}): Answer => ({
  body: {
    user: identity,
    tokens: { accessToken: `access-${n}`, refreshToken: `refresh-${n}`, expiresInSeconds: 900 },
    mfaRequired: false,
    ...more,
  },
})

/** The answer after as many refusals for too many requests. */
export function afterRateLimit(answer: (seen: RecordedRequest) => Answer, refusals = 1): Handler {
  let left = refusals
  return (seen) => {
    left -= 1
    return left >= 0 ? problem(429, 'rate_limited', 'Too many requests', { retryAfter: 0 }) : answer(seen)
  }
}

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { auditLogs } from '../../src/audit/contract.ts'
import {
  ApiError,
  type Client,
  type ClientOptions,
  createClient,
  NetworkError,
  pathOf,
  TimeoutError,
  type Transport,
  type TransportRequest,
  type TransportResponse,
} from '../../src/core/client.ts'
import { enrollmentKeys } from '../../src/credentials/enrollment-keys/contract.ts'
import { passwords as auth } from '../../src/identity/passwords/contract.ts'
import { orgs, sites } from '../../src/tenancy/contract.ts'
import { FakeService, organization, page, problem, uuid } from './fake-service.ts'

const service = new FakeService()
let client: Client

beforeAll(async () => {
  await service.start()
  client = createClient({ url: `${service.url}/` })
})

beforeEach(() => {
  service.seen.length = 0
})

afterAll(() => service.stop())

describe('a request', () => {
  it('has encoded path parameters and a serialized query', async () => {
    service.answers['GET /orgs/sites'] = page([])
    await client.call(sites.list, { query: { orgId: uuid(1), page: 2 } })
    expect(service.seen[0]).toMatchObject({ method: 'GET', path: `/orgs/sites?orgId=${uuid(1)}&page=2` })
    expect(
      pathOf(
        { path: '/a/:id/b' },
        { params: { id: 'x/y?z' }, query: { q: 'a&b', list: [1, 2], no: undefined } },
      ),
    ).toBe('/a/x%2Fy%3Fz/b?q=a%26b&list=1&list=2')
  })

  it.each(['', '.', '..'])('cannot leave its endpoint with %j as a parameter', (id) => {
    expect(() => pathOf({ path: '/a/:id' }, { params: { id } })).toThrow(RangeError)
  })

  it('that changes something has its own Idempotency-Key where one is honored', async () => {
    service.answers['POST /orgs/organizations'] = { status: 201, body: organization(1, 'a', 'A') }
    service.answers['GET /orgs/'] = { body: { data: [] } }
    service.answers[`POST /enrollment-keys/${uuid(1)}/rotate`] = { body: {} }
    await client.call(orgs.create, { body: { name: 'A', slug: 'a' } })
    await client.call(orgs.create, { body: { name: 'A', slug: 'a' } })
    await client.call(orgs.list)
    await client.call(enrollmentKeys.rotate, { params: { id: uuid(1) } })
    const keys = service.seen.map(({ headers }) => headers['idempotency-key'])
    expect(keys[0]).toBeTruthy()
    expect(keys[1]).not.toBe(keys[0])
    expect(keys[2]).toBe(undefined)
    expect(keys[3]).toBeTruthy()
  })
})

describe('an error response', () => {
  it('becomes an ApiError with all details of the service', async () => {
    const details = [{ path: 'body.name', message: 'must not be empty' }]
    service.answers['GET /orgs/'] = problem(403, 'mfa_required', 'MFA required', {
      details,
      retryAfter: 5,
      enrollUrl: '/mfa',
    })
    await expect(client.call(orgs.list)).rejects.toMatchObject({
      name: 'ApiError',
      message: 'MFA required',
      status: 403,
      code: 'mfa_required',
      requestId: 'req-1',
      details,
      retryAfter: 5,
      enrollUrl: '/mfa',
    })
  })

  it('from an intermediary keeps its status', async () => {
    service.answers['GET /orgs/'] = {
      status: 418,
      headers: { 'content-type': 'text/html' },
      body: '<h1>no</h1>',
    }
    await expect(client.call(orgs.list)).rejects.toMatchObject({
      status: 418,
      message: 'Unexpected answer: HTTP 418',
    })
  })
})

describe('a retry', () => {
  type Outcome = TransportResponse | Error
  const scripted = (first: Outcome | Pick<ClientOptions, 'rateLimit'>, ...rest: Outcome[]) => {
    const { options, outcomes } =
      'rateLimit' in first
        ? { options: first, outcomes: rest }
        : { options: {}, outcomes: [first as Outcome, ...rest] }
    const sent: TransportRequest[] = []
    const transport: Transport = async (request) => {
      sent.push(request)
      const outcome = outcomes[Math.min(sent.length, outcomes.length) - 1]!
      if (outcome instanceof Error) throw outcome
      return outcome
    }
    return { sent, client: createClient({ url: 'http://x.test', transport, ...options }) }
  }
  const reply = (status: number, body: object = { data: [] }, headers = {}): TransportResponse => ({
    status,
    headers: { 'content-type': 'application/json', ...headers },
    body: (async function* () {
      yield Buffer.from(JSON.stringify(body))
    })(),
  })
  const down = new NetworkError('http://x.test', 'connection reset')
  const name = { body: { name: 'A', slug: 'a' } }

  it.each<[string, TransportResponse | Error]>([
    ['no connection', down],
    ['502', reply(502)],
    ['503', reply(503)],
    ['429 with Retry-After', reply(429, {}, { 'retry-after': '0' })],
  ])('happens after %s', async (_, failure) => {
    const { sent, client } = scripted(failure, reply(200))
    await client.call(orgs.list)
    expect(sent).toHaveLength(2)
  })

  it('of a creation uses the same key', async () => {
    const { sent, client } = scripted(down, reply(503), reply(201, {}))
    await client.call(orgs.create, name)
    expect(new Set(sent.map(({ headers }) => headers['idempotency-key'])).size).toBe(1)
    expect(sent).toHaveLength(3)
  })

  it('of a creation still in progress waits for its response', async () => {
    const body = { error: 'Still worked on', code: 'idempotency_in_progress', requestId: '1' }
    const { sent, client } = scripted(down, reply(409, body, { 'retry-after': '0' }), reply(201, {}))
    await client.call(orgs.create, name)
    expect(new Set(sent.map(({ headers }) => headers['idempotency-key'])).size).toBe(1)
    expect(sent).toHaveLength(3)
  })

  it.each<[string, TransportResponse | Error]>([
    ['409', reply(409, { error: 'No', code: 'conflict', requestId: '1' })],
    ['500', reply(500)],
    ['400', reply(400)],
    ['429 without Retry-After', reply(429)],
    ['429 with a Retry-After of an hour', reply(429, {}, { 'retry-after': '3600' })],
  ])('does not happen after %s', async (_, failure) => {
    const { sent, client } = scripted(failure)
    await expect(client.call(orgs.list)).rejects.toBeInstanceOf(ApiError)
    expect(sent).toHaveLength(1)
  })

  it('after 429 is of any request, and ends when the call has waited long enough', async () => {
    const waits: number[] = []
    const limited = (patience: number, ...outcomes: TransportResponse[]) => {
      const { sent, client } = scripted(
        { rateLimit: { patience, onWait: (s) => waits.push(s) } },
        ...outcomes,
      )
      return { sent, removed: client.call(enrollmentKeys.remove, { params: { id: uuid(1) } }) }
    }
    const refusal = () => reply(429, {}, { 'retry-after': '0' })
    const done = limited(60_000, refusal(), refusal(), refusal(), refusal(), reply(200))
    await done.removed
    expect([done.sent.length, waits]).toEqual([5, [0, 0, 0, 0]])
    for (const [patience, seconds] of [
      [60_000, 61],
      [0, 1],
    ]) {
      const one = limited(patience!, reply(429, {}, { 'retry-after': String(seconds) }))
      await expect(one.removed).rejects.toBeInstanceOf(ApiError)
      expect(one.sent).toHaveLength(1)
    }
    const endless = limited(300, refusal())
    await expect(endless.removed).rejects.toBeInstanceOf(ApiError)
  })

  it('does not happen for a request that might be executed twice', async () => {
    const { sent, client } = scripted(down)
    await expect(client.call(enrollmentKeys.remove, { params: { id: uuid(1) } })).rejects.toBe(down)
    await expect(client.call(auth.resetPassword, { body: { token: 'once', password: 'x' } })).rejects.toBe(
      down,
    )
    expect(sent).toHaveLength(2)
  })

  it('is limited to two', async () => {
    const { sent, client } = scripted(down)
    await expect(client.call(orgs.list)).rejects.toBe(down)
    expect(sent).toHaveLength(3)
  })

  it('happens once with new credentials after a 401', async () => {
    let token = 'old'
    const sent: string[] = []
    const client = createClient({
      url: 'http://x.test',
      transport: async ({ headers }) => {
        sent.push(headers.authorization ?? '')
        return headers.authorization === 'new'
          ? reply(200)
          : reply(401, { error: 'no', code: 'invalid_token' })
      },
      credentials: {
        headers: async () => ({ authorization: token }),
        renew: async () => {
          token = 'new'
          return true
        },
      },
    })
    await client.call(orgs.list)
    expect(sent).toEqual(['old', 'new'])
  })
})

describe('a timeout', () => {
  it('ends a request with TimeoutError, including its retries', async () => {
    service.answers['GET /orgs/'] = () => new Promise(() => {})
    const impatient = createClient({ url: service.url, timeout: 150 })
    await expect(impatient.call(orgs.list)).rejects.toBeInstanceOf(TimeoutError)
  })

  it('also ends a response that stalls, and a stream after its last chunk', async () => {
    const { createServer } = await import('node:http')
    const stalling = createServer((_, reply) => void reply.writeHead(200).write('{"a":1}\n')).listen(
      0,
      '127.0.0.1',
    )
    await new Promise((resolve) => stalling.once('listening', resolve))
    const { port } = stalling.address() as { port: number }
    const impatient = createClient({ url: `http://127.0.0.1:${port}`, timeout: 200 })
    await expect(impatient.call(orgs.list)).rejects.toBeInstanceOf(TimeoutError)
    const chunks: Buffer[] = []
    const reading = (async () => {
      for await (const chunk of impatient.stream(auditLogs.chain)) chunks.push(chunk)
    })()
    await expect(reading).rejects.toBeInstanceOf(TimeoutError)
    expect(Buffer.concat(chunks).toString()).toBe('{"a":1}\n')
    stalling.closeAllConnections()
    stalling.close()
  })

  it('of the caller aborts a request', async () => {
    service.answers['GET /orgs/'] = () => new Promise(() => {})
    const stopped = createClient({ url: service.url, signal: AbortSignal.timeout(100) })
    await expect(stopped.call(orgs.list)).rejects.toMatchObject({ name: 'TimeoutError', code: 23 })
  })
})

it('a stream is passed through chunk by chunk', async () => {
  service.answers['GET /audit-logs/chain'] = { body: '{"a":1}\n{"b":2}\n' }
  const chunks: Buffer[] = []
  for await (const chunk of client.stream(auditLogs.chain)) chunks.push(chunk)
  expect(Buffer.concat(chunks).toString()).toBe('{"a":1}\n{"b":2}\n')
})

it('an unreachable service gives a NetworkError with its address', async () => {
  const gone = await new FakeService().start()
  const { url } = gone
  await gone.stop()
  await expect(createClient({ url, retries: 0 }).call(orgs.list)).rejects.toThrow(
    `Cannot reach ${url}: connection refused`,
  )
})

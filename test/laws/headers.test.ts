import { type IncomingMessage, Server } from 'node:http'
import { gzipSync } from 'node:zlib'
import { afterAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { errors } from '../../src/core/errors.ts'
import { hasNoControls } from '../../src/core/terminal.ts'
import { putRelease } from '../agents/directory.ts'
import { signedRelease } from '../agents/signed-release.ts'
import { type Open, onEveryDatabase, temporaryFolder } from '../databases.ts'
import { isTried } from '../depth.ts'
import { adminEmail, adminPassword, startService, type TestService } from '../harness.ts'
import { buildWorld, systemToken, type World } from '../world.ts'
import { dump } from './tables.ts'
import { type Answer, sendBytes } from './wire.ts'

/*
 * Headers may contain any bytes. The headers that the product reads are observed, not listed: every name read
 * while answering requests of each kind is then sent with each invalid value, as bytes.
 */

const read = new Set<string>()

const watched = (headers: object): object =>
  new Proxy(headers, {
    get(target, name) {
      if (typeof name === 'string') read.add(name)
      return Reflect.get(target, name)
    },
  })

const { emit } = Server.prototype
Server.prototype.emit = function (this: Server, event: string, ...[request, ...rest]: unknown[]) {
  if (event === 'request' || event === 'upgrade') {
    const { headers } = request as IncomingMessage
    Object.defineProperty(request, 'headers', { value: watched(headers), writable: true })
  }
  return emit.call(this, event, request, ...rest)
} as typeof emit
afterAll(() => {
  Server.prototype.emit = emit
})

/** Headers read only by the HTTP libraries. */
const ofTransport = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'host',
  'expect',
  'trailer',
  'toJSON',
])

const bytes = (...parts: (string | number[])[]): Buffer =>
  Buffer.concat(parts.map((part) => Buffer.from(part as string)))

const hostile: Readonly<Record<string, Buffer>> = {
  'a NUL': bytes('a', [0], 'b'),
  'a C1 sequence': bytes('a', [0x9b], '31mb', [0x85]),
  'a C1 sequence in UTF-8': bytes('a\u009b31mb\u0085'),
  'an ESC': bytes('a', [0x1b], '[31m'),
  'half of a surrogate pair': bytes('a', [0xed, 0xa0, 0x80], 'b'),
  'bytes that are no UTF-8': bytes([0xff, 0xfe, 0xc0, 0x80, 0xf5]),
  'what turns the reading around': bytes('a\u202eb\u2066c'),
  'letters of several bytes': bytes('a€😀'),
  'a bell and a DEL': bytes('a', [0x07, 0x7f]),
  '64 KiB': bytes('a'.repeat(64 * 1024)),
  '12 KiB': bytes('a'.repeat(12 * 1024)),
  nothing: bytes(''),
  'encoded NUL and halves': bytes('a=%00; b=%ED%A0%80; service_refresh_token=%00%9b; service_csrf_token=%9b'),
  'a name of a prototype': bytes('__proto__=1; constructor=2'),
}

type Request = {
  line: string
  status: number
  headers: Record<string, string>
  body?: string | Buffer
  only?: string
}

function written({ line, headers, body = '' }: Request, name?: string, value?: Buffer): Buffer {
  const { [name ?? '']: _, ...others }: Record<string, string> = {
    host: 'localhost',
    'content-length': String(Buffer.byteLength(body)),
    ...headers,
  }
  const lines = Object.entries(others).map(([one, said]) => `${one}: ${said}\r\n`)
  const bad =
    name === undefined
      ? Buffer.alloc(0)
      : Buffer.concat([Buffer.from(`${name}: `), value!, Buffer.from('\r\n')])
  return Buffer.concat([
    Buffer.from(`${line} HTTP/1.1\r\n${lines.join('')}`),
    bad,
    Buffer.from('\r\n'),
    Buffer.from(body),
  ])
}

const json = (body: unknown) => ({ body: JSON.stringify(body), type: { 'content-type': 'application/json' } })

/** A request of each kind that reads its own headers. */
async function requestsOf(service: TestService, world: World): Promise<Record<string, Request>> {
  const { bakery } = world.orgs
  const { key: enrollmentKey } = await service
    .client(world.tokens.bakery)
    .call(api.enrollmentKeys.create, { body: { name: 'headers', maxUsage: 100_000 } })
  const { key } = await service
    .client(world.tokens.bakery)
    .call(api.apiKeys.create, { body: { name: 'headers', scopes: ['devices:read'], rateLimit: 100_000 } })
  // Not the latest: other laws of this process publish more, which the directory lacks.
  await service.client(world.tokens.system).call(api.agentVersions.sync, { query: { version: '1.0.0' } })
  const post = (
    status: number,
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
  ): Request => {
    const { body: text, type } = json(body)
    return { line: `POST /api/v1${path}`, status, headers: { ...type, ...headers }, body: text }
  }
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
  const machine = { osType: 'linux', osVersion: '12', architecture: 'x64', agentVersion: '0.1.0' }
  const logs = gzipSync(
    JSON.stringify({
      logs: [{ timestamp: '2026-03-01T12:00:00Z', level: 'info', component: 'a', message: 'b' }],
    }),
  )
  const cookie = 'service_refresh_token=a.b; service_csrf_token=c'
  const origin = 'https://app.example.com'
  return {
    'a sign-in': post(401, '/auth/login', { email: 'nobody@example.com', password: 'x' }),
    'a session that is renewed': post(
      401,
      '/auth/refresh',
      {},
      { cookie, 'x-service-csrf': 'c', origin, 'sec-fetch-site': 'same-site' },
    ),
    'a reading': {
      status: 200,
      line: 'GET /api/v1/devices',
      headers: { ...bearer(world.tokens.bakery), origin },
    },
    'a reading by a key': { status: 200, line: 'GET /api/v1/devices', headers: { 'x-api-key': key } },
    'a reading that is audited': {
      status: 200,
      line: 'GET /api/v1/audit-logs?limit=1',
      headers: bearer(world.tokens.acme),
    },
    'a change': post(
      201,
      '/orgs/sites',
      { orgId: bakery.id, name: 'A' },
      { ...bearer(world.tokens.bakery), 'idempotency-key': 'one' },
    ),
    'a refusal': post(403, '/orgs/sites', { orgId: bakery.id, name: 'A' }, bearer(world.tokens.bakeryViewer)),
    'an enrollment': post(201, '/agents/enroll', { enrollmentKey, hostname: 'h', ...machine }),
    'a heartbeat': post(
      200,
      `/agents/${bakery.agentId}/heartbeat`,
      { status: 'ok', agentVersion: '0.1.0' },
      bearer(bakery.agentToken),
    ),
    logs: {
      status: 201,
      line: `POST /api/v1/agents/${bakery.agentId}/logs`,
      headers: {
        ...bearer(bakery.agentToken),
        'content-type': 'application/json',
        'content-encoding': 'gzip',
      },
      body: logs,
    },
    'a connection of an agent': {
      status: 101,
      line: `GET /api/v1/agent-ws/${bakery.agentId}/ws`,
      headers: {
        upgrade: 'websocket',
        connection: 'Upgrade',
        ...bearer(bakery.agentToken),
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
        'sec-websocket-version': '13',
      },
    },
    'a file': {
      status: 206,
      line: 'GET /api/v1/agents/download/linux/amd64',
      headers: { range: 'bytes=0-3', 'if-none-match': '"x"' },
    },
    'a browser on its way': {
      status: 302,
      line: 'GET /api/v1/sso/callback?code=a&state=b',
      headers: { accept: 'text/html', cookie },
    },
    'a browser that asks first': {
      status: 204,
      line: 'OPTIONS /api/v1/devices',
      headers: { origin, 'access-control-request-method': 'GET' },
    },
    'a browser that is told why not': {
      status: 404,
      line: `GET /api/v1/sso/login/${bakery.id}`,
      headers: { accept: 'text/html' },
    },
    'a sign-in that succeeds': {
      ...post(200, '/auth/login', { email: adminEmail, password: adminPassword }),
      only: 'x-service-client',
    },
    'a page': { status: 200, line: 'GET /login', headers: { accept: 'text/html' } },
    'the metrics': { status: 401, line: 'GET /metrics', headers: bearer('x') },
    'the state of the service': { status: 200, line: 'GET /health', headers: {} },
  }
}

/** The outcomes by database: statuses and codes, without IDs. */
const outcomes = new Map<string, Record<string, string>>()

const seen = new Set<string>()

/** Headers that are known to be read, to check that the observation works. */
const known = [
  'accept',
  'authorization',
  'cf-connecting-ip',
  'content-encoding',
  'content-type',
  'cookie',
  'idempotency-key',
  'if-none-match',
  'if-range',
  'range',
  'origin',
  'sec-fetch-site',
  'user-agent',
  'x-agent-enrollment-secret',
  'x-agent-reenrollment-token',
  'x-api-key',
  'x-forwarded-for',
  'x-forwarded-proto',
  'x-real-ip',
  'x-request-id',
  'x-service-client',
  'x-service-csrf',
  'access-control-request-method',
  'sec-websocket-key',
  'upgrade',
]

/** All stored texts with invisible characters, or ones that would move a cursor. */
async function hiddenIn({ storage }: TestService): Promise<string[]> {
  await sealPending(storage)
  const logs = await storage.read.selectFrom('audit_logs').select('canonical').execute()
  const rows = [...(await dump(storage))].flatMap(([table, all]) => all.map((row) => [table, row] as const))
  const all = [...rows, ...logs.map(({ canonical }) => ['audit_logs', canonical] as const)]
  return all.flatMap(([table, row]) =>
    textsIn(JSON.parse(row))
      .filter((text) => !hasNoControls(text))
      .map((text) => `${table}: ${JSON.stringify(text)}`),
  )
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  return value !== null && typeof value === 'object' ? Object.values(value).flatMap(textsIn) : []
}

/** The error code of a refusal, for a program or a person. */
const codeOf = ({ text }: Answer): string =>
  (text.startsWith('<') ? /Code: <code>(\w+)</ : /"code":"(\w+)"/).exec(text)?.[1] ?? ''

async function begin(open: Open) {
  const directory = await temporaryFolder()
  await putRelease(directory, signedRelease('1.0.0'))
  const env = {
    TRUST_PROXY_HEADERS: 'true',
    TRUST_CF_CONNECTING_IP: 'true',
    CORS_ALLOWED_ORIGINS: 'https://app.example.com',
    METRICS_TOKEN: 'm'.repeat(32),
    BINARY_SOURCE: 'local',
    AGENT_BINARY_DIR: directory,
    PUBLIC_URL: 'https://svc.example.com',
  }
  const service = await startService(open, { env })
  const world = await buildWorld(service)
  return { service, world, requests: await requestsOf(service, world) }
}

onEveryDatabase((database, open) => {
  describe('a header with arbitrary bytes', () => {
    it('is refused clearly or ignored, and no invisible characters of it are stored', async () => {
      const { service, requests } = await begin(open)
      const [outcomesHere, wrong]: [Record<string, string>, string[]] = [{}, []]
      for (const [kind, { only, ...request }] of Object.entries(requests)) {
        read.clear()
        const usual = await sendBytes(service.url, written(request))
        expect([kind, usual.status]).toEqual([kind, request.status])
        const names = [...read].filter((name) => !ofTransport.has(name) && (!only || name === only))
        for (const name of names) seen.add(name)
        for (const name of names) {
          const tried = Object.entries(hostile).filter((_, index) => isTried(database, index, 5))
          const answers = tried.map(async ([what, value]) => {
            const answer = await sendBytes(service.url, written(request, name, value))
            const [here, code] = [`${kind}: ${name} with ${what}`, codeOf(answer)]
            outcomesHere[here] = `${answer.status} ${code}`
            // A refused WebSocket upgrade has its own format.
            const isClear = code in errors || name.startsWith('sec-websocket')
            if (answer.status >= 500 || (answer.status >= 400 && !isClear))
              wrong.push(`${here}: ${outcomesHere[here]}`)
          })
          await Promise.all(answers)
        }
      }
      expect(wrong).toEqual([])
      // The headers known to be read were observed.
      expect([...seen]).toEqual(expect.arrayContaining(known))
      expect(await hiddenIn(service)).toEqual([])
      outcomes.set(database, outcomesHere)
    }, 300_000)

    it('with a User-Agent in another encoding is stored as it was meant', async () => {
      const { service, requests } = await begin(open)
      const agents: [Buffer, string][] = [
        [bytes('Bäckerei/1.0 (烤箱)'), 'Bäckerei/1.0 (烤箱)'],
        [bytes('old ', [0xe4]), 'old ä'],
        [bytes('a', [0x9b], '31m'), 'a\\u009b31m'],
        [bytes('a\u009b31m\u202eb'), 'a\\u009b31m\\u202eb'],
      ]
      for (const [sent, kept] of agents) {
        await sendBytes(service.url, written(requests['a refusal']!, 'user-agent', sent))
        const { data } = await service
          .client(await systemToken(service))
          .call(api.auditLogs.list, { query: { action: 'site.create', limit: 1 } })
        expect(data[0]!.userAgent).toBe(kept)
      }
    })
  })
})

describe('the databases', () => {
  it('give the same answers for every header', () => {
    const [first, ...others] = [...outcomes.values()]
    expect(Object.keys(first!).length).toBeGreaterThan(500)
    for (const other of others) expect(first).toMatchObject(other)
  })
})

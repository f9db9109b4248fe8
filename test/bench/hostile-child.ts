// What hostile callers send, all at once and without rest, until this process is ended.
import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer } from 'node:net'
import { gzipSync } from 'node:zlib'
import { Agent, request } from 'undici'

type Task = {
  url: string
  orgId: string
  /** Access tokens of administrators of one organization. */
  admins: string[]
  /** Its machines. */
  agents: { id: string; token: string }[]
}

const { url, orgId, admins, agents } = JSON.parse(process.argv[2]!) as Task
const dispatcher = new Agent({ connections: 256, pipelining: 1 })
const at = `${url}/api/v1`

type Call = {
  method?: 'GET' | 'POST'
  path: string
  headers?: Record<string, string>
  body?: string | Buffer
}
/** Sent by so many lanes, each of which sends one after the other. */
type Attack = { name: string; lanes: number; next(): Call }

/** Everybody has thousands of addresses, as behind a proxy that the service trusts. */
const someAddress = () => `203.0.${Math.floor(Math.random() * 256)}.${Math.floor(Math.random() * 256)}`
const some = <T>(all: readonly T[]): T => all[Math.floor(Math.random() * all.length)]!
/** Many people of one tenant: each has limits of their own. */
const bearer = () => ({ authorization: `Bearer ${some(admins)}` })
const agent = (n: number) => ({ authorization: `Bearer ${agents[n]!.token}`, 'content-encoding': 'gzip' })

const entry = { level: 'info', component: 'agent', message: 'x', timestamp: new Date().toISOString() }
const bomb = gzipSync(JSON.stringify({ logs: [{ ...entry, message: 'a'.repeat(50_000_000) }] }))
const flood = gzipSync(
  JSON.stringify({
    logs: Array.from({ length: 500 }, (_, n) => ({
      ...entry,
      message: `${n} ${'lorem ipsum '.repeat(150)}`,
    })),
  }),
)
const unknown = JSON.stringify(Object.fromEntries(Array.from({ length: 60_000 }, (_, n) => [`key${n}`, n])))
const dear = JSON.stringify({
  conditions: {
    operator: 'OR',
    conditions: Array.from({ length: 199 }, (_, n) => ({
      field: 'hostname',
      operator: 'matches',
      value: `(?i)${'\\pL'.repeat(80)}${n}`,
    })),
  },
})
const heartbeat = JSON.stringify({ status: 'ok', agentVersion: '0.1.0' })

/** A receiver and identity provider that accepts everything and never answers. */
const silent = createServer(() => {}).listen(0, '127.0.0.1')
await once(silent, 'listening')
const silentUrl = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`

const get = (path: string) => ({ method: 'GET' as const, path, headers: bearer() })
const post = (path: string, body: object) => ({ path, headers: bearer(), body: JSON.stringify(body) })
const named = (name: string) => `${name} ${Math.random()}`

const devices = await listDevices()
const webhookId = await create('/webhooks', { orgId, name: named('silent'), url: silentUrl, events: ['*'] })
const filterId = await create('/filters', {
  orgId,
  name: named('everything'),
  conditions: { operator: 'AND', conditions: [{ field: 'hostname', operator: 'contains', value: 'm' }] },
})

const attacks: Attack[] = [
  attack('bodies that inflate', 12, () => ({
    path: `/agents/${agents[1]!.id}/logs`,
    headers: agent(1),
    body: bomb,
  })),
  attack('a device that fills the disk', 8, () => ({
    path: `/agents/${agents[2]!.id}/logs`,
    headers: agent(2),
    body: flood,
  })),
  attack('heartbeats without rest', 20, () => {
    const { id, token } = some(agents)
    return { path: `/agents/${id}/heartbeat`, headers: { authorization: `Bearer ${token}` }, body: heartbeat }
  }),
  attack('unknown keys', 8, () => ({ path: '/auth/login', body: unknown })),
  attack('wrong passwords', 4, () => ({
    path: '/auth/login',
    body: JSON.stringify({ email: 'nobody@example.com', password: 'not the password' }),
  })),
  attack('enrollment keys that do not exist', 8, () => ({
    path: '/agents/enroll',
    body: JSON.stringify({
      enrollmentKey: 'f'.repeat(64),
      hostname: 'a',
      osType: 'linux',
      osVersion: 'a',
      architecture: 'x64',
      agentVersion: '0.1.0',
    }),
  })),
  attack('expensive patterns', 8, () => ({ path: '/filters/preview', headers: bearer(), body: dear })),
  attack('searches', 8, () => get(`/search?q=${some(['m', 'machine', 'achine-1', '%25'])}&limit=50`)),
  attack('lists', 8, () => get(`/devices?limit=100&search=${some(['a', 'machine', 'e-9'])}`)),
  attack('audit searches', 6, () => get(`/audit-logs/search?q=${some(['a', 'zzzz', 'device'])}&limit=100`)),
  attack('audit reports', 4, () =>
    get(`/audit-logs/reports/${some(['user-activity', 'security-events', 'compliance'])}`),
  ),
  attack('audit exports', 4, () => get('/audit-logs/export?format=csv')),
  attack('audit chains', 4, () => get(`/audit-logs/chain?orgId=${orgId}`)),
  attack('commands', 8, () =>
    post(`/devices/${some(devices)}/commands`, { type: 'collect', payload: { what: ['inventory'] } }),
  ),
  attack('groups of everything', 2, () =>
    post('/device-groups', { orgId, name: named('everything'), type: 'dynamic', filterId }),
  ),
  attack('deliveries without an answer', 8, () => post(`/webhooks/${webhookId}/test`, {})),
  attack('providers without an answer', 8, () =>
    post('/sso/providers', {
      orgId,
      name: named('silent'),
      type: 'oidc',
      issuer: silentUrl,
      clientId: 'a',
      clientSecret: 'b',
    }),
  ),
  attack('workload tokens of nobody', 4, () => ({
    path: '/auth/federated',
    body: JSON.stringify({ token: `${'a'.repeat(3000)}.${'b'.repeat(3000)}.c` }),
  })),
]

function attack(name: string, lanes: number, next: Attack['next']): Attack {
  return { name, lanes, next }
}

async function ask(call: Call) {
  const { method = 'POST', path, headers, body } = call
  const json = { 'content-type': 'application/json', 'x-forwarded-for': someAddress() }
  return request(at + path, { method, dispatcher, headers: { ...json, ...headers }, body: body ?? null })
}

async function create(path: string, body: object): Promise<string> {
  const { statusCode, body: reply } = await ask(post(path, body))
  const text = await reply.text()
  if (statusCode !== 201) throw new Error(`${path}: ${statusCode} ${text}`)
  return JSON.parse(text).id
}

async function listDevices(): Promise<string[]> {
  const { body } = await ask(get('/devices?limit=100'))
  const { data } = (await body.json()) as { data: { id: string }[] }
  return data.map(({ id }) => id)
}

const counts: Record<string, Record<string, number>> = {}

async function lane({ name, next }: Attack): Promise<never> {
  counts[name] ??= {}
  const count = counts[name]
  for (;;) {
    const status = await ask(next())
      .then(async ({ statusCode, body }) => {
        await body.dump()
        return String(statusCode)
      })
      .catch((error: { code?: string }) => error.code ?? 'failed')
    count[status] = (count[status] ?? 0) + 1
    // Who is refused at once would take a whole core for asking.
    if (!status.startsWith('2')) await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

/** Requests whose bodies arrive a byte a second, and replies that nobody reads. */
function slowly(): void {
  const { hostname, port } = new URL(url)
  for (let n = 0; n < 200; n++) {
    const socket = createConnection({ host: hostname, port: Number(port) }).on('error', () => {})
    const isReader = n % 2 === 0
    if (isReader) {
      socket.pause()
      socket.write(
        `GET /api/v1/openapi.json HTTP/1.1\r\nhost: a\r\nx-forwarded-for: ${someAddress()}\r\n\r\n`,
      )
      continue
    }
    const head = `POST /api/v1/auth/login HTTP/1.1\r\nhost: a\r\nx-forwarded-for: ${someAddress()}`
    socket.write(`${head}\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{`)
    const trickle = setInterval(() => socket.write(' '), 1000)
    socket.on('close', () => clearInterval(trickle))
  }
}

slowly()
for (const one of attacks) for (let n = 0; n < one.lanes; n++) void lane(one)
process.on('SIGTERM', () => {
  process.stdout.write(`${JSON.stringify(counts)}\n`, () => process.exit(0))
})
process.stdout.write('{}\n')

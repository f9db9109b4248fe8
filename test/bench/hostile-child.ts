// What hostile callers send, all at once and without rest, until this process is ended.
import { gzipSync } from 'node:zlib'
import { Agent, request } from 'undici'

type Task = {
  url: string
  token: string
  agents: { id: string; token: string }[]
}

const { url, token, agents } = JSON.parse(process.argv[2]!) as Task
const dispatcher = new Agent({ connections: 64, pipelining: 1 })
const at = `${url}/api/v1`

/** Everybody has an address of their own, as behind a proxy that the service trusts. */
const from = (n: number): Record<string, string> => ({
  'x-forwarded-for': `203.0.113.${n}`,
  'content-type': 'application/json',
})

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

type Attack = {
  name: string
  at: string
  headers: Record<string, string>
  body: string | Buffer
  lanes: number
}

const ofAgent = (n: number) => ({ ...from(n), authorization: `Bearer ${agents[n]!.token}` })
const attacks: Attack[] = [
  {
    ...{ name: 'bodies that inflate', at: `/agents/${agents[1]!.id}/logs`, body: bomb, lanes: 12 },
    headers: { ...ofAgent(1), 'content-encoding': 'gzip' },
  },
  {
    ...{ name: 'a device that fills the disk', at: `/agents/${agents[2]!.id}/logs`, body: flood, lanes: 8 },
    headers: { ...ofAgent(2), 'content-encoding': 'gzip' },
  },
  { name: 'unknown keys', at: '/auth/login', headers: from(3), body: unknown, lanes: 8 },
  {
    ...{ name: 'dear patterns', at: '/filters/preview', body: dear, lanes: 8 },
    headers: { ...from(4), authorization: `Bearer ${token}` },
  },
  {
    ...{ name: 'wrong passwords', at: '/auth/login', lanes: 4 },
    headers: from(5),
    body: JSON.stringify({ email: 'nobody@example.com', password: 'not the password' }),
  },
]

const counts: Record<string, Record<string, number>> = {}

async function lane({ name, at: path, headers, body }: Attack): Promise<never> {
  counts[name] ??= {}
  const count = counts[name]
  for (;;) {
    const status = await request(at + path, { method: 'POST', dispatcher, headers, body })
      .then(async ({ statusCode, body: reply }) => {
        await reply.dump()
        return String(statusCode)
      })
      .catch((error: { code?: string }) => error.code ?? 'failed')
    count[status] = (count[status] ?? 0) + 1
    // Who is refused at once would take a whole core for asking.
    if (status !== '200' && status !== '201') await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

for (const attack of attacks) for (let n = 0; n < attack.lanes; n++) void lane(attack)
process.on('SIGTERM', () => {
  process.stdout.write(`${JSON.stringify(counts)}\n`, () => process.exit(0))
})
process.stdout.write('{}\n')

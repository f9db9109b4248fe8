import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { metricsToken } from '../metric-values.ts'
import { buildWorld, systemToken } from '../world.ts'
import { hostile, hostileFor } from './hostile.ts'

/* No label of a metric has a value of a caller: each value would be a series that is kept for ever. */

/** Every call with this word wherever a caller may write one; those that need a record get a valid one or none. */
function callsWith(
  word: string,
  { entry }: { entry: Endpoint },
  headers: Record<string, string>,
): [string, RequestInit] {
  const planted = (value: unknown): string =>
    JSON.stringify(value, (_, one) => (typeof one === 'string' ? one.replaceAll(hostile, word) : one))
  const path = entry.path.replace(/:\w+/g, word)
  const body = entry.method === 'GET' ? undefined : planted(entry.body ? hostileFor(entry.body, true) : {})
  return [
    `/api/v1${path}?${word}=${word}&orgId=${word}`,
    {
      method: entry.method,
      headers: {
        'content-type': 'application/json',
        'user-agent': word,
        'x-request-id': word,
        traceparent: word,
        ...headers,
      },
      ...(body !== undefined && { body }),
      redirect: 'manual',
      signal: AbortSignal.timeout(10_000),
    },
  ]
}

/** The values of each label of each metric. `status` is a number of HTTP; a slow statement is one of the code. */
function labelsIn(text: string): string[] {
  const found = new Set<string>()
  for (const [, name, labels = ''] of text.matchAll(/^(\w+)\{(.*)\} \S+$/gm)) {
    for (const [, label, value] of labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      if (label === 'status') expect(value).toMatch(/^[1-5]\d\d$|^[a-z_]+$/)
      else if (name === 'svc_database_slow_statements_total') expect(value).toMatch(/^\w*$/)
      else if (!name!.startsWith('nodejs_')) found.add(`${name} ${label} ${value}`)
    }
  }
  return [...found]
}

it('no label takes a value from a caller, at any endpoint', { timeout: 180_000 }, async () => {
  const service = await startService(() => openMigrated('sqlite'), {
    env: { METRICS_TOKEN: metricsToken, LIVE_QUERY_TIMEOUT_MS: '100' },
  })
  const { orgs } = await buildWorld(service)
  const { agentId, agentToken } = orgs.bakery
  const token = await systemToken(service)
  // Would end the session of the others.
  const entries = entriesOf(api).filter(({ name }) => name !== 'auth.logout')
  const round = async (word: string) => {
    for (const one of entries) {
      const bearer = one.entry.access.who === 'agent' ? agentToken : token
      for (const headers of [{}, { authorization: `Bearer ${bearer}` }, { 'x-api-key': word }]) {
        const [path, init] = callsWith(word, one, headers as Record<string, string>)
        await fetch(service.url + path, init)
          .then((reply) => reply.arrayBuffer())
          .catch(() => undefined)
      }
    }
    // What agents and people report of themselves.
    const post = (path: string, bearer: string, body: unknown) =>
      fetch(`${service.url}/api/v1${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
    const beat = await post(`/agents/${agentId}/heartbeat`, agentToken, { status: 'ok', agentVersion: word })
    const login = await post('/auth/login', '', { email: `${word}@example.com`, password: word })
    const mine = await service.client(token).call(api.orgs.list, { query: {} })
    expect([beat.status, login.status, mine.data.length > 0]).toEqual([200, 401, true])
    await fetch(`${service.url}/${word}/metrics`)
    const reply = await fetch(`${service.url}/metrics`, {
      headers: { authorization: `Bearer ${metricsToken}` },
    })
    return reply.text()
  }
  const first = labelsIn(await round('planted1'))
  const second = labelsIn(await round('planted2'))
  expect(first.length).toBeGreaterThan(300)
  expect([...first, ...second].filter((label) => label.includes('planted'))).toEqual([])
  const known = new Set(first)
  expect(second.filter((label) => !known.has(label))).toEqual([])
})

import { randomBytes } from 'node:crypto'
import { createConnection } from 'node:net'
import { gzipSync } from 'node:zlib'
import { Registry } from 'prom-client'
import { request } from 'undici'
import { beforeEach, describe, expect, it } from 'vitest'
import { BodyBudget, type BodyReservation } from '../../daemon/body-budget.ts'
import { openMigrated } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { bytesOf } from '../laws/wire.ts'
import { metricValues } from '../metric-values.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess, serviceEnv, until } from './process.ts'

const mebi = 1024 * 1024
const metricsToken = 'a token for metrics'

/** Ten mebibytes compressed to about 200 kibibytes: a ratio that the ratio check alone does not refuse. */
function bomb(): Buffer {
  const parts = ['{"logs":[']
  for (let size = 0; size < 10 * mebi - 200_000; size += 104_000) {
    parts.push(`"${randomBytes(2000).toString('hex')}",`, '{},'.repeat(33_000))
  }
  return gzipSync(`${parts.join('')}0]}`)
}

type Agent = { agentId: string; agentToken: string }

/** The real service in its own process, with a device in each of two organizations. */
async function served(env: Record<string, string> = {}) {
  const place = await openMigrated('sqlite')
  await place.storage.close()
  const service = await serviceOn(place)
  const { orgs } = await buildWorld(service)
  await service.close()
  const child = new ServeProcess(place, { env: { ...serviceEnv, METRICS_TOKEN: metricsToken, ...env } })
  const url = await child.listening()
  const post = async ({ agentId, agentToken }: Agent, what: string, body: Buffer | string, gzip = false) => {
    const reply = await request(`${url}/api/v1/agents/${agentId}/${what}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${agentToken}`,
        'content-type': 'application/json',
        ...(gzip && { 'content-encoding': 'gzip' }),
      },
      body,
    })
    const text = await reply.body.text()
    return { status: reply.statusCode, headers: reply.headers, text }
  }
  const metric = async (name: string): Promise<number> => {
    const headers = { authorization: `Bearer ${metricsToken}` }
    const text = await (await request(`${url}/metrics`, { headers })).body.text()
    return Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.split(' ')[1],
    )
  }
  return { url, post, metric, orgs }
}

describe('many compressed bodies at once from one agent', () => {
  it('neither exhaust the memory of the process nor delay other agents', async () => {
    const { post, metric, orgs } = await served()
    const body = bomb()
    expect(body.length).toBeGreaterThan((10 * mebi) / 200)
    const { bakery: bad, garage: good } = orgs
    const before = await metric('process_resident_memory_bytes')
    let isOver = false
    const storm = Promise.all(Array.from({ length: 100 }, () => post(bad, 'logs', body, true))).finally(
      () => {
        isOver = true
      },
    )
    let answered = 0
    let max = before
    while (!isOver) {
      const beat = await post(good, 'heartbeat', JSON.stringify({ status: 'ok', agentVersion: '0.1.0' }))
      expect(beat.status).toBe(200)
      if (!isOver) answered += 1
      max = Math.max(max, await metric('process_resident_memory_bytes'))
    }
    expect((max - before) / mebi).toBeLessThan(250)
    const answers = await storm
    expect(answers.filter(({ status }) => ![400, 413, 429].includes(status))).toEqual([])
    const refused = answers.filter(({ status }) => status === 429)
    expect(refused.length).toBeGreaterThan(50)
    expect(refused.every(({ headers }) => Number(headers['retry-after']) > 0)).toBe(true)
    expect(answers.every(({ text }) => text.length < 64 * 1024)).toBe(true)
    expect(answered, 'heartbeats answered meanwhile').toBeGreaterThan(3)
    await until(async () => (await metric('svc_body_bytes_in_flight')) === 0)
  })

  it('release what they reserved when the agent hangs up halfway', async () => {
    const { url, metric, orgs } = await served()
    const { agentId, agentToken: token } = orgs.bakery
    const half = bomb().subarray(0, 100_000)
    const headers = { 'content-encoding': 'gzip' }
    const head = bytesOf({ method: 'POST', path: `/api/v1/agents/${agentId}/logs`, token, headers }, 200_000)
    const { hostname, port } = new URL(url)
    const sockets = Array.from({ length: 5 }, () => {
      const socket = createConnection({ host: hostname, port: Number(port) }).on('error', () => {})
      socket.write(head)
      socket.write(half)
      return socket
    })
    await until(async () => (await metric('svc_body_bytes_in_flight')) > mebi)
    for (const socket of sockets) socket.destroy()
    await until(async () => (await metric('svc_body_bytes_in_flight')) === 0)
  })
})

describe('a caller that exceeds its byte rate', () => {
  it('gets 429, and its bodies are not parsed', async () => {
    const { post, orgs } = await served({ RATE_LIMIT_BODY_BYTES: '20000000/60' })
    const { bakery: bad, garage: good } = orgs
    const answers: Awaited<ReturnType<typeof post>>[] = []
    for (let n = 0; n < 4; n += 1) answers.push(await post(bad, 'logs', bomb(), true))
    expect(answers.map(({ status }) => status)).toEqual([400, 429, 429, 429])
    expect(Number(answers[3]!.headers['retry-after'])).toBeGreaterThan(30)
    expect((await post(bad, 'heartbeat', '{"status":"ok","agentVersion":"0.1.0"}')).status).toBe(200)
    expect((await post(good, 'logs', bomb(), true)).status).toBe(400)
  })
})

describe('the body budget', () => {
  const kibi = 1024
  let metrics: Registry
  beforeEach(() => {
    metrics = new Registry()
  })
  const refusedWith = (code: string) => expect.objectContaining({ code, extras: { retryAfter: 5 } })
  const tryGrow = (held: BodyReservation, bytes: number): unknown => {
    try {
      return held.grow(bytes)
    } catch (error) {
      return error
    }
  }

  it('refuses a caller whose own share is used up, and no other caller', () => {
    const budget = new BodyBudget({ whole: 1000 * kibi, perCaller: 200 * kibi }, 'requests', metrics)
    const [first, second, other] = [budget.hold('a'), budget.hold('a'), budget.hold('b')]
    first.grow(150 * kibi)
    expect(tryGrow(second, 51 * kibi)).toEqual(refusedWith('rate_limited'))
    expect(tryGrow(second, 50 * kibi)).toBe(undefined)
    expect(tryGrow(other, 200 * kibi)).toBe(undefined)
    first.release()
    expect(tryGrow(second, 150 * kibi)).toBe(undefined)
    second.release()
    second.release()
    other.release()
    expect([budget.used, budget.callers]).toEqual([0, 0])
  })

  it('keeps room for small bodies when large ones have used up their share', async () => {
    const budget = new BodyBudget({ whole: 1000 * kibi, perCaller: 200 * kibi }, 'requests', metrics)
    const large = Array.from({ length: 4 }, (_, n) => budget.hold(`agent ${n}`))
    const outcomes = large.map((held) => tryGrow(held, 200 * kibi))
    expect(outcomes).toEqual([undefined, undefined, undefined, refusedWith('unavailable')])
    expect(tryGrow(budget.hold('x'), 160 * kibi)).toEqual(refusedWith('unavailable'))
    for (let n = 0; n < 6; n++) expect(tryGrow(budget.hold(`y ${n}`), 60 * kibi)).toBe(undefined)
    expect(tryGrow(budget.hold('z'), 60 * kibi)).toEqual(refusedWith('unavailable'))
    expect(await metricValues(metrics, 'svc_bodies_refused_total')).toEqual({ caller: 0, whole: 3 })
  })
})

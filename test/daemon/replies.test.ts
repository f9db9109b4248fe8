import { connect, type Socket } from 'node:net'
import { fastify } from 'fastify'
import { Registry } from 'prom-client'
import { request } from 'undici'
import { afterEach, describe, expect, it } from 'vitest'
import { BodyBudget } from '../../daemon/body-budget.ts'
import { sendProblem } from '../../daemon/problems.ts'
import { limitSlowReaders } from '../../daemon/reply-timeout.ts'
import { systemClock } from '../../src/core/time.ts'
import { metricValues } from '../metric-values.ts'
import { until } from './process.ts'

const mebi = 1024 * 1024
/** More than the system buffers for a client that reads nothing. */
const large = JSON.stringify('x'.repeat(16 * mebi))
const endings: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end()
})

async function begin(
  settings: { whole: number; perCaller: number },
  patience?: { idleMs: number; bytesPerSecond: number },
) {
  const metrics = new Registry()
  const budget = new BodyBudget(settings, 'replies', metrics)
  const app = fastify({ forceCloseConnections: true })
  let changes = 0
  let later = 0
  app.setErrorHandler((error, asked, reply) => sendProblem(asked, reply, error))
  app.addHook('onRequest', (asked, _, done) => {
    asked.now = systemClock()
    asked.client = { ip: String(asked.headers['x-from'] ?? '192.0.2.1'), https: false, isLocal: () => false }
    done()
  })
  limitSlowReaders(app, budget, patience)
  app.get('/large', (_, reply) => reply.type('application/json').send(large))
  const bytes = Buffer.from(large)
  app.get('/bytes', (_, reply) => reply.type('application/json').send(bytes))
  app.put('/large', (_, reply) => {
    changes += 1
    return reply.type('application/json').send(large)
  })
  app.get('/later', async (_, reply) => {
    await until(() => reply.raw.destroyed)
    later += 1
    return reply.type('application/json').send(large)
  })
  app.get('/small', (_, reply) => reply.type('application/json').send('"small"'))
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  endings.push(() => app.close())
  /** A client that sends a request and does not read. */
  const ask = (from: string, path = '/large'): { socket: Socket; closed: () => boolean } => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    let isClosed = false
    socket
      .on('error', () => {})
      .on('close', () => {
        isClosed = true
      })
    socket.pause()
    socket.write(`GET ${path} HTTP/1.1\r\nhost: a\r\nx-from: ${from}\r\n\r\n`)
    endings.push(() => socket.destroy())
    return { socket, closed: () => isClosed }
  }
  const read = async (path: string, from: string, method: 'GET' | 'PUT' = 'GET') => {
    const reply = await request(`${url}${path}`, { method, headers: { 'x-from': from } })
    const text = await reply.body.text()
    return { status: reply.statusCode, headers: reply.headers, text, size: text.length }
  }
  return { budget, metrics, ask, read, changes: () => changes, later: () => later }
}

describe('a large reply that the client does not read', () => {
  it('counts against its caller until it is read or the connection closes', async () => {
    const { budget, ask, read } = await begin({ whole: 200 * mebi, perCaller: 40 * mebi })
    const slow = [ask('192.0.2.1'), ask('192.0.2.1', '/bytes')]
    await until(() => budget.used === 2 * large.length)
    const refused = await read('/large', '192.0.2.1')
    expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': '5' } })
    expect(refused.headers['content-length']).toBe(String(refused.size))
    expect(JSON.parse(refused.text)).toMatchObject({ code: 'rate_limited' })
    expect(await read('/small', '192.0.2.1')).toMatchObject({ status: 200 })
    expect(await read('/large', '198.51.100.1')).toMatchObject({ status: 200, size: large.length })
    slow[0]!.socket.resume()
    await until(() => budget.used === large.length)
    slow[1]!.socket.destroy()
    await until(() => budget.used === 0)
    expect(budget.callers).toBe(0)
    expect(await read('/large', '192.0.2.1')).toMatchObject({ status: 200, size: large.length })
  })

  it('counts against nobody once the client has hung up', async () => {
    const { budget, ask, later } = await begin({ whole: 200 * mebi, perCaller: 40 * mebi })
    const { socket } = ask('192.0.2.1', '/later')
    socket.once('connect', () => setTimeout(() => socket.destroy(), 50))
    await until(() => later() === 1)
    await new Promise((resolve) => setTimeout(resolve, 50))
    expect([budget.used, budget.callers]).toEqual([0, 0])
  })

  it('of many callers leaves room for small replies and for replies to changes', async () => {
    const { budget, metrics, ask, read, changes } = await begin({ whole: 40 * mebi, perCaller: 20 * mebi })
    ask('192.0.2.1')
    await until(() => budget.used === large.length)
    const refused = await read('/large', '198.51.100.1')
    expect(refused).toMatchObject({ status: 503, headers: { 'retry-after': '5' } })
    expect(await read('/large', '198.51.100.1', 'PUT')).toMatchObject({ status: 200, size: large.length })
    expect(await read('/small', '198.51.100.1')).toMatchObject({ status: 200 })
    expect(changes()).toBe(1)
    expect(await metricValues(metrics, 'svc_replies_refused_total')).toEqual({ caller: 0, whole: 1 })
  })

  it('is aborted when it takes too long', async () => {
    const { budget, ask, read } = await begin(
      { whole: 200 * mebi, perCaller: 40 * mebi },
      { idleMs: 1000, bytesPerSecond: 16 * mebi },
    )
    const { socket, closed } = ask('192.0.2.1')
    await until(() => budget.used > 0)
    await until(() => budget.used === 0)
    expect(await read('/large', '192.0.2.1')).toMatchObject({ status: 200 })
    socket.resume()
    await until(closed)
    expect(await read('/small', '192.0.2.1')).toMatchObject({ status: 200 })
  })
})

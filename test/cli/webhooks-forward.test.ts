import { createServer } from 'node:http'
import { createServer as createNetServer, type Socket } from 'node:net'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { createForwarder } from '../../src/cli/webhooks/forwarder.ts'
import { eventOf, signedHeaders, without } from '../webhooks/signed.ts'
import { listening } from './network.ts'
import { Home } from './run.ts'
import { listen, target } from './webhook-listener.ts'

const home = new Home()
afterAll(() => home.remove())
const event = eventOf('alert.triggered', { alertId: 'a', title: 'Küche' })

describe('svc webhooks listen --forward-to', () => {
  it('forwards the bytes and the headers, and answers like the target', async () => {
    const { taken, url } = await target(() => [
      503,
      { 'retry-after': '7', 'content-type': 'text/plain', 'x-other': '1' },
      'x'.repeat(100_000),
    ])
    const { deliver, rows, has, said } = await listen(home, {
      args: ['-o', 'ndjson', '--forward-to', url],
    })
    const sent = { ...signedHeaders(JSON.stringify(event)), 'x-own': 'ü', 'proxy-authorization': 'no' }
    const reply = await deliver(event, sent)
    expect([reply.status, reply.headers.get('retry-after'), reply.headers.get('x-other')]).toEqual([
      503,
      '7',
      null,
    ])
    expect(await reply.text()).toBe('x'.repeat(65_536))
    expect(said.stderr).toContain(`forwarding to ${url.split('?')[0]};`)
    expect(taken[0]).toMatchObject({ method: 'POST', url: '/hooks?a=b', body: JSON.stringify(event) })
    expect(taken[0]!.headers).toMatchObject({
      ...without(sent, /^proxy/),
      host: new URL(url).host,
      'content-length': String(Buffer.byteLength(JSON.stringify(event))),
    })
    expect(taken[0]!.headers).not.toHaveProperty('proxy-authorization')
    await has(1)
    expect(rows()[0]!.forwarded).toEqual({ status: 503, milliseconds: expect.any(Number) })
    await deliver(event, without(sent, /signature/))
    expect(taken.length).toBe(1)
  })

  it('reports that the target is down', async () => {
    const server = createServer()
    const port = await listening(server)
    await new Promise((resolve) => server.close(resolve))
    const { deliver, rows, has } = await listen(home, {
      args: ['--json', '--forward-to', `http://127.0.0.1:${port}`],
    })
    const reply = await deliver(event)
    const error = `Cannot reach http://127.0.0.1:${port}: connection refused`
    expect([reply.status, await reply.json()]).toEqual([502, { error }])
    await has(1)
    expect(rows()[0]!.forwarded).toEqual({ error })
  })

  it.each([
    ['nothing', () => {}, 504, /did not answer within 0\.2 s/],
    [
      'half an answer',
      (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal'),
      502,
      /broke off/,
    ],
    ['no HTTP', (socket) => socket.end('hello\r\n\r\n'), 502, /Cannot reach/],
    ['an invalid status', (socket) => socket.end('HTTP/1.1 099 No\r\n\r\n'), 502, /./],
  ] satisfies [string, (socket: Socket) => void, number, RegExp][])(
    'reports that the target answers with %s',
    async (_, answer, status, error) => {
      const server = createNetServer((socket) =>
        socket.on('error', () => {}).once('data', () => answer(socket)),
      )
      onTestFinished(() => void server.close())
      const port = await listening(server)
      const forward = createForwarder(new URL(`http://127.0.0.1:${port}`), 200)
      const { forwarded, answer: given } = await forward({}, Buffer.from('{}'))
      expect(given.status).toBe(status)
      expect((forwarded as { error: string }).error).toMatch(error)
    },
  )
})

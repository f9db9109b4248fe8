import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createServer, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { createServer as createTcp, type Socket, type Server as TcpServer } from 'node:net'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import type { OutboundSettings, Resolve } from '../../daemon/integrations/guard.ts'
import { guardedClient } from '../../daemon/integrations/guarded-client.ts'
import type { OutboundRequest } from '../../src/core/outbound.ts'
import { hasOpenssl, listening, testCertificate } from '../cli/network.ts'
import { names, unsafeUrls } from './unsafe-urls.ts'

const closed: OutboundSettings = { allowed: [], ca: undefined }
const loopback: OutboundSettings = { allowed: ['127.0.0.0/8'], ca: undefined }

/** Resolves the known names to these addresses; any other name is ENOTFOUND, and one never answers. */
const resolver =
  (known: Readonly<Record<string, readonly string[]>>): Resolve =>
  (hostname, _, callback) => {
    if (hostname === 'silent.example.com') return
    const found = known[hostname.replace(/\.$/, '')]
    const missing = Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' })
    if (!found) return callback(missing, [])
    callback(
      null,
      found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    )
  }

function clientOf(settings = loopback, resolve?: Resolve) {
  const client = guardedClient(settings, resolve)
  onTestFinished(() => client.close())
  const send = (url: string, more: Partial<OutboundRequest> = {}) =>
    client.send({ method: 'POST', url, headers: {}, body: '{}', milliseconds: 5000, ...more })
  return { ...client, send }
}

const servers: (Server | TcpServer)[] = []
const sockets = new Set<Socket>()
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
  for (const socket of sockets) socket.destroy()
  sockets.clear()
})

async function on<S extends Server | TcpServer>(server: S): Promise<number> {
  servers.push(server)
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => {})))
  return listening(server as Server)
}
/** A receiver with this reply. */
const receiver = async (answer: (reply: ServerResponse) => unknown): Promise<string> =>
  `http://127.0.0.1:${await on(createServer((_, reply) => answer(reply)))}`
/** A receiver that sends just these bytes. */
const raw = async (said: (socket: Socket) => void): Promise<string> =>
  `http://127.0.0.1:${await on(createTcp((socket) => void socket.once('data', () => said(socket))))}`

describe('an address that is not public', () => {
  it(`is never connected to, in ${unsafeUrls.length} spellings`, async () => {
    expect(unsafeUrls.length).toBeGreaterThanOrEqual(150)
    const { send } = clientOf(closed, resolver({ ...names, 'outside.example.com': ['93.184.215.14'] }))
    const attempts: string[] = []
    const count = (made: unknown) =>
      (made as { socket: Socket }).socket.on('connectionAttempt', (address) => attempts.push(address))
    subscribe('net.client.socket', count)
    const passed: string[] = []
    const broken: string[] = []
    for (const url of unsafeUrls) {
      const failure = await send(url, { milliseconds: 1000 }).then(
        () => undefined,
        (error) => error,
      )
      if (failure?.kind === 'blocked') expect(failure.message, url).toMatch(/ is refused: it is /)
      else if (failure?.code === 'ERR_INVALID_URL') broken.push(url)
      else passed.push(`${url}: ${failure?.kind} ${failure?.message}`)
    }
    unsubscribe('net.client.socket', count)
    expect(passed).toEqual([])
    expect(broken, 'what is no URL at all').toEqual(['https://1.1.0x7f000001'])
    expect(attempts).toEqual([])
  })

  it('is not reached through a redirect', async () => {
    let asked = 0
    const inner = await receiver((reply) => {
      asked += 1
      reply.end()
    })
    const outer = await receiver((reply) => reply.writeHead(307, { location: inner }).end())
    expect(await clientOf().send(outer)).toMatchObject({ status: 307, headers: { location: inner } })
    expect(asked).toBe(0)
  })

  it('is not reached through a name that resolves differently a moment later', async () => {
    let asked = 0
    const rebinding: Resolve = (hostname, options, callback) => {
      const address = asked++ === 0 ? '127.0.0.1' : '10.0.0.1'
      return resolver({ 'turning.example.com': [address] })(hostname, options, callback)
    }
    const url = await receiver((reply) => reply.end('hello'))
    const { send } = clientOf(loopback, rebinding)
    const named = url.replace('127.0.0.1', 'turning.example.com')
    const { body } = await send(named)
    expect([asked, String(body)]).toEqual([1, 'hello'])
    for (const socket of sockets) socket.destroy()
    await expect(clientOf(loopback, rebinding).send(named)).rejects.toMatchObject({ kind: 'blocked' })
  })

  it('is not reached through a proxy from the environment', async () => {
    process.env.HTTP_PROXY = process.env.http_proxy = 'http://127.0.0.1:1'
    onTestFinished(() => {
      delete process.env.HTTP_PROXY
      delete process.env.http_proxy
    })
    const url = await receiver((reply) => reply.end('direct'))
    expect(String((await clientOf().send(url)).body)).toBe('direct')
  })
})

describe('a receiver', () => {
  it('gets the request unchanged, and its reply is returned', async () => {
    let got = ''
    const server = createServer((request, reply) => {
      request.on('data', (chunk) => {
        got += chunk
      })
      request.on('end', () => {
        reply
          .writeHead(202, { 'retry-after': '7' })
          .end(`${request.method} ${request.url} ${request.headers['x-a']}`)
      })
    })
    const url = `http://127.0.0.1:${await on(server)}/a/b?c=d#e`
    const reply = await clientOf().send(url, { headers: { 'x-a': '1' }, body: '{"é":1}' })
    expect(reply).toMatchObject({ status: 202, isWhole: true, headers: { 'retry-after': '7' } })
    expect([String(reply.body), got]).toEqual(['POST /a/b?c=d 1', '{"é":1}'])
  })

  it('that sends endlessly is read up to 64 KiB, and disconnected', async () => {
    let left: Promise<unknown> | undefined
    const url = await receiver((reply) => {
      left = new Promise((resolve) => reply.on('close', resolve))
      const more = () => {
        while (!reply.destroyed && reply.write(Buffer.alloc(1 << 16, 'x')));
      }
      reply.on('drain', more)
      more()
    })
    const { body, isWhole, status } = await clientOf().send(url)
    expect({ status, isWhole, length: body.length }).toEqual({ status: 200, isWhole: false, length: 1 << 16 })
    await left
  })

  const failing: [does: string, kind: string, open: () => Promise<string>][] = [
    ['does not answer in time', 'timeout', () => receiver(() => {})],
    ['never ends its reply', 'timeout', () => receiver((reply) => reply.write('a'))],
    ['sends garbage', 'broken', () => raw((socket) => socket.end('garbage\r\n\r\n'))],
    [
      'closes mid-reply',
      'broken',
      () => raw((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc')),
    ],
    ['hangs up', 'broken', () => raw((socket) => socket.destroy())],
    [
      'sends headers that are too large',
      'broken',
      () => raw((socket) => socket.end(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(1 << 16)}\r\n\r\n`)),
    ],
    ['does not listen', 'refused', async () => 'http://127.0.0.1:1'],
    ['has an unknown name', 'dns', async () => 'http://nobody.example.com'],
    ['has a name whose lookup never ends', 'timeout', async () => 'http://silent.example.com'],
    [
      'never completes the TLS handshake',
      'timeout',
      async () => `https://127.0.0.1:${await on(createTcp(() => {}))}`,
    ],
    [
      'keeps sending interim responses',
      'broken',
      () => raw((socket) => void socket.write('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(100))),
    ],
  ]
  it.each(failing)('that %s: %s', async (_, kind, open) => {
    const { send } = clientOf(loopback, resolver({}))
    const failure = await send(await open(), { milliseconds: 300 }).catch((error) => error)
    expect(failure).toMatchObject({ name: 'OutboundFailure', kind })
    expect(failure.message).not.toBe('')
    expect(failure.hint).toMatch(/^\S.+: .+/)
    if (kind === 'timeout') expect(failure.message).toBe('Timeout after 300ms')
  })

  describe.skipIf(!hasOpenssl)('with a certificate', () => {
    const certificate = testCertificate()

    it('is verified by its name, whatever the address', async () => {
      const port = await on(createTlsServer(certificate.pair(), (_, reply) => reply.end('safe')))
      const resolve = resolver({ 'svc.test': ['127.0.0.1'], 'other.test': ['127.0.0.1'] })
      const trusting = clientOf({ ...loopback, ca: certificate.pair().cert.toString() }, resolve)
      expect(String((await trusting.send(`https://svc.test:${port}`)).body)).toBe('safe')
      await expect(trusting.send(`https://other.test:${port}`)).rejects.toMatchObject({ kind: 'tls' })
      await expect(clientOf(loopback, resolve).send(`https://svc.test:${port}`)).rejects.toMatchObject({
        kind: 'tls',
      })
      const plain = `https://127.0.0.1:${await on(createServer((_, reply) => reply.end()))}`
      await expect(trusting.send(plain)).rejects.toMatchObject({ kind: 'tls' })
    })
  })
})

import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { buildWorld } from '../world.ts'

const token = 'a token for metrics'

const start = (env: Record<string, string>) =>
  startService(() => openMigrated('sqlite'), { env: { METRICS_TOKEN: token, ...env } })

async function opened({ url }: TestService): Promise<Socket> {
  const { hostname, port } = new URL(url)
  const socket = createConnection({ host: hostname, port: Number(port) }).on('error', () => {})
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return socket
}

/** Whether a connection is served; a refused one is closed without a reply. */
async function isServed(socket: Socket): Promise<boolean> {
  const answered = once(socket, 'data').then(() => true)
  const closed = once(socket, 'close').then(() => false)
  socket.write('GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n')
  return Promise.race([answered, closed])
}

async function served(service: TestService, count: number): Promise<Socket[]> {
  const sockets: Socket[] = []
  for (let n = 0; n < count; n++) {
    const socket = await opened(service)
    expect([n, await isServed(socket)]).toEqual([n, true])
    sockets.push(socket)
  }
  return sockets
}

/** Over an open connection. */
async function metrics(socket: Socket): Promise<string> {
  let text = ''
  socket.on('data', (piece) => {
    text += String(piece)
  })
  socket.write(`GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${token}\r\n\r\n`)
  await expect.poll(() => text, { timeout: 10_000 }).toContain('process_start_time_seconds')
  await expect
    .poll(() => text, { timeout: 10_000 })
    .toContain('svc_connections_refused_total{reason="whole"}')
  socket.removeAllListeners('data')
  return text
}

it('an address may open MAX_CONNECTIONS_PER_ADDRESS connections, WebSockets included', async () => {
  const service = await start({ MAX_CONNECTIONS_PER_ADDRESS: '40' })
  const { bakery } = (await buildWorld(service)).orgs
  // The client that built the world keeps connections open for a while.
  const sockets: Socket[] = []
  const agent = await RawAgent.connect(service.url, bakery)
  for (let isFull = false; !isFull; ) {
    const socket = await opened(service)
    isFull = !(await isServed(socket))
    if (!isFull) sockets.push(socket)
    expect(sockets.length).toBeLessThan(40)
  }
  expect(await isServed(await opened(service))).toBe(false)
  expect(await metrics(sockets[0]!)).toContain('svc_connections_refused_total{reason="address"} 2')

  agent.socket.terminate()
  await agent.closed
  await expect.poll(async () => isServed(await opened(service)), { timeout: 10_000 }).toBe(true)
})

it('new connections are accepted while every turn of the event loop is busy', async () => {
  const service = await start({})
  let turns = 0
  let isOver = false
  const spin = () => {
    const end = performance.now() + 5
    while (performance.now() < end);
    turns += 1
    if (!isOver) setImmediate(spin)
  }
  const sockets = await Promise.all(Array.from({ length: 300 }, () => opened(service)))
  // All of them are in the queue of the system, and most not yet accepted.
  spin()
  expect(await Promise.all(sockets.map(isServed))).not.toContain(false)
  isOver = true
  expect(turns).toBeLessThan(100)
})

it('behind a trusted proxy only the total of connections is bounded', async () => {
  const env = { MAX_CONNECTIONS_PER_ADDRESS: '3', MAX_CONNECTIONS: '8' }
  const service = await start({ ...env, TRUST_PROXY_HEADERS: 'true' })
  const [first] = await served(service, 8)
  expect(await isServed(await opened(service))).toBe(false)
  const text = await metrics(first!)
  expect(text).toContain('svc_connections 8')
  expect(text).toContain('svc_connections_refused_total{reason="whole"} 1')
  expect(text).toContain('svc_connections_refused_total{reason="address"} 0')
})

it('a client that sends no complete headers is disconnected after REQUEST_HEADER_SECONDS', async () => {
  const service = await start({ REQUEST_HEADER_SECONDS: '1' })
  const [silent, slow] = [await opened(service), await opened(service)]
  silent.resume()
  const slowWrites = setInterval(() => slow.writable && slow.write('x'), 100)
  onTestFinished(() => clearInterval(slowWrites))
  slow.write('GET /health HTTP/1.1\r\nx-slow: ')
  const [answer] = await once(slow, 'data')
  expect(String(answer)).toContain('HTTP/1.1 408')
  await Promise.all([silent, slow].map((socket) => socket.destroyed || once(socket, 'close')))
})

it('a client that pipelines too many requests is disconnected', async () => {
  const service = await start({})
  const next = await opened(service)
  const ask = (lines: string, count: number) => `${lines}\r\nhost: a\r\n\r\n`.repeat(count)
  const answersTo = async (text: string, end: (answers: number) => boolean): Promise<number | 'closed'> => {
    const socket = await opened(service)
    let got = ''
    let closed = false
    socket.on('data', (piece) => {
      got += String(piece)
    })
    socket.once('close', () => {
      closed = true
    })
    const answers = () => got.split('HTTP/1.1 ').length - 1
    socket.write(text)
    await expect.poll(() => closed || end(answers()), { timeout: 10_000 }).toBe(true)
    return closed ? 'closed' : answers()
  }
  const never = () => false
  expect(await answersTo(ask('GET /health/live HTTP/1.1', 16), (answers) => answers === 16)).toBe(16)
  expect(await answersTo(ask('GET /health/live HTTP/1.1', 1500), never)).toBe('closed')
  expect(await answersTo(ask('GET /health/live HTTP/1.1\r\nexpect: much', 1500), never)).toBe('closed')
  expect(await answersTo(ask('GET /nowhere HTTP/1.1', 1500), never)).toBe('closed')
  expect(await metrics(next)).toContain('svc_connections_refused_total{reason="pipelined"} 3')
})

it('HOST=localhost listens on one address, with these limits', async () => {
  const { url } = await start({ HOST: 'localhost', MAX_CONNECTIONS: '1' })
  const { address } = await lookup('localhost')
  const { port } = new URL(url)
  const others = ['127.0.0.1', '::1'].filter((one) => one !== address)
  const open = (host: string) => {
    const socket = createConnection({ host, port: Number(port) }).on('error', () => {})
    onTestFinished(() => void socket.destroy())
    return socket
  }
  const first = open(address)
  await once(first, 'connect')
  // One is refused, the other closed.
  for (const host of [...others, address])
    expect([host, await isServed(open(host)).catch(() => false)]).toEqual([host, false])
  expect(await isServed(first)).toBe(true)
})

import type { IncomingMessage } from 'node:http'
import { get as httpGet } from 'node:http'
import { type RequestOptions, request } from 'node:https'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { putRelease } from '../agents/directory.ts'
import { releaseKey, signedRelease } from '../agents/signed-release.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { ServeProcess, serviceEnv, until } from '../daemon/process.ts'
import { openMigrated, type TestDatabase, temporaryFolder } from '../databases.ts'
import { clientOf, serviceOn } from '../harness.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { freePort } from '../postgres.ts'
import { buildWorld, type World } from '../world.ts'
import {
  canTakeOut,
  configurationOf,
  missing,
  type ProxyName,
  proxies,
  startProxy,
} from './proxy-programs.ts'

/*
 * The configurations of docs/operations/proxy, run by the real programs in front of two processes on one Postgres. The proxy
 * speaks to them from 127.0.0.1, which they trust, and clients to the proxy from 127.0.0.2, which they do not.
 */

const certificate = testCertificate()
const program = 'svc-agent-linux-amd64'
const size = 64 * 1024 * 1024
const clientAddress = '127.0.0.2'

let database: TestDatabase
let world: World
let directory: string
const services: ServeProcess[] = []
const ports = [0, 0] as [number, number]

const startService = async (n: 0 | 1) => {
  const place = { dataDir: await temporaryFolder(), databaseUrl: database.databaseUrl }
  const service = new ServeProcess(place, {
    env: {
      ...serviceEnv,
      PORT: String(ports[n]),
      PUBLIC_URL: 'https://svc.test',
      TRUST_PROXY_HEADERS: 'true',
      TRUSTED_PROXY_CIDRS: '127.0.0.1/32',
      BINARY_SOURCE: 'local',
      AGENT_BINARY_DIR: directory,
      RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: releaseKey.publicKey,
    },
  })
  services[n] = service
  await service.listening(60_000)
}

beforeAll(async () => {
  database = await openMigrated('postgres')
  directory = await temporaryFolder()
  await putRelease(directory, signedRelease('1.0.0', { files: { [program]: Buffer.alloc(size, 7) } }))
  const first = await serviceOn({ dataDir: await temporaryFolder(), databaseUrl: database.databaseUrl })
  world = await buildWorld(first)
  await first.close()
  for (const n of [0, 1] as const) ports[n] = await freePort()
})

afterAll(() => database.close())

describe.skipIf(!hasOpenssl)('a proxy', () => {
  describe.each(proxies)('%s', (name) => {
    describe.skipIf(missing(name) !== undefined)(`(${missing(name) ?? 'of this machine'})`, () =>
      behind(name),
    )
  })
})

function behind(name: ProxyName): void {
  let proxy: Awaited<ReturnType<typeof startProxy>> | undefined
  let https: number
  let http: number

  beforeAll(async () => {
    ;[https, http] = [await freePort(), await freePort()]
    await Promise.all([startService(0), startService(1)])
    const first = clientOf(`http://127.0.0.1:${ports[0]}`, world.tokens.system)
    await first.call(api.agentVersions.sync, {})
    const files = { cert: certificate.file, key: certificate.file.replace('cert.pem', 'key.pem') }
    proxy = await startProxy(name, { https, http, services: ports }, files)
  })
  // Those of the last test have ended with it.
  afterAll(async () => {
    await proxy?.stop()
    await Promise.all(services.map((one) => one.stop()))
  })

  const tls = () => ({ ca: certificate.pair().cert, servername: 'svc.test', localAddress: clientAddress })
  const open = (options: RequestOptions, body?: Buffer | string): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const headers = { host: 'svc.test', ...(options.headers as Record<string, string>) }
      const sent = request({ ...tls(), host: '127.0.0.1', port: https, agent: false, ...options, headers })
      sent.on('response', resolve).on('error', reject)
      sent.end(body)
    })
  const ask = async (
    path: string,
    { body, ...options }: RequestOptions & { body?: Buffer | string } = {},
  ) => {
    const reply = await open({ path, ...options }, body)
    const said = await text(reply)
    return { status: reply.statusCode, headers: reply.headers, text: said }
  }
  const heartbeat = async () => {
    const { agentId, agentToken } = world.orgs.bakery
    const headers = { authorization: `Bearer ${agentToken}`, 'content-type': 'application/json' }
    const body = JSON.stringify({ status: 'ok', agentVersion: '0.1.0' })
    return (await ask(`/api/v1/agents/${agentId}/heartbeat`, { method: 'POST', headers, body })).status
  }

  it('hands on the address of the client, whatever addresses the client claims', async () => {
    const forged = '203.0.113.9'
    const claims = [
      {},
      { 'x-forwarded-for': forged },
      { 'x-forwarded-for': `${forged}, 127.0.0.1` },
      {
        'x-real-ip': forged,
        forwarded: `for=${forged}`,
        'cf-connecting-ip': forged,
        'true-client-ip': forged,
      },
    ]
    for (const headers of claims) {
      const { status, text: said } = await ask('/api/v1/health', { headers })
      expect([status, JSON.parse(said).clientAddress]).toEqual([200, clientAddress])
    }
  })

  it('sends clients without TLS to the other address, and shows nobody the metrics', async () => {
    const reply = await new Promise<IncomingMessage>((resolve, reject) => {
      const options = { host: '127.0.0.1', port: http, path: '/api/v1/health', headers: { host: 'svc.test' } }
      httpGet(options, resolve).on('error', reject)
    })
    reply.resume()
    expect(reply.statusCode).toBe(308)
    expect(reply.headers.location).toMatch(/^https:\/\/svc\.test(:\d+)?\/api\/v1\/health$/)
    const { status, headers } = await ask('/metrics')
    expect([status, headers['x-request-id']]).toEqual([404, undefined])
  })

  it('leads agents to the gateway, and live queries to them', async () => {
    const address = `https://127.0.0.1:${https}`
    const result = { logs: [{ name: 'System', displayName: '', recordCount: 1, maxSizeBytes: 1 }] }
    const agent = await RawAgent.connect(address, world.orgs.bakery, () => ({ result }), {
      ...tls(),
      headers: { host: 'svc.test' },
    })
    const headers = { authorization: `Bearer ${world.tokens.bakery}` }
    const { deviceId } = world.orgs.bakery
    const path = api.liveLogs.list.path.replace(':deviceId', deviceId)
    const { status, text: said } = await ask(`/api/v1${path}`, { headers })
    expect([status, JSON.parse(said).data[0]?.name]).toEqual([200, 'System'])
    agent.socket.close()
    await agent.closed
  })

  it('lets the largest bodies through, and the service refuses larger ones', async () => {
    const { agentId, agentToken } = world.orgs.bakery
    const headers = { authorization: `Bearer ${agentToken}`, 'content-type': 'application/json' }
    const submit = (bytes: number) => {
      const frame = JSON.stringify({ logs: [], padding: '' })
      const body = JSON.stringify({ logs: [], padding: 'x'.repeat(bytes - frame.length) })
      return ask(`/api/v1/agents/${agentId}/logs`, { method: 'POST', headers, body })
    }
    expect(await submit(10 * 1024 * 1024)).toMatchObject({ status: 201, text: '{"received":0}' })
    // The service answers 413 and closes its connection, which a proxy may notice first.
    const larger = await submit(10 * 1024 * 1024 + 1).catch(() => ({ status: 502 }))
    expect([413, 502]).toContain(larger.status)
  })

  it('keeps nothing back of a download, and makes the service wait for a slow client', async () => {
    const done = () => services.some(({ stderr }) => stderr.includes('"route":"agentDownloads.agent"'))
    for (const one of services) one.stderr = ''
    const reply = await open({ path: '/api/v1/agents/download/linux/amd64' })
    await new Promise((resolve) => reply.once('readable', resolve))
    // A proxy that stores replies would have all of it long before.
    for (let n = 0; n < 40; n++) expect(await heartbeat()).toBe(200)
    expect(done()).toBe(false)
    let received = 0
    for await (const chunk of reply) received += (chunk as Buffer).length
    expect(received).toBe(size)
    await until(done, 30_000)
  })

  it.runIf(canTakeOut(name))(
    'loses no request while one process after the other is replaced',
    { timeout: 180_000 },
    async () => {
      const statuses: (number | undefined | string)[] = []
      let isEnding = false
      const clients = Array.from({ length: 4 }, async () => {
        while (!isEnding && statuses.length < 20_000)
          statuses.push(await heartbeat().catch((error: Error) => error.message))
      })
      for (const n of [0, 1] as const) {
        const count = statuses.length
        await until(() => statuses.length > count + 20, 30_000)
        await proxy!.takeOut(n)
        expect(await services[n]!.stop()).toEqual({ code: 0, signal: null })
        await startService(n)
        await until(async () => (await fetch(`http://127.0.0.1:${ports[n]}/health/ready`)).ok, 30_000)
        await proxy!.putBack()
        await until(() => services[n]!.stderr.includes('"route":"agents.heartbeat"'), 30_000)
      }
      isEnding = true
      await Promise.all(clients)
      expect(statuses.filter((status) => status !== 200)).toEqual([])
    },
  )
}

/** The times in seconds that end a request or a connection in which nothing is said. */
const silence: Record<ProxyName, RegExp> = {
  nginx: /proxy_(?:read|send)_timeout (\d+)s/g,
  caddy: /response_header_timeout (\d+)s/g,
  haproxy: /timeout (?:server|client|tunnel) +(\d+)s/g,
}
const fileOf: Record<ProxyName, string> = { nginx: 'nginx.conf', caddy: 'Caddyfile', haproxy: 'haproxy.cfg' }

it.each(proxies)('%s waits longer than the service takes for an answer or closes a silent agent', (name) => {
  const found = [...configurationOf(fileOf[name]).matchAll(silence[name])].map(([, seconds]) =>
    Number(seconds),
  )
  expect(found.length).toBeGreaterThan(0)
  // The time limit of live queries by default, that of a complete request, and two pings of the gateway.
  for (const seconds of found) expect(seconds).toBeGreaterThan(Math.max(30, 60, 2 * 30))
})

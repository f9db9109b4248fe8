import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase, temporaryFolder } from '../databases.ts'
import { adminEmail, adminPassword, clientOf, serviceOn } from '../harness.ts'
import { failedStart, ServeProcess, serviceEnv, until } from './process.ts'
import { send } from './request.ts'

const login = { body: { email: adminEmail, password: adminPassword } }

/** A request whose body never comes. */
async function unfinishedRequest(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port) })
  socket.on('error', () => {})
  const head = [
    'POST /api/v1/auth/login HTTP/1.1',
    `Host: ${hostname}`,
    'Content-Type: application/json',
    'Content-Length: 99',
    'Expect: 100-continue',
  ]
  socket.write(`${head.join('\r\n')}\r\n\r\n`)
  const [answer] = await Promise.race([once(socket, 'data'), once(socket, 'close').then(() => ['closed'])])
  expect(String(answer)).toContain('100 Continue')
  await new Promise<void>((resolve) => socket.write('{', () => resolve()))
  return socket
}

function refuses(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port) })
    socket.on('connect', () => resolve(false))
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code === 'ECONNREFUSED'))
    socket.on('close', () => socket.destroy())
    setTimeout(() => socket.destroy(), 500).unref()
  })
}

/** Signaled to end while a request is unfinished; the last test checks its end. */
let stuck: { service: ServeProcess; endedAfter: Promise<number> }

beforeAll(async () => {
  const service = new ServeProcess({ dataDir: await temporaryFolder() })
  await unfinishedRequest(await service.listening())
  const signalled = performance.now()
  service.kill('SIGTERM')
  stuck = { service, endedAfter: service.ended.then(() => performance.now() - signalled) }
})
afterAll(() => stuck.service.kill('SIGKILL'))

describe('the output of svc serve', () => {
  it('is one line on stdout; everything else goes to stderr', async () => {
    const service = new ServeProcess({ dataDir: await temporaryFolder() })
    const url = await service.listening()
    await send(url, 'GET', '/api/v1/health')
    await send(url, 'GET', '/nowhere')
    expect(await service.stop()).toEqual({ code: 0, signal: null })
    expect(service.stdout).toBe(`listening on ${url}\n`)
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
    const logged = service.stderr.split('\n').filter((line) => line.startsWith('{'))
    expect(logged.map((line) => JSON.parse(line).route)).toContain('service.health')
    expect(service.stderr).toContain(`svc login --email ${adminEmail} --url ${url}\n`)
  })

  it('names PUBLIC_URL to those who sign in', async () => {
    const env = { ...serviceEnv, PUBLIC_URL: 'https://svc.example.com' }
    const service = new ServeProcess({ dataDir: await temporaryFolder() }, { env })
    const url = await service.listening()
    await service.stop()
    expect(service.stderr).toContain(`svc login --email ${adminEmail} --url https://svc.example.com\n`)
    expect(service.stdout).toBe(`listening on ${url}\n`)
  })

  it('is one JSON object with --json', async () => {
    const service = new ServeProcess({ dataDir: await temporaryFolder() }, { args: ['--json'] })
    const url = await service.listening()
    await service.stop()
    expect(service.stdout).toBe(`{"event":"listening","url":"${url}"}\n`)
  })

  it('reflects flags before environment variables', async () => {
    const [unused, dataDir] = [await temporaryFolder(), await temporaryFolder()]
    const args = ['--data-dir', dataDir, '--host', '127.0.0.2', '--port', '0']
    const service = new ServeProcess(
      { dataDir: unused },
      { args, env: { ...serviceEnv, PORT: '1', HOST: '127.0.0.3' } },
    )
    expect(new URL(await service.listening()).hostname).toBe('127.0.0.2')
    await until(() => service.stderr.includes(`Data: ${dataDir}\n`))
  })
})

it('a port in use is one clear line and exit 1', async () => {
  const taken = createServer()
  const port = await new Promise<number>((resolve) => {
    taken.listen(0, '127.0.0.1', () => resolve((taken.address() as { port: number }).port))
  })
  const start = await failedStart({}, { args: ['--port', String(port)] })
  taken.close()
  expect(start.code).toBe(1)
  expect(start.stdout).toBe('')
  expect(start.stderr).toBe(
    `svc serve: 127.0.0.1:${port} is in use. Choose another port: svc serve --port ${port + 1}, or PORT=${port + 1}\n`,
  )
})

onEveryDatabase((_, open) => {
  it('SIGTERM finishes requests in progress, accepts no new ones, and exits with 0', async () => {
    const database = await open()
    const service = new ServeProcess(database)
    const url = await service.listening()
    const clients = Array.from({ length: 16 })
    await Promise.all(clients.map(() => send(url, 'GET', '/health/live')))

    let finished = 0
    let lastConnection: string | undefined
    const replies = Promise.all(
      clients.map(async () => {
        const { status, headers } = await send(url, 'POST', '/api/v1/auth/login', login)
        finished += 1
        lastConnection = headers.connection
        return status
      }),
    )
    await until(() => finished > 0)
    const signalled = performance.now()
    service.kill('SIGTERM')
    expect(finished).toBeLessThan(16)
    await until(() => refuses(url))
    expect(service.running, 'still at work when it takes nothing new').toBe(true)
    expect(await replies).toEqual(clients.map(() => 200))
    expect(await service.ended).toEqual({ code: 0, signal: null })
    expect(performance.now() - signalled, 'no wait for idle connections').toBeLessThan(8000)
    expect(lastConnection).toBe('close')
    expect(await database.storage.read.selectFrom('sessions').select('id').execute()).toHaveLength(16)
  })

  it('SIGUSR1 does not open a debugger', async () => {
    const service = new ServeProcess(await open())
    const url = await service.listening()
    service.kill('SIGUSR1')
    await new Promise((resolve) => setTimeout(resolve, 500))
    expect(await send(url, 'GET', '/health/live')).toMatchObject({ status: 200 })
    expect(service.stderr).not.toContain('Debugger')
  })

  it('a change made just before SIGTERM is there after the next start', async () => {
    const database = await open()
    const first = new ServeProcess(database)
    const { tokens } = await clientOf(await first.listening()).call(api.auth.login, login)
    await first.stop()
    const second = await serviceOn(database)
    const { data } = await second.client(tokens!.accessToken).call(api.auditLogs.list)
    expect(data.map(({ action }) => action)).toEqual(['user.login'])
  })
})

describe.skipIf(process.platform !== 'linux')('a log on a full disk', () => {
  it('neither stops the service nor prevents its end', async () => {
    const stderr = openSync('/dev/full', 'w')
    const service = new ServeProcess({ dataDir: await temporaryFolder() }, { stderr })
    closeSync(stderr)
    const url = await service.listening()
    // More than is buffered before it is written.
    for (let i = 0; i < 100; i += 1) await send(url, 'GET', '/nowhere')
    await new Promise((resolve) => setTimeout(resolve, 1000))
    expect(await send(url, 'GET', '/health/ready')).toMatchObject({ status: 200 })
    const signalled = performance.now()
    expect(await service.stop()).toEqual({ code: 0, signal: null })
    expect(performance.now() - signalled).toBeLessThan(5000)
  })
})

describe('a request that never ends', () => {
  it('does not prevent a second SIGTERM from ending the process at once', async () => {
    const other = new ServeProcess({ dataDir: await temporaryFolder() })
    const url = await other.listening()
    await unfinishedRequest(url)
    other.kill('SIGTERM')
    await until(() => refuses(url))
    expect(other.running).toBe(true)
    const again = performance.now()
    other.kill('SIGTERM')
    expect(await other.ended).toEqual({ code: 143, signal: null })
    expect(performance.now() - again).toBeLessThan(1000)
  })

  it('delays the end of the process by at most 10 s', async () => {
    expect(await stuck.service.ended).toEqual({ code: 0, signal: null })
    expect(await stuck.endedAfter).toBeGreaterThan(7000)
    expect(await stuck.endedAfter).toBeLessThan(10_000)
  })
})

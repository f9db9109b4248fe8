import { spawn } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { until } from '../daemon/process.ts'
import { openMigrated } from '../databases.ts'
import { adminEmail, adminPassword, serviceOn, type TestService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { FakeService, uuid } from './fake-service.ts'
import { follow } from './follow-process.ts'
import { binary, failureOf, Home } from './run.ts'

async function start() {
  const home = new Home()
  onTestFinished(() => home.remove())
  const database = await openMigrated('sqlite')
  const env = { ENABLE_2FA: 'false' }
  let service: TestService = await serviceOn(database, { env })
  onTestFinished(() => service.close())
  const world = await buildWorld(service)
  const { bakery } = world.orgs
  const params = { id: bakery.agentId }
  const timestamp = new Date(Date.now() - 60_000).toISOString()
  const signed = { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery }
  return {
    home,
    world,
    bakery,
    signed,
    url: service.url,
    client: (token: string) => service.client(token),
    submitDiagnostics: async (...messages: string[]) => {
      const logs = messages.map((message) => ({
        timestamp,
        message,
        component: 'ws',
        level: message.startsWith('!') ? ('warn' as const) : ('info' as const),
      }))
      await service.client(bakery.agentToken).call(api.diagnosticLogs.submit, { params, body: { logs } })
    },
    submitEvents: async (...messages: string[]) => {
      const events = messages.map((message) => ({
        timestamp,
        message,
        category: 'system' as const,
        source: 'kernel',
        level: message.startsWith('!') ? ('warning' as const) : ('info' as const),
      }))
      await service.client(bakery.agentToken).call(api.eventLogs.submit, { params, body: { events } })
    },
    /** Another machine of the bakery, with what submits its logs; `at` is the time of its clock. */
    enroll: async (hostname: string) => {
      const { id: orgId, siteId } = bakery
      const body = { orgId, siteId, name: hostname, maxUsage: 1 }
      const key = await service.client(world.tokens.bakery).call(api.enrollmentKeys.create, { body })
      const { agentId: id, authToken } = await service.client().call(api.agents.enroll, {
        body: {
          enrollmentKey: key.key,
          hostname,
          osType: 'linux',
          osVersion: 'Debian 12',
          architecture: 'x64',
          agentVersion: '0.1.0',
        },
      })
      return async (message: string, at = timestamp) => {
        const logs = [{ timestamp: at, message, component: 'ws', level: 'info' as const }]
        await service.client(authToken).call(api.diagnosticLogs.submit, { params: { id }, body: { logs } })
      }
    },
    logs: (...args: string[]) => home.run(['logs', 'tail', ...args], { env: signed }),
    restart: async (meanwhile: () => Promise<unknown>) => {
      const { port } = new URL(service.url)
      await service.close()
      await meanwhile()
      service = await serviceOn(database, { env: { ...env, PORT: port } })
    },
  }
}

const messages = (rows: Record<string, unknown>[]) => rows.map(({ message }) => message)
const linesIn = (stdout: string) => stdout.split('\n').filter(Boolean)
const cursorIn = (text: string) => /--after (\S+)/.exec(text)?.[1] ?? ''

describe('svc logs tail', () => {
  it('merges both kinds in order of arrival, and can be filtered', async () => {
    const { submitDiagnostics, submitEvents, logs, bakery } = await start()
    await submitDiagnostics('a', '!b')
    await submitEvents('c')
    await submitDiagnostics('d')
    await submitEvents('!e', 'f')
    const seen = async (...args: string[]) => {
      const { code, stdout, stderr } = await logs('bakery-pc', '--no-header', '--columns', 'message', ...args)
      expect([code, stderr.replace(/^To continue.*\n/, '')]).toEqual([0, ''])
      return linesIn(stdout)
    }
    expect(await seen()).toEqual(['a', '!b', 'c', 'd', '!e', 'f'])
    expect(await seen('-n', '2')).toEqual(['!e', 'f'])
    expect(await seen('-n', '0')).toEqual([])
    expect(await seen('--level', 'warn')).toEqual(['!b', '!e'])
    expect(await seen('--kind', 'events')).toEqual(['c', '!e', 'f'])
    expect(await seen('--component', 'ws')).toEqual(['a', '!b', 'd'])
    expect(await seen('--source', 'kernel', '--since', '10m')).toEqual(['c', '!e', 'f'])
    expect(await seen('--since', '1s')).toEqual([])
    expect(await seen('--grep', 'E')).toEqual(['!e'])
    const plain = await logs(bakery.deviceId, '-n', '1', '--columns', 'level,source,message')
    expect(plain.stdout).toBe('LEVEL  SOURCE  MESSAGE\ninfo   kernel  f\n')
    expect(linesIn((await logs('bakery-pc', '--csv', '--columns', 'kind,device', '-n', '2')).stdout)).toEqual(
      ['kind,device', 'events,bakery-pc', 'events,bakery-pc'],
    )
  })

  it('continues from a given or stored cursor', async () => {
    const { home, submitDiagnostics, submitEvents, logs } = await start()
    await submitDiagnostics('a')
    const first = await logs('bakery-pc', '--json')
    expect(messages(linesIn(first.stdout).map((line) => JSON.parse(line)))).toEqual(['a'])
    await submitEvents('b')
    const cursor = cursorIn(first.stderr)
    const second = await logs('bakery-pc', '--json', '--after', cursor)
    expect(linesIn(second.stdout).map((line) => JSON.parse(line))).toMatchObject([
      { message: 'b', kind: 'events', device: 'bakery-pc', source: 'kernel', seq: 2 },
    ])
    const file = `${home.path}/place`
    for (const [words, expected] of [
      [
        ['c', 'd'],
        ['a', 'b', 'c', 'd'],
      ],
      [[], []],
      [['e'], ['e']],
    ] as const) {
      await submitDiagnostics(...words)
      const { stdout, stderr } = await logs('bakery-pc', '--json', '--cursor-file', file)
      expect(messages(linesIn(stdout).map((line) => JSON.parse(line)))).toEqual(expected)
      expect(stderr).toBe('')
    }
    expect(home.mode('place')).toBe('600')
  })

  it('reports invalid arguments', async () => {
    const { logs } = await start()
    for (const args of [
      ['--level', 'loud'],
      ['--after', 'nonsense'],
      ['--kind', 'events', '--component', 'ws'],
      ['--kind', 'diagnostic', '--level', 'critical'],
      ['-o', 'yaml'],
    ]) {
      expect(await logs('bakery-pc', ...args), args.join(' ')).toMatchObject({ code: 2, stdout: '' })
    }
    const nobody = await logs('nobody-pc', '--json')
    expect([nobody.code, failureOf(nobody).code]).toEqual([3, 'not_found'])
  })

  it('-f prints each entry once, in order, across restarts of the service and of itself', async () => {
    const { home, submitDiagnostics, submitEvents, restart, signed } = await start()
    const args = ['logs', 'tail', '-f', 'bakery-pc', '--json', '--cursor-file', `${home.path}/place`]
    await submitDiagnostics('1')
    const first = follow(home, args, signed)
    await first.has(1)
    await Promise.all([submitEvents('2', '3'), submitDiagnostics('4', '5', '6')])
    await first.has(6)
    await restart(() => until(() => first.said.stderr.includes('trying again'), 15_000))
    await submitDiagnostics('7')
    await first.has(7)
    expect(first.said.stderr).toContain('The service answers again')
    expect(await first.end()).toBe(130)
    await submitEvents('8')
    const second = follow(home, args, signed)
    await second.has(1)
    await submitDiagnostics('9')
    await second.has(2)
    expect(await second.end('SIGTERM')).toBe(130)
    const all = [...first.rows(), ...second.rows()]
    expect(messages(all).toSorted()).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9'])
    expect(all.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9])
  })
})

describe('svc logs tail of an organization', () => {
  const longAgo = '2001-01-01T00:00:00.000Z'

  it('merges all devices by arrival, each with its hostname, and can be filtered', async () => {
    const { submitDiagnostics, submitEvents, enroll, logs, bakery } = await start()
    const till = await enroll('till-3')
    await submitDiagnostics('a')
    await till('b', longAgo)
    await submitEvents('!c')
    const seen = async (...args: string[]) => {
      const { code, stdout } = await logs('--no-header', '--columns', 'device,message', ...args)
      expect(code).toBe(0)
      return linesIn(stdout).map((line) => line.replace(/ +/, ' '))
    }
    const all = ['bakery-pc a', 'till-3 b', 'bakery-pc !c']
    expect(await seen()).toEqual(all)
    expect(await seen('--org', bakery.id)).toEqual(all)
    expect(await seen('-n', '1')).toEqual(['bakery-pc !c'])
    expect(await seen('-n', '0')).toEqual([])
    expect(await seen('--level', 'warn')).toEqual(['bakery-pc !c'])
    expect(await seen('--kind', 'events')).toEqual(['bakery-pc !c'])
    expect(await seen('--grep', 'B')).toEqual(['till-3 b'])
    expect(await seen('--since', '10m')).toEqual(['bakery-pc a', 'bakery-pc !c'])
    expect(await seen('--until', '2001-01-02')).toEqual(['till-3 b'])
    for (const args of [
      ['--org', 'nobody'],
      ['--level', 'loud'],
      ['--kind', 'events', '--component', 'ws'],
      ['--since', 'soon'],
      ['--since', '2001-99-99'],
    ]) {
      const { code, stdout, stderr } = await logs(...args)
      expect([code === 2 || code === 3, stdout, stderr], args.join(' ')).toEqual([
        true,
        '',
        expect.anything(),
      ])
    }
  })

  it('-f prints each entry once, also of a machine that comes later or whose clock is behind, over restarts', async () => {
    const { home, bakery, submitDiagnostics, enroll, restart, signed } = await start()
    const args = [
      'logs',
      'tail',
      '-f',
      '--org',
      bakery.id,
      '-o',
      'ndjson',
      '--cursor-file',
      `${home.path}/place`,
    ]
    const till = await enroll('till-3')
    await submitDiagnostics('1')
    const first = follow(home, args, signed)
    await first.has(1)
    await till('2', longAgo)
    await first.has(2)
    const back = await enroll('back-office')
    await Promise.all([back('3', longAgo), till('4'), submitDiagnostics('5', '6')])
    await first.has(6)
    await restart(() => until(() => first.said.stderr.includes('trying again'), 15_000))
    await back('7')
    await first.has(7)
    expect(await first.end()).toBe(130)
    await till('8', longAgo)
    const second = follow(home, args, signed)
    await second.has(1)
    await submitDiagnostics('9')
    await second.has(2)
    expect(await second.end('SIGTERM')).toBe(130)
    const all = [...first.rows(), ...second.rows()]
    expect(messages(all).toSorted()).toEqual(['1', '2', '3', '4', '5', '6', '7', '8', '9'])
    for (const device of ['bakery-pc', 'till-3', 'back-office']) {
      const seqs = all.filter((row) => row.device === device).map(({ seq }) => seq as number)
      expect(seqs).toEqual(seqs.map((_, n) => n + 1))
    }
  })

  it('reads on without waiting while there is more, and shows a busy device beside the others', async () => {
    const { submitDiagnostics, enroll, logs } = await start()
    const till = await enroll('till-3')
    for (let n = 0; n < 3; n += 1)
      await submitDiagnostics(...Array.from({ length: 400 }, (_, at) => `${n * 400 + at}`))
    await till('quiet')
    const { code, stdout } = await logs('--since', '1h', '-o', 'ndjson')
    expect(code).toBe(0)
    const rows = linesIn(stdout).map((line) => JSON.parse(line))
    expect(rows).toHaveLength(1201)
    const busy = rows.filter(({ device }) => device === 'bakery-pc').map(({ message }) => message)
    expect(busy).toEqual(Array.from({ length: 1200 }, (_, n) => `${n}`))
  })

  it('says how to continue where its cursor is too long for a command line', async () => {
    const { submitDiagnostics, logs } = await start()
    await submitDiagnostics('1')
    expect(cursorIn((await logs('-n', '0')).stderr)).not.toBe('')
    const many = Array.from({ length: 120 }, (_, n) => [
      `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`,
      1,
    ])
    const long = Buffer.from(JSON.stringify({ logs: Object.fromEntries(many) })).toString('base64url')
    const { stdout, stderr } = await logs('--after', long, '-o', 'ndjson')
    expect(messages(linesIn(stdout).map((line) => JSON.parse(line)))).toEqual(['1'])
    expect(stderr).toMatch(/^To continue another time .* --cursor-file FILE/)
  })
})

describe('svc audit tail', () => {
  const newSite = (name: string, orgId: string) => ({ body: { orgId, name } })

  it('shows the newest entries, then each new one once, even when the session is refreshed', async () => {
    const { home, url, client, bakery, world } = await start()
    const login = await client('').call(api.auth.login, {
      body: { email: adminEmail, password: adminPassword },
    })
    const tokens = login.tokens!
    // The session is refreshed half a minute before it expires.
    home.signIn(url, { ...tokens, url, expiresAt: Date.now() + 33_000 })
    const admin = client(world.tokens.bakery)
    await admin.call(api.sites.create, newSite('one', bakery.id))
    const args = ['audit', 'tail', '-f', '--json', '--org', bakery.id, '--action', 'site.create', '-n', '1']
    const tail = follow(home, args)
    await tail.has(1)
    const renewed = () =>
      home.json<{ accessToken: string }>('config/sessions/test.json').accessToken !== tokens.accessToken
    await admin.call(api.sites.create, newSite('two', bakery.id))
    await tail.has(2)
    await until(renewed, 20_000)
    await admin.call(api.sites.create, newSite('three', bakery.id))
    await tail.has(3)
    expect(await tail.end()).toBe(130)
    const names = tail.rows().map(({ resource }) => (resource as { name: string }).name)
    expect(names).toEqual(['one', 'two', 'three'])
    await admin.call(api.sites.create, newSite('four', bakery.id))
    const rest = await home.run([
      'audit',
      'tail',
      '--org',
      bakery.id,
      '--action',
      'site.create',
      '--no-header',
      '--columns',
      'resource.name',
      '--after',
      cursorIn(tail.said.stderr),
    ])
    expect(linesIn(rest.stdout)).toEqual(['four'])
  })

  it('follows every readable chain, each in its own order, and adds few entries itself', async () => {
    const { home, signed, client, world } = await start()
    const { bakery, deli } = world.orgs as Record<string, { id: string }>
    const orgs = [bakery!, deli ?? world.orgs.garage]
    const file = `${home.path}/place`
    const args = ['audit', 'tail', '--json', '--cursor-file', file, '--action', 'site.create', '-n', '0']
    const env = { ...signed, SVC_TOKEN: world.tokens.system }
    const tail = () => home.run(args, { env })
    expect((await tail()).stdout).toBe('')
    const system = client(world.tokens.system)
    for (const n of [1, 2, 3]) {
      for (const { id } of orgs) await system.call(api.sites.create, newSite(`site ${n}`, id))
    }
    const rows = linesIn((await tail()).stdout).map((line) => JSON.parse(line))
    expect(rows).toHaveLength(6)
    for (const { id } of orgs) {
      const own = rows.filter(({ orgId }) => orgId === id)
      expect(own.map(({ resource }) => resource.name)).toEqual(['site 1', 'site 2', 'site 3'])
    }
    expect((await tail()).stdout).toBe('')
  })
})

describe('Ctrl-C while a row is being printed', () => {
  it('waits for it, to store its cursor; a second one does not', async () => {
    const long = 'x'.repeat(400_000)
    const [stamp, id] = ['2026-01-31T12:00:00.000Z', uuid(5)]
    const row = { seq: 1, createdAt: stamp, timestamp: stamp, level: 'info', component: 'ws', message: long }
    const service = await new FakeService({
      [`GET /devices/${id}/diagnostic-logs`]: {
        body: { data: [row], head: 1, pagination: { nextCursor: null } },
      },
    }).start()
    onTestFinished(() => service.stop())
    const home = new Home({ SVC_URL: service.url, SVC_TOKEN: 'token' })
    onTestFinished(() => home.remove())
    const args = ['logs', 'tail', '-f', id, '--kind', 'diagnostic', '-o', 'ndjson', '--cursor-file', 'cursor']
    const begin = async () => {
      const child = spawn(process.execPath, [binary, ...args], {
        env: home.env,
        cwd: home.path,
        stdio: 'pipe',
      })
      onTestFinished(() => void child.kill('SIGKILL'))
      const ended = new Promise<number | null>((resolve) => child.on('exit', (code) => resolve(code)))
      // A reader that takes the beginning alone: the rest does not fit into the pipe.
      await new Promise((resolve) => child.stdout.once('readable', resolve))
      child.stderr.resume()
      child.kill('SIGINT')
      return { child, ended }
    }
    const patient = await begin()
    patient.child.stdout.resume()
    expect([await patient.ended, existsSync(join(home.path, 'cursor'))]).toEqual([130, true])
    rmSync(join(home.path, 'cursor'))
    const hasty = await begin()
    const isOver = await Promise.race([hasty.ended.then(() => true), sleep(500).then(() => false)])
    expect(isOver).toBe(false)
    hasty.child.kill('SIGINT')
    expect([await hasty.ended, existsSync(join(home.path, 'cursor'))]).toEqual([130, false])
  })
})

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { binary, failureOf, Home } from '../cli/run.ts'
import { until } from '../daemon/process.ts'
import { openMigrated } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'

/* The whole way: svc logs live … → the service → svc agent run → the logs of this very machine. */

const home = new Home()
let service: TestService
let world: World
let agent: ChildProcess
let out = ''
let name: string

beforeAll(async () => {
  service = await serviceOn(await openMigrated('sqlite'))
  world = await buildWorld(service)
  const { key } = await service.client(world.tokens.system).call(api.enrollmentKeys.create, {
    body: { orgId: world.orgs.bakery.id, name: 'this machine' },
  })
  const state = join(home.path, 'agent')
  mkdirSync(state, { mode: 0o700 })
  agent = spawn(
    process.execPath,
    [binary, 'agent', 'run', '--json', '--state-dir', state, '--url', service.url],
    { env: { ...home.env, SVC_ENROLLMENT_KEY: key } },
  )
  agent.stdout!.on('data', (chunk) => {
    out += chunk
  })
  await until(() => out.includes('"listening"'), 60_000)
  name = JSON.parse(out.split('\n')[0]!).deviceId
})
afterAll(async () => {
  agent.kill('SIGKILL')
  await service.close()
  home.remove()
})

const svc = (...args: string[]) =>
  home.run(['logs', ...args], { env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery } })

/** On Debian: the journal, or what was installed. */
const longest = (logs: { name: string }[]): string =>
  logs.find(({ name }) => name === 'System' || name === 'dpkg.log')!.name

describe('svc logs live', () => {
  it('lists, shows, queries and gets the logs of this machine', async () => {
    const list = await svc('live', 'list', name, '--json')
    expect(list.code).toBe(0)
    const logs = JSON.parse(list.stdout).data as { name: string }[]
    expect(logs.length).toBeGreaterThan(0)
    const log = longest(logs)
    const shown = await svc('live', 'show', name, log.toUpperCase(), '--json')
    expect(JSON.parse(shown.stdout)).toMatchObject({ name: log })
    const query = await svc('live', 'query', name, log, '--limit', '3', '--json')
    expect(query.code).toBe(0)
    const { data, pagination } = JSON.parse(query.stdout)
    expect(data).toHaveLength(3)
    expect(pagination.total).toBeGreaterThan(3)
    const record = await svc('live', 'record', name, log, String(data[1].recordId), '--json')
    expect(JSON.parse(record.stdout)).toEqual(data[1])
    const none = await svc(
      'live',
      'query',
      name,
      log,
      '--since',
      '2001-01-01',
      '--until',
      '2001-01-02',
      '--json',
    )
    expect(JSON.parse(none.stdout).data).toEqual([])
    const table = await svc('live', 'query', name, log, '--limit', '1')
    expect(table.stdout).toMatch(/^RECORD ID +TIME CREATED +LEVEL +SOURCE +MESSAGE\n\d+ /)
  })

  it('reads several pages', async () => {
    const { data } = JSON.parse((await svc('live', 'list', name, '--json')).stdout)
    const log = longest(data)
    const walked = await svc('live', 'query', name, log, '--limit', '150', '--json')
    const ids = JSON.parse(walked.stdout).data.map(({ recordId }: { recordId: number }) => recordId)
    expect(new Set(ids).size).toBe(150)
  })

  it('names errors, and what to do', async () => {
    const absent = await svc('live', 'show', name, 'Nothing', '--json')
    expect([absent.code, failureOf(absent).message]).toEqual([3, 'Event log not found'])
    expect((await svc('live', 'query', name, 'System', '--level', 'loud')).code).toBe(2)
    expect((await svc('live', 'record', name, 'System', 'seven')).code).toBe(2)
    const apart = await svc('live', 'list', 'bakery-pc')
    expect(apart).toMatchObject({ code: 6, stdout: '' })
    expect(apart.stderr).toContain('not currently reachable')
    const lastSeen = new Date(Date.now() - 3 * 3600_000).toISOString()
    await service.storage.write((tx) =>
      tx
        .updateTable('devices')
        .set({ status: 'offline', last_seen_at: lastSeen })
        .where('id', '=', world.orgs.bakery.deviceId)
        .execute(),
    )
    const offline = await svc('live', 'list', 'bakery-pc')
    expect(offline.code).toBe(6)
    expect(offline.stderr).toContain('Device is offline')
    expect(offline.stderr).toContain('last seen 3h ago: svc devices show DEVICE')
  })
})

it('svc logs level raises the log level of an agent for a while', async () => {
  const { code, stdout } = await svc('level', name, 'debug', '--for', '30m')
  expect(code).toBe(0)
  expect(stdout).toMatch(/^Its agent sends debug and worse until 20\S+Z\n$/)
  expect((await svc('level', name, 'debug', '--for', 'ever')).code).toBe(2)
  expect((await svc('level', name, 'debug', '--for', '9d')).code).toBe(2)
})

it('an agent that is signaled to end ends at once, and the service notices', async () => {
  agent.kill('SIGINT')
  const began = performance.now()
  await once(agent, 'close')
  expect(performance.now() - began).toBeLessThan(5000)
  expect(out).toContain('"stopped"')
  await until(async () => (await svc('live', 'list', name)).code === 6)
})

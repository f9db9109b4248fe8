import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { parseTime } from '../../src/cli/parse-time.ts'
import { openMigrated } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
let service: TestService
let world: World
const ago = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString()

beforeAll(async () => {
  service = await serviceOn(await openMigrated('sqlite'))
  world = await buildWorld(service)
  const { agentId: id, agentToken } = world.orgs.bakery
  const agent = service.client(agentToken)
  const logs = [
    { timestamp: ago(5), level: 'warn' as const, component: 'ws', message: 'Timeout' },
    { timestamp: ago(90), level: 'error' as const, component: 'ws', message: 'closed' },
  ]
  await agent.call(api.diagnosticLogs.submit, { params: { id }, body: { logs } })
  const more = Array.from({ length: 150 }, () => ({ ...logs[1]!, level: 'debug' as const, message: 'beat' }))
  await agent.call(api.diagnosticLogs.submit, { params: { id }, body: { logs: more } })
  const event = { level: 'error' as const, category: 'hardware' as const, source: 'kernel', message: 'I/O' }
  await agent.call(api.eventLogs.submit, {
    params: { id },
    body: {
      events: [
        { ...event, timestamp: ago(5) },
        { ...event, timestamp: ago(90), source: 'disk' },
      ],
    },
  })
})
afterAll(async () => {
  await service.close()
  home.remove()
})

const svc = (...args: string[]) =>
  home.run(['logs', ...args], { env: { SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery } })
const messages = async (...args: string[]) => {
  const { code, stdout } = await svc(...args, '--no-header', '--columns', 'message')
  expect(code).toBe(0)
  return stdout.split('\n').filter(Boolean)
}

describe('svc logs', () => {
  it('shows the log of an agent by hostname, level, age and text', async () => {
    const ofAgent = (...args: string[]) => messages('diagnostic', 'bakery-pc', ...args)
    expect(await ofAgent('--level', 'warn,error')).toEqual(['Timeout', 'closed'])
    expect(await ofAgent('--since', '1h')).toEqual(['Timeout'])
    expect(await ofAgent('--until', '1h', '--component', 'ws', '--search', 'CLOS')).toEqual(['closed'])
    expect(await ofAgent('--limit', '3')).toHaveLength(3)
    expect(await ofAgent('--all')).toHaveLength(152)
    const whole = await svc('diagnostic', 'bakery-pc', '--all', '--json')
    expect(JSON.parse(whole.stdout).data).toHaveLength(152)
  })

  it('shows the event log of a device', async () => {
    expect(await messages('events', 'bakery-pc', '--since', '10m')).toEqual(['I/O'])
    expect(await messages('events', world.orgs.bakery.deviceId, '--source', 'disk')).toEqual(['I/O'])
    expect(await messages('events', 'bakery-pc', '--category', 'security')).toEqual([])
  })

  it('reports invalid arguments', async () => {
    const level = await svc('diagnostic', 'bakery-pc', '--level', 'loud')
    expect(level).toMatchObject({ code: 2, stdout: '' })
    expect(level.stderr).toContain('must be some of debug, info, warn, error')
    expect((await svc('events', 'bakery-pc', '--since', 'soon')).code).toBe(2)
    expect((await svc('events', 'nobody-pc', '--json')).code).toBe(3)
    expect(failureOf(await svc('events', 'nobody-pc', '--json'))).toMatchObject({ code: 'not_found' })
  })
})

describe('a start time', () => {
  const now = Date.parse('2026-03-01T12:00:00.000Z')

  it.each([
    ['90s', '2026-03-01T11:58:30.000Z'],
    ['10m', '2026-03-01T11:50:00.000Z'],
    ['2h', '2026-03-01T10:00:00.000Z'],
    ['7d', '2026-02-22T12:00:00.000Z'],
    ['2w', '2026-02-15T12:00:00.000Z'],
    ['2026-01-31', '2026-01-31'],
    ['2026-01-31T12:00:00+01:00', '2026-01-31T12:00:00+01:00'],
  ])('%s means %s', (said, meant) => {
    expect(parseTime(said, '--since', { now })).toBe(meant)
  })

  it('30d leads from now on where a time to come is meant', () => {
    expect(parseTime('30d', '--expires-at', { now, future: true })).toBe('2026-03-31T12:00:00.000Z')
  })

  it.each(['soon', '999999w', '-3d', '30 d', ''])('"%s" is refused with what can be given', (said) => {
    const refusal = `--since takes a time, not "${said}"`
    expect(() => parseTime(said, '--since')).toThrow(expect.objectContaining({ message: refusal }))
  })
})

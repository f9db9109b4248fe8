import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { FakeService, me, page, problem, uuid } from './fake-service.ts'
import { Home } from './run.ts'

const home = new Home()
const service = new FakeService({
  'GET /orgs/sites': page([]),
  'GET /auth/me': { body: me },
  'GET /openapi.json': { body: { openapi: '3.1.0' } },
  'POST /orgs/sites': ({ body }) => ({ status: 201, body }),
})

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

beforeEach(() => {
  service.seen.length = 0
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

it('svc api calls any path as the signed-in user, with or without the prefix', async () => {
  for (const path of ['/orgs/sites?limit=5', '/api/v1/orgs/sites?limit=5']) {
    const { code, stdout } = await home.run(['api', 'get', path])
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toHaveProperty('pagination')
  }
  expect(service.seen.map(({ path }) => path)).toEqual(Array(2).fill('/orgs/sites?limit=5'))
  expect(service.seen[0]?.headers.authorization).toBe('Bearer access-1')
})

describe('svc api honors', () => {
  const printed = async (flags: string[], path = '/orgs/sites') => {
    const { code, stdout, stderr } = await home.run(['api', 'GET', path, ...flags])
    return code === 0 ? stdout : stderr
  }

  beforeEach(() => {
    service.answers['GET /orgs/sites'] = page([
      { id: uuid(20), name: 'Depot', place: { city: 'Lyon' } },
      { id: uuid(21), name: 'Shop' },
    ])
    service.answers['GET /one'] = { body: { id: uuid(20), name: 'Depot' } }
    service.answers['GET /lines'] = { body: '{"id":1}\n{"id":2}\n' }
    service.answers['GET /text'] = { headers: { 'content-type': 'text/csv' }, body: 'a,b\n' }
  })

  it.each<[string[], string]>([
    [['--jq', '.data[].name'], 'Depot\nShop\n'],
    [['--jq', '.pagination.total'], '2\n'],
    [['-q'], `${uuid(20)}\n${uuid(21)}\n`],
    [['-o', 'id'], `${uuid(20)}\n${uuid(21)}\n`],
    [['--csv'], `id,name,place.city\n${uuid(20)},Depot,Lyon\n${uuid(21)},Shop,\n`],
    [['--csv', '--no-header', '--columns', 'name'], 'Depot\nShop\n'],
    [['--columns', 'name,place.city'], 'NAME   PLACE CITY\nDepot  Lyon\nShop   -\n'],
    [['-o', 'table', '--no-header', '--columns', 'name'], 'Depot\nShop\n'],
    [['-o', 'ndjson', '--columns', 'name'], '{"name":"Depot"}\n{"name":"Shop"}\n'],
    [['--columns', 'colour'], 'Error: There is no column "colour"\nHint: columns: id, name, place.city\n'],
  ])('%j of a list', async (flags, expected) => {
    expect(await printed(flags)).toBe(expected)
  })

  it.each<[string[], string]>([
    [['-q'], `${uuid(20)}\n`],
    [['-o', 'yaml'], `id: ${uuid(20)}\nname: Depot\n`],
    [['--csv', '--columns', 'name'], 'name\nDepot\n'],
    [['--jq', '.name'], 'Depot\n'],
  ])('%j of a record', async (flags, expected) => {
    expect(await printed(flags, '/one')).toBe(expected)
  })

  it('them of NDJSON, and says which replies it cannot print so', async () => {
    expect(await printed([], '/lines')).toBe('{"id":1}\n{"id":2}\n')
    expect(await printed(['--csv'], '/lines')).toBe('id\n1\n2\n')
    expect(await printed([], '/text')).toBe('a,b\n')
    expect(await printed(['--json'], '/text')).toContain('The reply is not JSON: text/csv')
    service.answers['GET /none'] = { body: {} }
    expect(await printed(['-q'], '/none')).toContain('This reply has no id to print')
  })

  it('--json of a dry run', async () => {
    const { stdout } = await home.run(['api', 'POST', '/x', '-d', '{"a":1}', '--dry-run', '--json'])
    const request = { method: 'POST', url: `${service.url}/api/v1/x`, body: { a: 1 } }
    expect(JSON.parse(stdout)).toEqual({ dryRun: true, request })
  })
})

it('svc api sends a body from the command line, a file or standard input', async () => {
  const file = home.write('body.json', '{"from":"file"}')
  const sent = async (data: string, input?: string) =>
    JSON.parse((await home.run(['api', 'POST', '/orgs/sites', '-d', data], input ? { input } : {})).stdout)
  expect(await sent('{"from":"line"}')).toEqual({ from: 'line' })
  expect(await sent(`@${file}`)).toEqual({ from: 'file' })
  expect(await sent('-', '{"from":"stdin"}')).toEqual({ from: 'stdin' })
})

it('svc api fails like every other command', async () => {
  service.answers['DELETE /x'] = problem(409, 'conflict', 'Conflict')
  expect((await home.run(['api', 'DELETE', '/x'])).code).toBe(6)
  expect((await home.run(['api', 'GTE', '/x', '--json'])).stderr).toContain('did you mean GET?')
  expect((await home.run(['api', 'POST', '/x', '-d', '{bad'])).code).toBe(2)
})

it('svc openapi prints the document without a sign-in', async () => {
  const env = { SVC_CONFIG_DIR: `${home.path}/nobody`, SVC_URL: service.url }
  expect(JSON.parse((await home.run(['openapi'], { env })).stdout)).toEqual({ openapi: '3.1.0' })
  expect(parse((await home.run(['openapi', '-o', 'yaml'], { env })).stdout)).toEqual({ openapi: '3.1.0' })
})

it('svc whoami prints the response of the API', async () => {
  expect(JSON.parse((await home.run(['whoami', '--json'])).stdout)).toEqual(me)
  expect((await home.run(['whoami', '-q'])).stdout).toBe(`${uuid(1)}\n`)
  const { stdout } = await home.run(['whoami', '--columns', 'user.email,scope', '--no-header'])
  expect(stdout).toBe('admin@example.com  system\n')
})

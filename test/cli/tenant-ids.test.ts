import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { FakeService, organization, page, problem, site, uuid } from './fake-service.ts'
import { Home } from './run.ts'

const home = new Home()
const service = new FakeService({
  'GET /orgs/': { body: { data: [organization(10, 'a', 'A')] } },
  'GET /orgs/sites': page([site(20, uuid(10), 'Depot')]),
  'POST /orgs/sites': ({ body }) => ({
    status: 201,
    body: { ...site(21, uuid(10), 'x'), ...(body as object) },
  }),
  [`PATCH /orgs/organizations/${uuid(10)}`]: { body: organization(10, 'b', 'A') },
})
const identity = { email: 'a@example.com', scope: 'system', orgId: null, partnerId: null }

beforeAll(() => service.start())
beforeEach(() => {
  home.remove()
  home.signIn(service.url, {}, { identity })
  service.seen.length = 0
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const create = (name: string, env = {}) =>
  home.run(['sites', 'create', '--org', 'a', '--name', name], { env })
const lookups = () => service.calls('GET /orgs/').length

it('commands that run together, and those soon after, look a name up once', async () => {
  const all = await Promise.all(Array.from({ length: 8 }, (_, n) => create(`Site ${n}`)))
  expect(all.map(({ code }) => code)).toEqual(Array(8).fill(0))
  await create('Another')
  expect([lookups(), service.calls('POST /orgs/sites').length]).toEqual([1, 9])
})

it('a command asks once, also where nothing can be kept', async () => {
  const env = { XDG_CACHE_HOME: '/dev/null' }
  const command = ['keys', 'list', '--org', 'a']
  service.answers['GET /api-keys'] = page([])
  expect((await home.run(command, { env })).code).toBe(0)
  expect((await home.run(['sites', 'delete', 'Depot', 'Other', '--org', 'a', '--yes'], { env })).code).toBe(3)
  expect(lookups()).toBe(2)
})

it('what is changed or deleted itself is looked up each time', async () => {
  await create('One')
  await home.run(['orgs', 'update', 'a', '--slug', 'b'])
  expect(lookups()).toBe(2)
})

it('a change of the tenant, and an id that leads nowhere, end what was kept', async () => {
  await create('One')
  await home.run(['orgs', 'update', 'a', '--slug', 'b'])
  await create('Two')
  expect(lookups()).toBe(3)
  const { 'POST /orgs/sites': usual } = service.answers
  service.answers['POST /orgs/sites'] = problem(404, 'not_found', 'Organization not found')
  expect((await create('Three')).code).toBe(3)
  service.answers['POST /orgs/sites'] = usual!
  expect((await create('Three')).code).toBe(0)
  expect(lookups()).toBe(4)
})

it('an answer is kept for half a minute', async () => {
  await create('One')
  const names = join(home.path, '.cache/svc/names')
  const [file = ''] = readdirSync(names)
  const kept = home.json<{ at: number; id: string }>(`.cache/svc/names/${file}`)
  for (const [age, asked] of [
    [20_000, 1],
    [31_000, 2],
  ] as const) {
    home.write(`.cache/svc/names/${file}`, JSON.stringify({ ...kept, at: Date.now() - age }))
    await create(`After ${age}`)
    expect(lookups()).toBe(asked)
  }
})

it('a caller gets no answers of another one', async () => {
  await create('One')
  await create('Two', { SVC_API_KEY: 'another' })
  expect(lookups()).toBe(2)
})

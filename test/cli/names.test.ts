import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  enrollmentKey,
  FakeService,
  organization,
  page,
  type RecordedRequest,
  site,
  uuid,
} from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()
const orgs = [
  organization(10, 'blue-bakery', 'Blue Bakery'),
  organization(11, 'red', 'Twin'),
  organization(12, 'green', 'Twin', { partnerId: uuid(901) }),
  organization(13, 'odd', 'blue-bakery'),
]
const sites = [
  site(20, uuid(10), 'Main Office'),
  site(21, uuid(11), 'Main Office'),
  site(22, uuid(11), 'Depot'),
]
const inOrg = <T extends { orgId: string }>(rows: T[], { path }: RecordedRequest) => {
  const orgId = new URL(path, 'http://x').searchParams.get('orgId')
  return page(orgId ? rows.filter((row) => row.orgId === orgId) : rows)
}

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
  service.answers['GET /orgs/'] = { body: { data: orgs } }
  service.answers['GET /orgs/sites'] = (seen) => inOrg(sites, seen)
  service.answers['GET /enrollment-keys'] = (seen) => inOrg([enrollmentKey(30, uuid(10), 'Desk')], seen)
  service.answers['GET /devices'] = ({ path }) =>
    page(
      [{ id: uuid(40), hostname: 'reception-1', displayName: 'Reception', orgId: uuid(10) }].filter(() =>
        path.includes('search='),
      ),
    )
  for (const n of [10, 11, 12, 13])
    service.answers[`GET /orgs/organizations/${uuid(n)}`] = { body: orgs[n - 10] }
  for (const one of sites) service.answers[`GET /orgs/sites/${one.id}`] = { body: one }
  service.answers[`GET /devices/${uuid(40)}`] = {
    body: { id: uuid(40), hardware: null, network: [], disks: [], metrics: null },
  }
  service.answers['POST /enrollment-keys'] = {
    status: 201,
    body: { ...enrollmentKey(31, uuid(10), 'x'), key: 'k' },
  }
})

beforeEach(() => {
  service.seen.length = 0
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

const shown = async (...args: string[]) => (await home.run([...args, '-q'])).stdout.trim()

describe('a record can be named by', () => {
  it('ID, without a lookup', async () => {
    expect(await shown('orgs', 'show', uuid(10))).toBe(uuid(10))
    expect(service.seen).toHaveLength(1)
  })

  it('slug, which takes precedence over a name', async () => {
    expect(await shown('orgs', 'show', 'blue-bakery')).toBe(uuid(10))
  })

  it('name, in any letter case', async () => {
    expect(await shown('orgs', 'show', 'blue bakery')).toBe(uuid(10))
  })

  it('hostname or display name', async () => {
    expect(await shown('devices', 'show', 'reception-1')).toBe(uuid(40))
    expect(await shown('devices', 'show', 'Reception')).toBe(uuid(40))
    expect(service.seen[0]?.path).toContain('search=reception-1')
  })

  it('name within the given organization', async () => {
    expect(await shown('sites', 'show', 'Main Office', '--org', 'red')).toBe(uuid(21))
    const { stdout } = await home.run(['sites', 'show', 'Main Office', '-q'], {
      env: { SVC_ORG: 'blue-bakery' },
    })
    expect(stdout.trim()).toBe(uuid(20))
  })
})

it('an ambiguous name is an error that lists the candidates', async () => {
  const result = await home.run(['orgs', 'show', 'Twin', '--json'])
  expect(result).toMatchObject({ code: 2, stdout: '' })
  expect(failureOf(result)).toMatchObject({ code: 'ambiguous' })
  expect(failureOf(result).message).toContain(`${uuid(11)}  red, Twin`)
  expect(failureOf(result).message).toContain(`${uuid(12)}  green, Twin`)
})

it('an unknown name exits with 3 and a suggestion', async () => {
  const result = await home.run(['orgs', 'show', 'blue-bakry', '--json'])
  expect(result.code).toBe(3)
  expect(failureOf(result)).toMatchObject({ code: 'not_found', hint: 'did you mean blue-bakery?' })
})

it('a name outside the given organization is not found', async () => {
  expect((await home.run(['sites', 'show', 'Depot', '--org', 'blue-bakery'])).code).toBe(3)
})

it('the default organization of a context does not hide others', async () => {
  home.signIn(service.url, {}, { org: 'blue-bakery' })
  expect(await shown('sites', 'show', 'Depot')).toBe(uuid(22))
  expect(await shown('sites', 'show', 'Main Office')).toBe(uuid(20))
  home.signIn(service.url)
})

it('names in flags become IDs in the request, for sites within their organization', async () => {
  await home.run(['enroll', 'create', '--name', 'x', '--site', 'Main Office', '--org', 'red'])
  expect(service.calls('POST /enrollment-keys')[0]?.body).toEqual({
    name: 'x',
    orgId: uuid(11),
    siteId: uuid(21),
  })
})

it('a list is restricted by --org, SVC_ORG or the context, and not by an empty value', async () => {
  home.signIn(service.url, {}, { org: 'red' })
  const names = async (args: string[], env = {}) =>
    (await home.run(['sites', '--columns', 'name', '--no-header', ...args], { env })).stdout
      .trim()
      .split('\n')
  expect(await names([])).toEqual(['Main Office', 'Depot'])
  expect(await names([], { SVC_ORG: uuid(10) })).toEqual(['Main Office'])
  expect(await names(['--org', 'red'], { SVC_ORG: uuid(10) })).toEqual(['Main Office', 'Depot'])
  expect(await names(['--org', ''])).toHaveLength(3)
  home.signIn(service.url)
})

it('organizations of one partner come from the endpoint with that filter', async () => {
  service.answers['GET /orgs/organizations'] = page([orgs[2]])
  const { stdout } = await home.run(['orgs', '--partner', uuid(901), '-q'])
  expect(stdout).toBe(`${uuid(12)}\n`)
  expect(service.seen.map(({ path }) => path)).toEqual([`/orgs/organizations?partnerId=${uuid(901)}`])
})

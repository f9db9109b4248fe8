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
  for (const { id } of [one, two]) service.answers[`GET /devices/${id}`] = { body: { id } }
  for (const place of sites) service.answers[`GET /orgs/sites/${place.id}`] = { body: place }
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

const [one, two] = ['01a20c0e-1234', '01a20c0e-5678'].map((start) => ({
  id: `${start}-7abc-8def-0123456789ab`,
  hostname: 'till',
  displayName: null,
  orgId: uuid(10),
})) as [NamedDevice, NamedDevice]

type NamedDevice = { id: string; hostname: string; displayName: null; orgId: string }

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

  it('beginning of its ID, with or without dots, in the organization or elsewhere', async () => {
    service.answers['GET /devices'] = ({ path }) => {
      const start = new URL(path, 'http://x').searchParams.get('idPrefix')
      return page([one, two].filter(({ id }) => start !== null && id.startsWith(start)))
    }
    for (const typed of ['01a20c0e-12…', '01a20c0e-12', '01A20C0E-1234...'])
      expect([typed, await shown('devices', 'show', typed)]).toEqual([typed, one.id])
    expect(service.calls('GET /devices').some(({ path }) => path.includes('idPrefix=01a20c0e-12'))).toBe(true)
    expect(await shown('orgs', 'show', `${uuid(10).slice(0, 35)}`)).toBe('')
    const both = await home.run(['devices', 'show', '01a20c0e…', '--json'])
    expect(both.code).toBe(2)
    for (const { id } of [one, two]) expect(failureOf(both).message).toContain(id)
    expect((await home.run(['devices', 'show', '01a20c0f…'])).code).toBe(3)
  })

  it('beginning of its ID, unless a machine has taken that for its name', async () => {
    const liar = { ...two, hostname: '01a20c0e-12' }
    service.answers['GET /devices'] = ({ path }) => page(path.includes('idPrefix=') ? [one] : [liar])
    const result = await home.run(['devices', 'delete', '01a20c0e-12', '--yes', '--json'])
    expect([result.code, failureOf(result).code]).toEqual([2, 'ambiguous'])
    expect(await shown('devices', 'show', '01a20c0e-12…')).toBe(one.id)
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

it('devices of one name are told apart by their site and when they were last seen', async () => {
  const seen = new Date(Date.now() - 3 * 3_600_000).toISOString()
  const twins = [
    { ...one, siteId: uuid(20), lastSeenAt: seen },
    { ...two, siteId: uuid(29), lastSeenAt: null },
  ]
  service.answers['GET /devices'] = page(twins)
  service.answers[`GET /orgs/sites/${uuid(20)}`] = { body: { id: uuid(20), name: 'Main Office' } }
  const { message, hint } = failureOf(await home.run(['devices', 'show', 'till', '--json']))
  expect(message).toMatch(new RegExp(`${one.id}  till  \\(in .*\\)  Main Office, last seen 3h ago`))
  expect(message).toMatch(new RegExp(`${two.id}  till  \\(in .*\\)  never seen`))
  expect(hint).toBe('use the id or its beginning, or narrow the search with --org')
})

it('an unknown name exits with 3 and a suggestion', async () => {
  const result = await home.run(['orgs', 'show', 'blue-bakry', '--json'])
  expect(result.code).toBe(3)
  expect(failureOf(result)).toMatchObject({ code: 'not_found', hint: 'did you mean blue-bakery?' })
})

it.each(['', ' ', '.', '..'])('"%s" names nothing, and nothing is sent', async (word) => {
  const sent = service.seen.length
  for (const what of [
    ['orgs', 'show'],
    ['alerts', 'show'],
    ['sites', 'show'],
  ]) {
    const { code, stderr } = await home.run([...what, word])
    expect([code, stderr]).toEqual([2, expect.stringContaining(`"${word}" is not `)])
  }
  expect(service.seen.length).toBe(sent)
})

it('an empty --org names no organization, instead of all', async () => {
  const sent = service.seen.length
  const { code, stderr } = await home.run(['devices', 'list', '--org', ''])
  expect([code, stderr]).toEqual([
    2,
    "Error: --org is empty\nHint: leave it out, or name all that you can see: --org '*'\n",
  ])
  expect(service.seen.length).toBe(sent)
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

it('a list is restricted by --org, SVC_ORG or the context, and not by *', async () => {
  home.signIn(service.url, {}, { org: 'red' })
  const names = async (args: string[], env = {}) =>
    (await home.run(['sites', '--columns', 'name', '--no-header', ...args], { env })).stdout
      .trim()
      .split('\n')
  expect(await names([])).toEqual(['Main Office', 'Depot'])
  expect(await names([], { SVC_ORG: uuid(10) })).toEqual(['Main Office'])
  expect(await names(['--org', 'red'], { SVC_ORG: uuid(10) })).toEqual(['Main Office', 'Depot'])
  expect(await names(['--org', '*'])).toHaveLength(3)
  home.signIn(service.url)
})

it('organizations of one partner come from the endpoint with that filter', async () => {
  service.answers['GET /orgs/organizations'] = page([orgs[2]])
  const { stdout } = await home.run(['orgs', '--partner', uuid(901), '-q'])
  expect(stdout).toBe(`${uuid(12)}\n`)
  expect(service.seen.map(({ path }) => path)).toEqual([`/orgs/organizations?partnerId=${uuid(901)}`])
})

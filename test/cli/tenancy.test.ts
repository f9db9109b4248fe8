import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addPartnerUser, buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
let service: TestService
let world: World

beforeAll(async () => {
  service = await startService(() => openMigrated('sqlite'))
  world = await buildWorld(service)
})
beforeEach(() => home.signIn(service.url, { accessToken: world.tokens.acme }))
afterAll(async () => {
  await service.close()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)
const outputOf = async (...args: string[]) => {
  const { code, stdout, stderr } = await svc(...args)
  expect([code, stderr]).toEqual([0, expect.any(String)])
  return stdout.trim()
}
const asSystem = () => home.signIn(service.url, { accessToken: world.tokens.system })

describe('svc partners', () => {
  it('creates, changes and deletes a partner by slug, and can be repeated', async () => {
    asSystem()
    const id = await outputOf('partners', 'create', '--name', 'Initech', '--slug', 'initech', '-q')
    const again = ['partners', 'create', '--name', 'Initech', '--slug', 'initech', '--if-not-exists', '-q']
    expect(await outputOf(...again)).toBe(id)
    const update = (...flags: string[]) => outputOf('partners', 'update', 'initech', ...flags)
    expect(await update('--plan', 'pro', '--max-devices', '5', '--jq', '.maxDevices')).toBe('5')
    expect(await update('--max-devices', 'null', '--timezone', 'Asia/Tokyo', '--jq', '.maxDevices')).toBe(
      'null',
    )
    expect(await outputOf('partners', 'show', 'initech', '--jq', '.settings.timezone')).toBe('Asia/Tokyo')
    const nothing = await svc('partners', 'update', 'initech', '--json')
    expect([nothing.code, failureOf(nothing).message]).toEqual([2, 'No updates provided'])
    expect(failureOf(await svc('partners', 'delete', 'initech', '--json')).message).toContain('--yes')
    expect(await outputOf('partners', 'delete', 'initech', '--yes')).toBe('Partner deleted successfully')
    expect((await svc('partners', 'delete', 'initech', '--yes')).code).toBe(3)
    expect(await outputOf('partners', 'delete', 'initech', '--yes', '--ignore-not-found')).toBe('')
    expect(await outputOf('partners', 'delete', id, '--yes', '--ignore-not-found')).toBe('')
  })

  it('changes one setting at a time, or many from a file', async () => {
    const set = (...flags: string[]) => outputOf('partners', 'settings', ...flags, '--jq', '.settings|tojson')
    await set(
      '--timezone',
      'Europe/Paris',
      '--date-format',
      'DD/MM/YYYY',
      '--contact-email',
      'it@acme.example',
    )
    const monday = { start: '08:00', end: '17:30', closed: false }
    const file = home.write('settings.json', JSON.stringify({ businessHours: { custom: { monday } } }))
    const all = await set(
      '--settings',
      `@${file}`,
      '--business-hours-preset',
      'custom',
      '--date-format',
      'null',
    )
    const settings = {
      timezone: 'Europe/Paris',
      contact: { email: 'it@acme.example' },
      businessHours: { preset: 'custom', custom: { monday } },
    }
    expect(JSON.parse(all)).toEqual(settings)
    expect(JSON.parse(await outputOf('partners', 'me', '--json'))).toMatchObject({ slug: 'acme', settings })
    const wrong = await svc('partners', 'settings', '--timezone', 'Mars/Olympus')
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('--settings (timezone): must be')])
  })
})

describe('svc orgs and svc sites', () => {
  it('change, order and delete by slug and name', async () => {
    const slugs = async (...args: string[]) => {
      const ids = (await outputOf(...args)).split('\n')
      const { data } = await service.client(world.tokens.acme).call(api.orgs.list)
      return ids.map((id) => data.find((org) => org.id === id)?.slug)
    }
    expect(await slugs('orgs', 'order', 'garage', 'bakery')).toEqual(['garage', 'bakery'])
    expect(await slugs('orgs', 'order', 'bakery')).toEqual(['bakery', 'garage'])
    const status = await outputOf('orgs', 'update', 'garage', '--status', 'suspended', '--jq', '.status')
    expect([status, await outputOf('orgs', 'show', 'garage', '--jq', '.status')]).toEqual([
      'suspended',
      'suspended',
    ])
    await outputOf('orgs', 'update', 'garage', '--status', 'active')
    const id = await outputOf('sites', 'create', '--org', 'garage', '--name', 'Annex', '-q')
    expect(await outputOf('sites', 'update', 'Annex', '--org', 'garage', '--timezone', 'UTC', '-q')).toBe(id)
    const used = await svc('sites', 'delete', 'garage site', '--yes', '--json')
    expect([used.code, failureOf(used)]).toEqual([6, expect.objectContaining({ code: 'site_in_use' })])
    const dry = await outputOf('sites', 'delete', 'Annex', '--dry-run')
    expect(dry).toBe(`DELETE ${service.url}/api/v1/orgs/sites/${id}`)
    expect(await outputOf('sites', 'delete', 'Annex', '--yes')).toBe('Site deleted successfully')
    expect(await outputOf('sites', 'delete', 'Annex', '--yes', '--ignore-not-found')).toBe('')
    await outputOf('orgs', 'create', '--name', 'Short', '--slug', 'short')
    expect(await outputOf('orgs', 'delete', 'short', '--yes')).toBe('Organization deleted successfully')
  })

  it('list the candidates of an ambiguous name', async () => {
    for (const org of ['bakery', 'garage']) await outputOf('sites', 'create', '--org', org, '--name', 'Twin')
    const { code, stderr } = await svc('sites', 'update', 'Twin', '--name', 'Other')
    expect([code, stderr.match(/\(in \w+\)/g)?.sort()]).toEqual([2, ['(in bakery)', '(in garage)']])
  })
})

describe('svc orgs import', () => {
  const csv = 'Name,slug,max-devices,settings\n"Flowers, Ltd.",flowers,5,"{""a"": 1}"\nGrün & Söhne,,,\n'

  it('creates the organizations in a file, only once', async () => {
    const file = home.write('orgs.csv', csv)
    const dry = await svc('orgs', 'import', file, '--dry-run')
    expect([dry.code, dry.stderr]).toEqual([0, expect.stringContaining('Dry run: nothing was sent')])
    const first = await svc('orgs', 'import', file, '--json')
    expect(first.code).toBe(0)
    expect(first.stderr).toBe('2 created\n')
    const rows = (JSON.parse(first.stdout) as { data: Record<string, unknown>[] }).data
    expect(rows).toMatchObject([
      { row: 1, result: 'created', name: 'Flowers, Ltd.', slug: 'flowers', error: null },
      { row: 2, result: 'created', name: 'Grün & Söhne', slug: 'grun-sohne', error: null },
    ])
    const org = await service
      .client(world.tokens.acme)
      .call(api.orgs.show, { params: { id: String(rows[0]!.id) } })
    expect(org).toMatchObject({ name: 'Flowers, Ltd.', maxDevices: 5, settings: { a: 1 } })

    const failed = await svc('orgs', 'import', file, '--csv', '--no-header', '--columns', 'row,result')
    expect([failed.code, failed.stdout]).toEqual([1, '1,failed\n2,failed\n'])
    const again = await home.run(['orgs', 'import', '-', '--if-not-exists', '-q'], { input: csv })
    expect([again.code, again.stdout]).toEqual([0, `${rows.map(({ id }) => id).join('\n')}\n`])
    expect(again.stderr).toContain('2 exists')
  })

  it('sends nothing while any row is invalid, and names all of them', async () => {
    const lines = [
      { name: 'Fine', slug: 'fine' },
      { slug: 'nameless' },
      { name: 'Twice', slug: 'fine' },
      { name: 'Odd', slug: 'odd', type: 'shop', colour: 'red' },
    ]
    const input = lines.map((line) => `${JSON.stringify(line)}\n`).join('')
    const { code, stdout, stderr } = await home.run(['orgs', 'import', '-'], { input })
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toBe(`Error: Nothing was imported:
  row 2, column name: is missing
  row 4, column type: must be one of customer, internal, not "shop"
  row 4, column colour: is not a known column
  row 3, column slug: fine is that of row 1
`)
    expect((await svc('orgs', 'show', 'fine')).code).toBe(3)
    const broken = await home.run(['orgs', 'import', '-'], { input: 'a,b\n"1' })
    expect([broken.code, broken.stderr]).toEqual([2, expect.stringContaining('not CSV')])
  })

  it('continues after a failed row, and reports it at the end', async () => {
    asSystem()
    const rows = [
      { name: 'Anchor', partner: 'globex' },
      { name: 'Harbor', partner: 'globex' },
      { name: 'Lost' },
      { name: 'Buoy', partnerId: world.partners.globex },
    ]
    const file = home.write('orgs.json', JSON.stringify(rows))
    const { code, stdout, stderr } = await svc('orgs', 'import', file, '--columns', 'result,slug', '--csv')
    expect([code, stdout]).toEqual([
      1,
      'result,slug\ncreated,anchor\nfailed,harbor\nfailed,lost\ncreated,buoy\n',
    ])
    expect(stderr).toContain('row 3, lost: partnerId is required for system scope')
    const rest = await svc('orgs', 'import', file, '--partner', 'globex', '--if-not-exists')
    expect([rest.code, rest.stderr]).toEqual([0, expect.stringContaining('3 exists, 1 created')])
  })

  it('stops at once when the session has ended', async () => {
    const token = await addPartnerUser(service, 'leaver', world.partners.acme, 'all')
    await service.client(token).call(api.auth.logout)
    home.signIn(service.url, { accessToken: token, refreshToken: undefined })
    const { code, stdout } = await svc('orgs', 'import', home.write('orgs.csv', csv), '--json')
    expect([code, stdout]).toEqual([4, ''])
  })
})

describe('svc sites import and svc users import', () => {
  it('create what a file names, only once', async () => {
    const sites = home.write('sites.csv', 'org,name,timezone\nbakery,Mill,Europe/Paris\ngarage,Ramp,UTC\n')
    expect((await svc('sites', 'import', sites)).stderr).toContain('2 created')
    expect(await outputOf('sites', 'show', 'Ramp', '--org', 'garage', '--jq', '.timezone')).toBe('UTC')
    expect((await svc('sites', 'import', sites, '--if-not-exists')).stderr).toContain('2 exists')

    const staff = home.write(
      'staff.csv',
      'email,name,role,sites\nira@example.com,Ira,Org Admin,\nSol@example.com,Sol,,bakery site;Mill\n',
    )
    const given = ['users', 'import', staff, '--org', 'bakery', '--role', 'Org Viewer']
    const dry = await svc(...given, '--dry-run')
    expect([dry.code, dry.stderr]).toEqual([0, expect.stringContaining('2 would be created')])
    const { stderr } = await svc(...given)
    expect(stderr).toContain('2 created')
    expect(stderr).toContain(
      'There is no mail server: svc users resend E-MAIL prints the link of each, to hand over',
    )
    const { data } = await service.client(world.tokens.bakery).call(api.users.list, { query: { limit: 100 } })
    expect(data.filter(({ name }) => ['Ira', 'Sol'].includes(name))).toMatchObject([
      { name: 'Ira', roleName: 'Org Admin', status: 'invited', siteIds: null },
      {
        name: 'Sol',
        roleName: 'Org Viewer',
        status: 'invited',
        siteIds: [expect.any(String), expect.any(String)],
      },
    ])
    const again = await svc(...given, '--if-not-exists')
    expect([again.code, again.stderr]).toEqual([0, expect.stringContaining('2 exists')])
    const one = [
      'users',
      'invite',
      'ira@example.com',
      '--name',
      'Ira',
      '--role',
      'Org Admin',
      '--org',
      'bakery',
    ]
    expect((await svc(...one)).code).toBe(6)
    const id = data.find(({ name }) => name === 'Ira')!.id
    expect(await outputOf(...one, '--if-not-exists', '-q')).toBe(id)
  })

  it('name the faults of all rows at once, and send nothing', async () => {
    const input =
      'email,name,role,sites\nx@example.com,X,Org Admin,Nowhere\nnobody,,Baker,\ny@example.com,Y,Baker,\nX@example.com,X,,\n'
    const { code, stdout, stderr } = await home.run(['users', 'import', '-', '--org', 'bakery'], { input })
    expect([code, stdout]).toEqual([2, ''])
    for (const fault of [
      'row 2, column email: ',
      'row 2, column name: is missing',
      'rows 2, 3, column role: No role "Baker" in this organization',
      'row 4, column role: is missing',
      'row 1, column sites: No site "Nowhere" in this organization',
    ])
      expect(stderr).toContain(fault)
    expect(await outputOf('users', '--org', 'bakery', '--all', '--columns', 'email')).not.toContain(
      'y@example',
    )
  })
})

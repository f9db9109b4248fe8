import { statSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { afterRateLimit, FakeService, organization, page, site, uuid } from './fake-service.ts'
import { binary, failureOf, Home, start } from './run.ts'

const bakery = organization(10, 'blue-bakery', 'Blue "Bakery", Ltd')
const acme = organization(11, 'acme', 'Acme \u001b[31mIT', { status: 'suspended', maxDevices: 25 })
const home = new Home()
const service = new FakeService({
  'GET /orgs/': { body: { data: [bakery, acme] } },
  [`GET /orgs/organizations/${uuid(10)}`]: { body: bakery },
})

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)

describe('a list', () => {
  it('is aligned plain text in a pipe: full IDs, no color, no control characters', async () => {
    const { stdout, stderr, code } = await svc('orgs')
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toBe(
      [
        'ID                                    SLUG         NAME                TYPE      STATUS',
        `${uuid(10)}  blue-bakery  Blue "Bakery", Ltd  customer  active`,
        `${uuid(11)}  acme         Acme \\u001b[31mIT   customer  suspended`,
        '',
      ].join('\n'),
    )
  })

  it('as JSON is the response of the API', async () => {
    const { stdout } = await svc('orgs', '--json')
    expect(JSON.parse(stdout)).toEqual({ data: [bakery, acme] })
    expect((await svc('orgs', '-o', 'json')).stdout).toBe(stdout)
  })

  it('as YAML is the same document', async () => {
    expect(parse((await svc('orgs', '-o', 'yaml')).stdout)).toEqual({ data: [bakery, acme] })
  })

  it('can be passed through a jq program', async () => {
    expect((await svc('orgs', '--jq', '.data[] | select(.maxDevices != null) | .slug')).stdout).toBe('acme\n')
    expect((await svc('orgs', 'show', uuid(10), '--jq', '{slug}')).stdout).toBe(
      '{\n  "slug": "blue-bakery"\n}\n',
    )
    expect((await svc('orgs', '--jq', 'empty')).stdout).toBe('')
    const wrong = await svc('orgs', '--jq', '.data[')
    expect(wrong).toMatchObject({ code: 2, stdout: '' })
    expect(wrong.stderr).toContain('--jq')
    expect((await svc('orgs', '--jq', '.', '--csv')).code).toBe(2)
  })

  it('as NDJSON is one document per row', async () => {
    const lines = (await svc('orgs', '-o', 'ndjson')).stdout.trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line))).toEqual([bakery, acme])
  })

  it('as IDs is one ID per line', async () => {
    const { stdout } = await svc('orgs', '-q')
    expect(stdout).toBe(`${uuid(10)}\n${uuid(11)}\n`)
    expect((await svc('orgs', '-o', 'id')).stdout).toBe(stdout)
  })

  it('as CSV is quoted where needed, and has no header with --no-header', async () => {
    const columns = ['--columns', 'slug,name,maxDevices']
    expect((await svc('orgs', '--csv', ...columns)).stdout).toBe(
      'slug,name,maxDevices\nblue-bakery,"Blue ""Bakery"", Ltd",\nacme,Acme \u001b[31mIT,25\n',
    )
    expect((await svc('orgs', '--csv', '--no-header', ...columns)).stdout).toBe(
      'blue-bakery,"Blue ""Bakery"", Ltd",\nacme,Acme \u001b[31mIT,25\n',
    )
  })

  it('as CSV has all fields unless columns are given', async () => {
    const [header] = (await svc('orgs', '--csv')).stdout.split('\n')
    expect(header?.split(',')).toEqual(Object.keys(bakery))
  })

  it('has the requested columns in their order, in every format', async () => {
    const { stdout } = await svc('orgs', '--columns', 'slug,id', '--no-header')
    expect(stdout).toBe(`blue-bakery  ${uuid(10)}\nacme         ${uuid(11)}\n`)
    const json = JSON.parse((await svc('orgs', '--json', '--columns', 'slug')).stdout)
    expect(json).toEqual({ data: [{ slug: 'blue-bakery' }, { slug: 'acme' }] })
  })

  it('refuses an unknown column with a suggestion', async () => {
    const result = await svc('orgs', '--columns', 'slug,nmae', '--json')
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(failureOf(result)).toMatchObject({ code: 'usage', hint: 'did you mean name?' })
  })

  it.each([[['--json', '--csv']], [['-q', '-o', 'yaml']], [['-q', '--columns', 'id']]])(
    'refuses the combination %j',
    async (flags) => {
      const { code, stdout } = await svc('orgs', ...flags)
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    },
  )

  it('accepts the same format twice', async () => {
    expect((await svc('orgs', '--json', '-o', 'json')).code).toBe(0)
  })

  it('is also shown by the topic alone', async () => {
    expect((await svc('orgs', 'list')).stdout).toBe((await svc('orgs')).stdout)
  })
})

describe('a record', () => {
  it('is printed as lines of names and values', async () => {
    const { stdout } = await svc('orgs', 'show', uuid(10))
    expect(stdout).toMatch(/^Id: {14}0197c1c4/)
    expect(stdout).toContain('Max devices:     -\n')
  })

  it('as CSV is one row', async () => {
    const { stdout } = await svc('orgs', 'show', uuid(10), '--csv', '--columns', 'slug,status')
    expect(stdout).toBe('slug,status\nblue-bakery,active\n')
  })
})

describe('pagination', () => {
  const total = 230
  const rows = Array.from({ length: total }, (_, i) => site(1000 + i, uuid(10), `Site ${i}`))
  const paged = (path: string) => {
    const query = new URL(path, 'http://x').searchParams
    const limit = Number(query.get('limit') ?? 50)
    const number = Number(query.get('page') ?? 1)
    return page(rows.slice((number - 1) * limit, number * limit), { page: number, limit, total })
  }

  beforeAll(() => {
    service.answers['GET /orgs/sites'] = ({ path }) => paged(path)
  })

  const count = (text: string) => text.trimEnd().split('\n').length
  const queries = () => service.calls('GET /orgs/sites').map(({ path }) => path.split('?')[1])

  it('shows one page, and reports further rows on standard error', async () => {
    const { stdout, stderr } = await svc('sites', '-q')
    expect(count(stdout)).toBe(50)
    expect(stderr).toBe('50 of 230 shown, page 1: --all shows every row\n')
  })

  it('with --all requests every page', async () => {
    service.seen.length = 0
    const { stdout, stderr } = await svc('sites', '-o', 'ndjson', '--all')
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).name),
    ).toEqual(rows.map(({ name }) => name))
    expect(stderr).toBe('')
    expect(queries()).toEqual(['page=1&limit=100', 'page=2&limit=100', 'page=3&limit=100'])
  })

  it.each(['ndjson', 'csv'])(
    'with --all is printed as %s page by page, in constant memory',
    async (format) => {
      // Four times what the heap may have.
      const name = 'a'.repeat(20_000)
      const whole = Array.from({ length: 100 }, (_, n) => ({ ...rows[n], name }))
      service.answers['GET /orgs/sites'] = ({ path }) => page(path.includes('page=101&') ? [] : whole)
      const env = { NODE_OPTIONS: '--max-old-space-size=48' }
      const out = home.write('sites', '')
      const line = `exec '${process.execPath}' '${binary}' sites --all -o ${format} > '${out}'`
      const { code, stderr } = await start('sh', ['-c', line], { ...home.env, ...env }, home.path)
      service.answers['GET /orgs/sites'] = ({ path }) => paged(path)
      expect([code, stderr]).toEqual([0, ''])
      expect(statSync(out).size).toBeGreaterThan(100 * 100 * 20_000)
    },
  )

  it('with --all waits when it exceeds the rate limit, and continues', async () => {
    const limited = afterRateLimit(({ path }) => paged(path))
    service.answers['GET /orgs/sites'] = (seen) =>
      seen.path.includes('page=2') ? limited(seen) : paged(seen.path)
    const { code, stdout, stderr } = await svc('sites', '-q', '--all')
    service.answers['GET /orgs/sites'] = ({ path }) => paged(path)
    expect([code, count(stdout)]).toEqual([0, total])
    expect(stderr).toBe('Rate limited: continuing in 0 s\n')
  })

  it('with --all --json gives one document with all rows', async () => {
    const { data, pagination } = JSON.parse((await svc('sites', '--json', '--all')).stdout)
    expect(data).toHaveLength(total)
    expect(pagination).toEqual({ page: 1, limit: total, total })
  })

  it('with --limit gives that number of rows, regardless of page sizes', async () => {
    expect(count((await svc('sites', '-q', '--limit', '7')).stdout)).toBe(7)
    expect(count((await svc('sites', '-q', '--limit', '120')).stdout)).toBe(120)
  })

  it('with --page shows that page', async () => {
    const { stdout } = await svc('sites', '--page', '3', '--limit', '100', '--columns', 'name', '--no-header')
    expect(stdout.split('\n')[0]).toBe('Site 200')
    expect(count(stdout)).toBe(30)
  })

  it('refuses --all together with --limit', async () => {
    expect((await svc('sites', '--all', '--limit', '5')).code).toBe(2)
  })
})

describe('hostile values in a pipe', () => {
  const name = 'a\u001b[31m\u009b\u202eb'
  const hostile = organization(12, 'h', name, { settings: { [name]: name } })
  const show = (...flags: string[]) => svc('orgs', 'show', uuid(12), ...flags).then(({ stdout }) => stdout)

  beforeAll(() => {
    service.answers[`GET /orgs/organizations/${uuid(12)}`] = { body: hostile }
  })

  it('are printed unchanged', async () => {
    expect(await show('--json')).toBe(`${JSON.stringify(hostile, null, 2)}\n`)
    expect(await show('-o', 'ndjson')).toBe(`${JSON.stringify(hostile)}\n`)
    expect(await show('--jq', '.name, (.settings | keys[])')).toBe(`${name}\n${name}\n`)
    expect(await show('--csv', '--columns', 'name', '--no-header')).toBe(`${name}\n`)
    expect(parse(await show('-o', 'yaml'))).toEqual(hostile)
  })
})

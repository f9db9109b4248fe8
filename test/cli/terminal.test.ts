import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { lineOf } from '../../src/cli/progress.ts'
import { plain } from '../../src/cli/style.ts'
import { table, widthOf } from '../../src/cli/table.ts'
import { Home, noTerminal } from './run.ts'
import { organization, page, StandIn, site, uuid } from './stand-in.ts'

const home = new Home()
const long = 'A very long name that would not fit beside the rest'
const service = new StandIn({
  'GET /orgs/': {
    body: { data: [organization(10, 'acme', long), organization(11, 'b', 'B', { status: 'suspended' })] },
  },
  'GET /orgs/sites': page([site(20, uuid(10), long)]),
  'POST /orgs/sites': ({ body }) => ({
    status: 201,
    body: site(21, uuid(10), (body as { name: string }).name),
  }),
})
const esc = '\u001b'
const color = new RegExp(`${esc}\\[\\d+m`, 'g')

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

describe.skipIf(noTerminal)('at a terminal', () => {
  it('a table fits its width and never cuts an id', async () => {
    const { stdout } = await home.terminal(['orgs'], { columns: 90 })
    const lines = stdout.replace(color, '').trimEnd().split('\r\n')
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(90)
    expect(lines[1]).toContain(uuid(10))
    expect(lines[1]).toContain('…')
  })

  it('an id that does not fit gives way to the name', async () => {
    const { stdout } = await home.terminal(['sites'], { columns: 70 })
    expect(stdout).not.toContain('ORG ID')
    expect(stdout).toContain(uuid(20))
  })

  it('states have colours, unless NO_COLOR or a dumb terminal', async () => {
    expect((await home.terminal(['orgs'])).stdout).toContain(`${esc}[31msuspended`)
    expect((await home.terminal(['orgs'], { env: { NO_COLOR: '1' } })).stdout).not.toMatch(color)
    expect((await home.terminal(['orgs'], { env: { TERM: 'dumb' } })).stdout).not.toMatch(color)
  })

  it('what is missing is asked for, unless --no-input, SVC_NO_INPUT or CI', async () => {
    const create = ['sites', 'create', '--org', uuid(10)]
    const { code, stdout } = await home.terminal(create, { answers: [['Name people see', 'Depot\r']] })
    expect(code).toBe(0)
    expect(stdout).toContain('Depot')
    for (const env of [{ CI: 'true' }, { SVC_NO_INPUT: '1' }]) {
      const refused = await home.terminal(create, { env })
      expect(refused.code).toBe(2)
      expect(refused.stdout).toContain('Missing --name')
    }
    expect((await home.terminal([...create, '--no-input'])).code).toBe(2)
  })

  it('a question shows every character of the name that it is about', async () => {
    const name = 'a\u001b[35m\u009b31m\u202e'
    service.answers['GET /orgs/sites'] = page([site(22, uuid(10), name)])
    const { code, stdout } = await home.terminal(['sites', 'delete', name, '--org', uuid(10)], {
      answers: [['Type', '\u0003']],
    })
    expect(code).toBe(130)
    expect(stdout).toContain('Type a\\u001b[35m\\u009b31m\\u202e to delete it')
    expect(stdout).not.toMatch(/[\u009b\u202e]/)
    expect(stdout).not.toContain('\u001b[35m')
  })

  it('Ctrl-C at a question is 130', async () => {
    const { code } = await home.terminal(['sites', 'create', '--org', uuid(10)], {
      answers: [['Name people see', '\u0003']],
    })
    expect(code).toBe(130)
  })
})

it('FORCE_COLOR colours a pipe as well', async () => {
  const { stdout } = await home.run(['orgs'], { env: { FORCE_COLOR: '1' } })
  expect(stdout).toMatch(color)
})

describe('progress', () => {
  it('is a count at first, then a bar with rate and time left', () => {
    expect(lineOf('Verifying', 'rows', 500, 1500, 10_000)).toMatch(/^. Verifying 500 of 10 000 rows$/)
    expect(lineOf('Verifying', 'rows', 5000, 5000, 10_000)).toBe(
      'Verifying [##########----------] 5 000 of 10 000 rows, 1 000 rows/s, 5 s left',
    )
  })

  it('without a total is a count and a rate', () => {
    expect(lineOf('Exporting', 'entries', 1_200_000, 4000)).toContain('1 200 000 entries, 300 000 entries/s')
  })

  it('never appears in a pipe', async () => {
    service.answers['GET /orgs/'] = async () => {
      await new Promise((resolve) => setTimeout(resolve, 1500))
      return { body: { data: [] } }
    }
    expect((await home.run(['orgs', '-q'])).stderr).toBe('')
  })
})

describe('columns', () => {
  it('are aligned by what a text looks like', () => {
    expect(['abc', 'é', 'e\u0301', '日本', '🚀', '한국어'].map(widthOf)).toEqual([3, 1, 1, 4, 2, 6])
  })

  it('take a time that grows with the rows, not with their square', async () => {
    const rows = Array.from({ length: 20_000 }, (_, i) => ({ id: uuid(i), name: `Row ${i}` }))
    for (const width of [undefined, 60]) {
      const started = performance.now()
      const text = await table(rows, ['id', 'name'], { header: true, style: plain, width })
      expect(text.split('\n')).toHaveLength(20_002)
      expect(performance.now() - started).toBeLessThan(8000)
    }
  })
})

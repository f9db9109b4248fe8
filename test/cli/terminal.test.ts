import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { renderRecord } from '../../src/cli/card.ts'
import { plainDisplay } from '../../src/cli/display.ts'
import { progressLine } from '../../src/cli/progress.ts'
import { clearStatus, printNote, showStatus } from '../../src/cli/stderr-notes.ts'
import { renderTable } from '../../src/cli/table.ts'
import { displayWidth } from '../../src/cli/text-width.ts'
import { allowSequence } from '../../src/core/terminal.ts'
import { FakeService, organization, page, site, uuid } from './fake-service.ts'
import { Home, noTerminal } from './run.ts'

const home = new Home()
const long = 'A very long name that would not fit beside the rest'
const service = new FakeService({
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
const clear = `\r${esc}[2K`
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
  it('a table fits its width and never truncates an ID', async () => {
    const { stdout } = await home.terminal(['orgs'], { columns: 90 })
    const lines = stdout.replace(color, '').trimEnd().split('\r\n')
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(90)
    expect(lines[1]).toContain(uuid(10))
    expect(lines[1]).toContain('…')
  })

  it('an ID that does not fit is dropped in favor of the name', async () => {
    const { stdout } = await home.terminal(['sites'], { columns: 70 })
    expect(stdout).not.toContain('ORG ID')
    expect(stdout).toContain(`${uuid(20).slice(0, 8)}…`)
    expect(stdout).toContain('Not shown at 70 columns: orgId')
  })

  it('states are colored, unless NO_COLOR is set or the terminal is dumb', async () => {
    expect((await home.terminal(['orgs'])).stdout).toContain(`${esc}[31msuspended`)
    expect((await home.terminal(['orgs'], { env: { NO_COLOR: '1' } })).stdout).not.toMatch(color)
    expect((await home.terminal(['orgs'], { env: { TERM: 'dumb' } })).stdout).not.toMatch(color)
  })

  it('missing arguments are prompted for, unless --no-input, SVC_NO_INPUT or CI is set', async () => {
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

  it('a prompt shows every character of the name in question', async () => {
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

  it('a prompt asks for the part of a shortened ID that a keyboard has', async () => {
    service.answers['GET /orgs/sites'] = page([site(22, uuid(10), 'Depot')])
    const start = uuid(22).slice(0, 8)
    const { stdout } = await home.terminal(['sites', 'delete', `${start}…`], {
      answers: [['Type', '\u0003']],
    })
    expect(stdout).toContain(`Type ${start} to delete it`)
  })

  it('a deletion says first which context it is in, and at which address', async () => {
    service.answers['GET /orgs/sites'] = page([site(22, uuid(10), 'Depot')])
    const { stdout } = await home.terminal(['sites', 'delete', 'Depot', '--org', uuid(10)], {
      answers: [['Type', '\u0003']],
    })
    expect(stdout.indexOf(`Context test, ${service.url}`)).toBeGreaterThanOrEqual(0)
    expect(stdout.indexOf('Type Depot')).toBeGreaterThan(stdout.indexOf('Context test'))
  })

  it('a name of several records is refused with each of them, a line each within 80 columns', async () => {
    service.answers['GET /orgs/sites'] = page([20, 21].map((n) => site(n, uuid(10), 'Depot')))
    service.answers[`GET /orgs/organizations/${uuid(10)}`] = { body: organization(10, 'acme', 'Acme') }
    const { code, stdout } = await home.terminal(['sites', 'show', 'Depot', '--org', uuid(10)])
    expect(code).toBe(2)
    const lines = stdout.replace(color, '').trimEnd().split('\r\n')
    for (const n of [20, 21]) expect(lines.filter((line) => line.includes(uuid(n)))).toHaveLength(1)
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
  })

  it('a message after an answer is on its own line', async () => {
    const { stdout } = await home.terminal(
      ['password', 'reset', '--link', `@${home.write('link', 'token')}`],
      {
        answers: [
          ['New password', 'one\r'],
          ['once more', 'two\r'],
          ['They differ', '\u0003'],
        ],
      },
    )
    expect(stdout).toMatch(new RegExp(`\\n(?:${esc}\\[[?\\d]*[A-Za-z])*They differ\\. Once again\\.\\r\\n`))
  })

  it('a new password is prompted for twice, also when accepting an invitation', async () => {
    const accept = [
      'invite',
      'accept',
      '--url',
      service.url,
      '--invitation',
      `@${home.write('link', 'token')}`,
    ]
    const { code } = await home.terminal(accept, {
      answers: [
        ['New password', 'one\r'],
        ['New password once more', '\u0003'],
      ],
    })
    expect(code).toBe(130)
  })

  it('Ctrl-C at a prompt exits with 130', async () => {
    const { code } = await home.terminal(['sites', 'create', '--org', uuid(10)], {
      answers: [['Name people see', '\u0003']],
    })
    expect(code).toBe(130)
  })
})

it('a note is one line of a terminal, whatever name it contains', () => {
  const { isTTY } = process.stderr
  const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  try {
    for (const terminal of [true, false]) {
      process.stderr.isTTY = terminal
      printNote('Signing in with A\nSigned in')
    }
    expect(write.mock.calls.map(([text]) => text)).toEqual([
      'Signing in with A⏎Signed in\n',
      'Signing in with A\nSigned in\n',
    ])
  } finally {
    process.stderr.isTTY = isTTY
    write.mockRestore()
  }
})

it('a note takes the place of a spinner or bar, and is not appended to it', () => {
  const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  try {
    showStatus('Waiting for the service 2 s')
    printNote('Rate limited')
    printNote('Rate limited')
    showStatus('Waiting for the service 3 s')
    clearStatus()
    clearStatus()
    const written = write.mock.calls.map(([text]) => text).join('')
    expect(written.replaceAll(allowSequence('\r\u001b[2K'), clear)).toBe(
      `${clear}Waiting for the service 2 s${clear}Rate limited\nRate limited\n${clear}Waiting for the service 3 s${clear}`,
    )
  } finally {
    write.mockRestore()
  }
})

it('FORCE_COLOR also colors output in a pipe', async () => {
  const { stdout } = await home.run(['orgs'], { env: { FORCE_COLOR: '1' } })
  expect(stdout).toMatch(color)
})

describe('the progress display', () => {
  it('is a count at first, then a bar with rate and remaining time', () => {
    expect(progressLine('Verifying', 'rows', 500, 1500, 10_000)).toMatch(/^. Verifying 500 of 10 000 rows$/)
    expect(progressLine('Verifying', 'rows', 5000, 5000, 10_000)).toBe(
      'Verifying [##########----------] 5 000 of 10 000 rows, 1 000 rows/s, 5 s left',
    )
  })

  it('without a total is a count and a rate', () => {
    expect(progressLine('Exporting', 'entries', 1_200_000, 4000)).toContain(
      '1 200 000 entries, 300 000 entries/s',
    )
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
  it('are aligned by display width', () => {
    expect(['abc', 'é', 'e\u0301', '日本', '🚀', '한국어'].map(displayWidth)).toEqual([3, 1, 1, 4, 2, 6])
  })

  const wide = {
    id: uuid(1),
    name: 'A name of some length',
    kind: 'a kind of some length',
    status: 'active',
    note: 'a note of some length',
    ownerId: uuid(2),
    seenAt: '2026-01-31T12:00:00.123Z',
  }
  const columns = Object.keys(wide)
  const widest = (text: string) => Math.max(...text.split('\n').map(displayWidth))

  it('fit a terminal of any width, and dropped ones are reported', () => {
    for (const width of [200, 80, 60, 40, 20]) {
      const { text, hidden } = renderTable([wide], columns, { ...plainDisplay, header: true, width })
      expect([width, widest(text) <= width]).toEqual([width, true])
      expect(text).toContain('A name of some len')
      expect(text.includes('2026-01-31 12:00:00Z')).toBe(!hidden.includes('seenAt'))
      // The last first, ids of other records before all others.
      const ranked = ['name', 'id', 'kind', 'status', 'note', 'seenAt', 'ownerId']
      expect(ranked.slice(ranked.length - hidden.length)).toEqual(
        ranked.filter((one) => hidden.includes(one)),
      )
    }
    const piped = renderTable([wide], columns, { ...plainDisplay, header: true })
    expect(piped.text).toContain(wide.seenAt)
    expect(piped.hidden).toEqual([])
  })

  it('of a nested list without enough room are shown one below the other', () => {
    const parts = [wide, { ...wide, name: 'B' }]
    // With 160 columns a table has room, but not for whole cells.
    for (const width of [80, 160]) {
      const text = renderRecord({ id: uuid(9), parts }, { ...plainDisplay, width })
      expect(widest(text)).toBeLessThanOrEqual(width)
      for (const value of Object.values(wide)) expect(text).toContain(value)
      expect(text).toContain('  Name:     B')
    }
    const roomy = renderRecord({ parts: [{ name: 'A', status: 'active' }] }, { ...plainDisplay, width: 80 })
    expect(roomy).toBe('\nParts\n  NAME  STATUS\n  A     active\n')
  })

  it('take time linear in the number of rows', () => {
    const rows = Array.from({ length: 20_000 }, (_, i) => ({ id: uuid(i), name: `Row ${i}` }))
    for (const width of [undefined, 60]) {
      const started = performance.now()
      const { text } = renderTable(rows, ['id', 'name'], { ...plainDisplay, header: true, width })
      expect(text.split('\n')).toHaveLength(20_002)
      expect(performance.now() - started).toBeLessThan(8000)
    }
  })
})

import { stripVTControlCharacters } from 'node:util'
import type { Command } from '@oclif/core/command'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { renderRecord } from '../../../src/cli/card.ts'
import { plainDisplay } from '../../../src/cli/display.ts'
import { printFindings } from '../../../src/cli/doctor.ts'
import { CliError } from '../../../src/cli/exit-codes.ts'
import { fail } from '../../../src/cli/fail.ts'
import Help from '../../../src/cli/help.ts'
import { linePrinter } from '../../../src/cli/line-printer.ts'
import { writeStdout } from '../../../src/cli/print.ts'
import { Program } from '../../../src/cli/program.ts'
import { withSpinner } from '../../../src/cli/progress.ts'
import { clearStatus, printNote, showStatus } from '../../../src/cli/stderr-notes.ts'
import { renderTable } from '../../../src/cli/table.ts'
import { displayWidth } from '../../../src/cli/text-width.ts'
import { deliveryPrinter } from '../../../src/cli/webhooks/delivery-printer.ts'
import { ApiError } from '../../../src/core/client.ts'
import type { Finding } from '../../../src/core/finding.ts'
import { expectGolden } from '../../laws/golden.ts'
import { root } from '../../laws/imports.ts'
import { chainLines } from '../chain-lines.ts'
import { FakeService, page, uuid } from '../fake-service.ts'
import { Home, noTerminal } from '../run.ts'
import { answersAt, deliveriesAt, firstDevice, longMessage } from './records.ts'
import { captured, readable, screenOf } from './screen.ts'

const now = Date.parse('2026-03-01T12:00:00.000Z')
const service = new FakeService()

type Load = () => Promise<{ default: Command.Class }>
const devices: Load = () => import('../../../commands/devices/list.ts')
const device: Load = () => import('../../../commands/devices/show.ts')

const lists: [name: string, load: Load][] = [
  ['devices', devices],
  ['orgs', () => import('../../../commands/orgs/list.ts')],
  ['users', () => import('../../../commands/users/list.ts')],
  ['audit', () => import('../../../commands/audit/list.ts')],
  ['keys', () => import('../../../commands/keys/list.ts')],
  ['alerts', () => import('../../../commands/alerts/list.ts')],
  ['webhooks', () => import('../../../commands/webhooks/list.ts')],
]
/** Pages that are no tables: what they show, and whether it is about something. */
const pages: [name: string, load: Load, argv: string[]][] = [
  ['top', () => import('../../../commands/top.ts'), ['--once']],
  ['rollout', () => import('../../../commands/agent/rollout/status.ts'), []],
  ['whoami', () => import('../../../commands/whoami.ts'), []],
  ['auth-status', () => import('../../../commands/auth/status.ts'), []],
  ['audit-verify', () => import('../../../commands/audit/verify.ts'), []],
]
const cards: [name: string, load: Load, id: string][] = [
  ['device', device, firstDevice],
  ['org', () => import('../../../commands/orgs/show.ts'), uuid(10)],
]
const widths = [80, 120, 200]

const plainOutput = { format: 'plain', columns: undefined, jq: undefined, header: true, utc: false } as const
const findings: Finding[] = [
  { check: 'data directory', state: 'ok', message: '/var/lib/svc', reason: null, remedy: null },
  {
    check: 'mail',
    state: 'warning',
    message: 'Mail is not configured.',
    reason:
      'Invitations and password resets reach nobody, and nobody hears of an alert that needs attention.',
    remedy: 'set SMTP_URL and MAIL_FROM, and restart the service: svc serve',
  },
  {
    check: 'audit chains',
    state: 'error',
    message: 'The chain of Blue Bakery is broken at entry 4 711.',
    reason: 'Somebody changed the database without the service.',
    remedy: 'svc audit verify --org blue-bakery shows where',
  },
]
/** The service listens at another port each time. */
const inNoPort = (text: string) => text.replaceAll(service.url, 'http://127.0.0.1:00000')

const esc = '\u001b'
const escapes = new RegExp(`${esc}\\[[\\d;]*m`, 'g')
const unstyled = (text: string) => text.replace(escapes, '')
const linesOf = (text: string) => unstyled(text).trimEnd().split(/\r?\n/)

beforeAll(() => service.start())
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now })
  Object.assign(service.answers, answersAt(now))
  service.answers['GET /audit-logs/chain'] = { body: chainLines(null, 3).join('') }
  service.seen.length = 0
})
afterEach(() => {
  vi.useRealTimers()
})
afterAll(() => service.stop())

const screen = (load: Load, argv: string[], columns: number | undefined, env?: Record<string, string>) =>
  screenOf(load, argv, { url: service.url, columns, ...(env && { env }) })

/** Compares with a screen beside this test, in which escapes can be read. */
const expectScreen = (name: string, text: string) =>
  expectGolden(`../cli/screens/${name}.txt`, readable(text))

describe.each(widths)('on a terminal of %i columns', (columns) => {
  it.each(lists)('svc %s is a table without a line that wraps', async (name, load) => {
    const text = await screen(load, [], columns)
    expectScreen(`${name}-${columns}`, text)
    for (const line of linesOf(text)) expect([line, displayWidth(line) <= columns]).toEqual([line, true])
  })

  it.each(pages)('svc %s has no line that wraps', async (name, load, argv) => {
    const text = inNoPort(await screen(load, argv, columns))
    expectScreen(`${name}-${columns}`, text)
    for (const line of linesOf(text)) expect([line, displayWidth(line) <= columns]).toEqual([line, true])
  })

  it('svc doctor has no line that wraps', async () => {
    const text = await captured(columns, () => printFindings(plainOutput, findings).catch(() => {}))
    expectScreen(`doctor-${columns}`, text)
    for (const line of linesOf(text)) expect([line, displayWidth(line) <= columns]).toEqual([line, true])
  })

  it.each(cards)('svc … show of one %s is a card without a broken word', async (name, load, id) => {
    const text = await screen(load, [id], columns)
    expectScreen(`${name}-card-${columns}`, text)
    for (const line of linesOf(text)) expect([line, displayWidth(line) <= columns]).toEqual([line, true])
  })
})

it('headings, states and labels have colors of the palette of the terminal, for light and dark ones alike', async () => {
  const texts = await Promise.all([screen(devices, [], 80)])
  texts.push(await screen(device, [firstDevice], 80))
  const used = new Set(texts.join('').match(escapes))
  expect([...used].sort()).toEqual(['1', '2', '22', '31', '32', '33', '39'].map((n) => `\u001b[${n}m`).sort())
  const [head = ''] = texts[0]!.split('\n')
  expect(head.split(/ {2,}/)[0]).toBe('\u001b[1mHOSTNAME\u001b[22m')
  expect(await screen(devices, [], 80, { NO_COLOR: '1' })).not.toMatch(escapes)
})

it.each(lists)(
  'in a pipe svc %s is complete: whole ids, exact times, no color, no note on columns',
  async (name, load) => {
    const text = await screen(load, [], undefined)
    expectScreen(`${name}-pipe`, text)
    expect(text).not.toContain(esc)
    expect(text).not.toMatch(/Not shown|ago/)
  },
)

it.each(cards)(
  'in a pipe the card of one %s has every field, also those without a value',
  async (name, load, id) => {
    const text = await screen(load, [id], undefined)
    expectScreen(`${name}-card-pipe`, text)
    expect(text).toMatch(/: +-$/m)
    expect(text).not.toContain('left out')
  },
)

describe('a column', () => {
  it('without room is named, with a way to see it', async () => {
    const lines = linesOf(await screen(devices, [], 80))
    const note = lines
      .slice(lines.findIndex((line) => line.startsWith('Not shown')))
      .join(' ')
      .replace(/ +/g, ' ')
    expect(note).toMatch(
      /^Not shown at 80 columns: .*tags.*\. They are on a wider terminal, or with --columns hostname,/,
    )
    const [, flag = ''] = /--columns (\S+)/.exec(note) ?? []
    // Pasted, it shows each of them.
    const hidden = /columns: (.*)\. They/.exec(note)?.[1]?.split(', ') ?? []
    expect(hidden.length).toBeGreaterThan(2)
    expect(flag.split(',')).toEqual(['hostname', ...hidden])
    expect(linesOf(await screen(devices, ['--columns', flag], 80))[0]).toContain('HOSTNAME  ')
  })

  it('that was requested stays in its place', async () => {
    const [head] = linesOf(await screen(devices, ['--columns', 'id,hostname,orgId'], 120))
    expect(head).toMatch(/^ID +HOSTNAME +ORG ID$/)
  })

  it('of times has ages, and exact times with --utc', async () => {
    expect(await screen(devices, [], 120)).toContain('45m ago')
    const exact = await screen(devices, ['--utc'], 120)
    expect(exact).toContain('2026-03-01 11:14:30Z')
    expect(exact).not.toContain('ago')
    expect(await screen(device, [firstDevice], 80)).toContain('2026-03-01 11:56:30Z (3m ago)')
    expect(await screen(device, [firstDevice, '--utc'], 80)).toContain('2026-03-01T11:56:30.000Z\n')
  })

  it('of ids is cut only where the rows are all that an id could mean', async () => {
    expect(linesOf(await screen(devices, [], 120))[1]).toMatch(/01a20c0e-\d{3}…$/)
    for (const narrowed of [
      ['--status', 'online'],
      ['--org', uuid(10)],
    ])
      expect(linesOf(await screen(devices, narrowed, 120))[1]).toContain(firstDevice)
    service.answers['GET /devices'] = page([{ id: firstDevice }], { total: 2 })
    expect(linesOf(await screen(devices, [], 120))[1]).toContain(firstDevice)
  })
})

describe('a card on a terminal', () => {
  const card = (empty: number, width: number | undefined) => {
    const nothing = Object.fromEntries(Array.from({ length: empty }, (_, n) => [`field${n}`, null]))
    return renderRecord(
      { name: 'web-1', ...nothing, part: { text: '', none: {} } },
      { ...plainDisplay, width },
    )
  }

  it('shows a few fields without a value, and says how many it leaves out of more', () => {
    expect(card(1, 80)).toContain('Field0: -\n')
    expect(card(1, 80)).toContain('\nPart\n')
    expect(card(2, 80)).toBe('Name: web-1\n4 fields without a value are left out: --json has them\n')
    expect(card(2, 30)).toBe('Name: web-1\n4 fields without a value are\nleft out: --json has them\n')
    expect(card(2, undefined)).toContain('Field1: -\n')
  })

  it('shows an empty list, a no and a zero, which are values', () => {
    const nothing = { a: null, b: null, c: null, d: null }
    const text = renderRecord({ ...nothing, tags: [], count: 0, on: false }, { ...plainDisplay, width: 80 })
    expect(text).toMatch(/^Tags: +none\nCount: +0\nOn: +no\n4 fields/)
  })
})

it('rows that arrive one by one are aligned by what a terminal draws', async () => {
  const output = { format: 'plain', columns: undefined, jq: undefined, header: true, utc: false } as const
  const text = await captured(80, () =>
    linePrinter(
      output,
      ['name', 'status'],
      ['name', 'status'],
    )([
      { name: '東京サーバー', status: 'online' },
      { name: 'cafe\u0301-till', status: 'offline' },
    ]),
  )
  expect(unstyled(text)).toBe('NAME          STATUS\n東京サーバー  online\ncafe\u0301-till     offline\n')
})

describe('rows that arrive one by one', () => {
  const auditTail: Load = () => import('../../../commands/audit/tail.ts')
  const logsTail: Load = () => import('../../../commands/logs/tail.ts')
  /** The cursor is one word, which is not broken so that it can be copied. */
  const withoutCursor = (text: string) => text.replace(/^To continue from here: --after\s+\S+$/m, '')
  const listening = (columns: number | undefined) =>
    captured(columns, async () => {
      const output = { format: 'plain', columns: undefined, jq: undefined, header: true, utc: false } as const
      const print = await deliveryPrinter(output)
      for (const delivery of deliveriesAt(now)) await print(delivery)
    })
  const expectToFit = (text: string, columns: number) => {
    for (const line of linesOf(withoutCursor(text)))
      expect([line, displayWidth(line) <= columns]).toEqual([line, true])
  }

  it.each([80, 120])('of svc audit tail take one line each at %i columns', async (columns) => {
    const text = await screen(auditTail, [], columns)
    expectScreen(`audit-tail-${columns}`, text)
    expectToFit(text, columns)
    expect(text).toContain(`Not shown at ${columns} columns: `)
    const chosen = await screen(auditTail, ['--columns', 'id,action,user.email'], columns)
    expect(unstyled(chosen)).toMatch(/^ID +ACTION/)
    expectToFit(chosen, columns)
  })

  it.each([80, 120])('of svc webhooks listen take one line each at %i columns', async (columns) => {
    const text = await listening(columns)
    expectScreen(`webhooks-listen-${columns}`, text)
    expectToFit(text, columns)
  })

  it.each([80, 120])('of svc logs tail at %i columns have messages that are never cut', async (columns) => {
    const text = await screen(logsTail, [], columns)
    expectScreen(`logs-tail-${columns}`, text)
    expect(text).toContain(longMessage)
    expectToFit(text.replace(longMessage, ''), columns)
    expect(new Set(deviceColors(text)).size).toBeGreaterThan(1)
  })

  it('of svc logs tail in a pipe are whole, and begin with the time and the device', async () => {
    const text = await screen(logsTail, [], undefined)
    expectScreen('logs-tail-pipe', text)
    expect(text).not.toMatch(new RegExp(`${esc}|…|Not shown`))
    expect(text).toContain(longMessage)
  })

  it('are whole in a pipe, without color', async () => {
    const texts = [await screen(auditTail, [], undefined), await listening(undefined)]
    expectScreen('streams-pipe', texts.join(''))
    for (const text of texts) expect(text).not.toMatch(new RegExp(`${esc}|…|Not shown`))
  })

  it('keep their columns while later ones are wider, and name them again where fewer fit', async () => {
    const output = { format: 'plain', columns: undefined, jq: undefined, header: true, utc: false } as const
    const columns = ['name', 'state', 'note', 'id']
    const text = await captured(60, async () => {
      const print = linePrinter(output, columns, columns, { secondary: ['id'] })
      await print([{ name: 'a', state: 'on', note: 'n', id: 'short' }])
      await print([{ name: 'b', state: 'on', note: 'n'.repeat(99), id: uuid(1) }])
      await print([{ name: 'c', state: 'on', note: 'n', id: uuid(2) }])
    })
    const lines = linesOf(text)
    expectToFit(text, 60)
    expect(lines.filter((line) => line.startsWith('NAME'))).toEqual([
      'NAME  STATE  NOTE  ID',
      expect.stringMatching(/^NAME {2}STATE {2}NOTE$/),
    ])
    expect(lines.at(-1)).toMatch(/^c +on +n$/)
    expect(text).toContain('Not shown at 60 columns: id. -o ndjson has every field')
  })
})

/** The color of each row that names a device. */
const deviceColors = (text: string) =>
  [...text.matchAll(new RegExp(`Z {2}(${esc}\\[\\d+m)`, 'g'))].map(([, color]) => color)

it('a table of 10,000 rows has every row, in columns that no row breaks', () => {
  const rows = Array.from({ length: 10_000 }, (_, n) => ({
    id: uuid(n),
    name: `${n % 3 === 0 ? '東京' : n % 3 === 1 ? 'e\u0301' : 'x'.repeat(n % 90)} ${n}`,
    status: n % 2 === 0 ? 'online' : 'offline',
    lastSeenAt: new Date(now - n * 60_000).toISOString(),
  }))
  const options = { ...plainDisplay, header: true, width: 80, now, hasAllIds: true }
  const lines = renderTable(rows, ['id', 'name', 'status', 'lastSeenAt'], options).text.trimEnd().split('\n')
  expect(lines).toHaveLength(10_001)
  const at = (line: string) => displayWidth(line.slice(0, line.search(/(?:on|off)line /)))
  expect(new Set(lines.slice(1).map(at)).size).toBe(1)
  expect(Math.max(...lines.map(displayWidth))).toBeLessThanOrEqual(80)
  expectScreen('rows-80', `${[...lines.slice(0, 6), ...lines.slice(-3)].join('\n')}\n`)
})

describe('standard error', () => {
  const clear = `\r${esc}[2K`
  const long =
    'No device "reception" in this organization, which has many devices whose names begin in the same way, as it seems'

  it('has lines that are broken between words, with an indent that no name can forge', async () => {
    const failure = new CliError(`${long}\n  ${long}`, { exit: 3, hint: long })
    const refusal = new ApiError(404, { code: 'not_found', error: long, requestId: 'req-1' })
    const text = await captured(40, async () => {
      printNote(long)
      await fail(failure, [])
      await fail(refusal, [])
    })
    expectScreen('errors-40', text)
    const words = new Set([...long.split(' '), 'Error:', 'Hint:'])
    for (const line of linesOf(text)) {
      expect([line, displayWidth(line) <= 40]).toEqual([line, true])
      if (!line.startsWith('Request'))
        for (const word of line.trim().split(' ')) expect(words).toContain(word)
    }
    expect(await captured(undefined, () => printNote(long))).toBe(`${long}\n`)
  })

  it('has no rest of a spinner before a row, nor anything in a pipe', async () => {
    const work = async () => {
      showStatus('Importing 1 of 2')
      await writeStdout('row\n')
    }
    expect(await captured(80, work)).toBe(`${clear}Importing 1 of 2${clear}row\n`)
    const wait = () => withSpinner('Waiting', new Promise((resolve) => setTimeout(resolve, 1300)))
    expect(await captured(undefined, wait)).toBe('')
  })

  it('has a status of one line, however narrow the terminal is', async () => {
    const text = await captured(20, () => {
      showStatus('Waiting for the service, which takes its time')
      clearStatus()
    })
    expect(text).toBe(`${clear}Waiting for the se…${clear}`)
  })
})

describe.skipIf(noTerminal)('on a real pseudo-terminal', () => {
  const home = new Home()
  beforeAll(() => home.signIn(service.url))
  afterAll(() => home.remove())

  it('of 80 columns and 24 lines svc top is one screen, and q gives the terminal back', async () => {
    vi.useRealTimers()
    const { stdout, code } = await home.terminal(['top'], { rows: 24, answers: [['verdict', 'q']] })
    expect(code).toBe(0)
    const [enter = '', ...screens] = inNoPort(stdout).split(`${esc}[H`)
    expect(enter).toBe(`${esc}[?1049h${esc}[?25l${esc}[?7l`)
    const first = screens.find((text) => text.includes('AUDIT')) ?? ''
    expectScreen('top-live-80', first.slice(0, first.indexOf(`${esc}[J`)))
    const lines = linesOf(first.replaceAll(`${esc}[K`, ''))
    expect(lines.length).toBeLessThanOrEqual(24)
    expect(Math.max(...lines.map(displayWidth))).toBeLessThanOrEqual(80)
    expect(stdout).toMatch(new RegExp(`${esc}\\[\\?7h${esc}\\[\\?25h${esc}\\[\\?1049l$`))
  })

  it('10,000 devices are a table with every row and color, which no row breaks', async () => {
    vi.useRealTimers()
    const count = 10_000
    service.answers['GET /devices'] = ({ path }) => {
      const query = new URL(path, service.url).searchParams
      const [at, limit] = [Number(query.get('page') ?? 1), Number(query.get('limit') ?? 50)]
      const rows = Array.from({ length: Math.min(limit, count - (at - 1) * limit) }, (_, n) => {
        const of = (at - 1) * limit + n
        const hostname = `${['東京', 'e\u0301', 'x'.repeat(of % 90)][of % 3]} ${of}`
        return {
          id: uuid(of),
          hostname,
          status: of % 2 === 0 ? 'online' : 'offline',
          osType: 'linux',
          tags: [],
        }
      })
      return page(rows, { page: at, limit, total: count })
    }
    const columns = 'hostname,status,osType'
    const { stdout, code } = await home.terminal(['devices', '--all', '--columns', columns])
    expect(code).toBe(0)
    const rows = stdout.split(/\r?\n/).filter((line) => /(?:on|off)line/.test(line))
    expect(rows).toHaveLength(count)
    expect(rows.filter((line) => !line.includes(`${esc}[3`))).toEqual([])
    const plain = rows.map(unstyled)
    const places = plain.map((line) => displayWidth(line.slice(0, line.search(/(?:on|off)line/))))
    expect(new Set(places).size).toBe(1)
    expect(Math.max(...plain.map(displayWidth))).toBeLessThanOrEqual(80)
  })

  it.each(widths)('of %i columns the screen is the same', async (columns) => {
    vi.useRealTimers()
    Object.assign(service.answers, answersAt(Date.now()))
    const { stdout, code } = await home.terminal(['devices'], { columns })
    expect(code).toBe(0)
    expectScreen(`devices-${columns}`, stdout)
  })

  it('Ctrl-C leaves nothing of a spinner', async () => {
    vi.useRealTimers()
    service.answers['GET /orgs/'] = () => new Promise<never>(() => {})
    const { stdout, code } = await home.terminal(['orgs'], { answers: [['Waiting', '\u0003']] })
    expect(code).toBe(130)
    expect(stdout).toMatch(/(?:\^C)?\r\S*\[2K$/)
  })

  it('a beginning of an id can be pasted from it', async () => {
    vi.useRealTimers()
    const { stdout } = await home.terminal(['devices'], { env: { NO_COLOR: '1' } })
    const [pasted = ''] = /01a20c0e-\d{3}…/.exec(stdout) ?? []
    const shown = await home.run(['devices', 'show', pasted, '-q'])
    expect([shown.code, shown.stdout]).toEqual([0, `${firstDevice}\n`])
  })
})

it('the help of every command fits 80 columns, but for commands that are pasted', async () => {
  const program = await Program.open({ root })
  const help = new Help(program, { maxWidth: 80 })
  const ids = program.commands.filter(({ hidden }) => !hidden).map(({ id }) => id)
  const text = await captured(80, async () => {
    for (const id of ids) await help.showHelp([id])
  })
  const lines = stripVTControlCharacters(text).split('\n')
  expect(lines.length).toBeGreaterThan(3000)
  expect(lines.filter((line) => displayWidth(line) > 80 && !/^ +\$ /.test(line))).toEqual([])
})

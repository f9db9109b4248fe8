import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { pauseAfter } from '../../src/cli/live-screen.ts'
import { plainStyle } from '../../src/cli/style.ts'
import { History } from '../../src/cli/top/history.ts'
import { drawTop } from '../../src/cli/top/screen.ts'
import type { Overview } from '../../src/overview/contract.ts'
import { FakeService, problem, uuid } from './fake-service.ts'
import { overview } from './overview-record.ts'
import { failureOf, Home, noTerminal } from './run.ts'

const home = new Home()
const service = new FakeService()
const route = 'GET /overview'

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
  service.answers[route] = { body: overview }
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

/** Samples five seconds apart. */
function historyOf(changes: Partial<Overview>[]): { history: History; last: Overview } {
  const history = new History()
  let last = overview
  for (const [n, change] of changes.entries()) {
    last = { ...overview, time: new Date(Date.parse(overview.time) + n * 5000).toISOString(), ...change }
    history.add(last)
  }
  return { history, last }
}

const screen = (changes: Partial<Overview>[], { columns = 80, rows = 23 } = {}): string[] => {
  const { history, last } = historyOf(changes)
  return drawTop(last, { title: 'svc top', history, style: plainStyle, columns, rows })
}

describe('the screen of svc top', () => {
  it('shows everything at 80 columns and 24 lines, with what was before as lines', () => {
    const { devices, webhooks } = overview
    const offline = (count: number) => ({
      devices: { ...devices!, byStatus: { ...devices!.byStatus, offline: count, online: 1220 - count } },
      webhooks: { ...webhooks!, succeeded: 500 + count * 5, failed: 20 },
    })
    expect(screen([0, 10, 40, 80, 40].map(offline)).join('\n')).toMatchInlineSnapshot(`
      "svc top                                                     2026-01-31 12:00:25Z

      DEVICES            1 234  2 maintenance
        online           1 180  █████
        offline             40  ▁▁▄█▄
        updating            12  █████
        heartbeats/s     19.67  █████

      ALERTS                 7  1 critical, 2 high, 4 medium
        active               6  █████

      WEBHOOKS              14  12 active, 1 paused, 1 failed; 34 deliveries wait
        deliveries/s      0.00   ▂▆█▁
        failures/s        0.00   ▁▁▁▁

      Rollout of 1.2.0: running, wave 2 of 4 since 2026-01-31T11:31:04.000Z
        WAVE         DEVICES              UPDATED  SOAKING  OFFERED  WAITING  FAILED
        1     1 %        100  [########]      100        0        0        0       0
      > 2     10 %       900  [###-----]      161      200      120      417       2
        3     50 %     9 000  [--------]        0        0        0    9 000       0

      AUDIT             12 345  in 3 chains; newest 4 711, 5f3c0a9be1d2
        verdict          sound  3 sound, last verified 2h ago"
    `)
  })

  it('never exceeds the terminal, however long the command runs', () => {
    const { history, last } = historyOf(Array.from({ length: 1200 }, () => ({})))
    for (const [columns, rows] of [
      [80, 23],
      [120, 40],
      [200, 60],
    ] as const) {
      const lines = drawTop(last, { title: 'svc top', history, style: plainStyle, columns, rows })
      expect(Math.max(...lines.map((line) => [...line].length))).toBeLessThanOrEqual(columns)
      expect(lines.length).toBeLessThanOrEqual(rows)
    }
    expect([...history.line('online', 10_000)]).toHaveLength(500)
  })

  it('says what is left out and why, and what a name hides', () => {
    const lines = screen([
      {
        alerts: null,
        rollout: null,
        leftOut: [{ part: 'alerts', reason: 'Permission denied: \u001b[2Jalerts:read' }],
      },
    ])
    expect(lines.at(-1)).toBe('Not shown: alerts (Permission denied: \\u001b[2Jalerts:read)')
    expect(lines.join()).not.toContain('ALERTS')
    expect(lines.join()).not.toContain('Rollout')
  })

  it('shows the worst verdict', () => {
    const verdicts = { sound: 2, tampered: 1, unverifiable: 0, pending: 0 }
    const lines = screen([{ audit: { ...overview.audit!, verdicts } }])
    expect(lines.at(-1)).toMatch(/^ {2}verdict +tampered {2}2 sound, 1 tampered, last verified 2h ago$/)
  })

  it('has rates from the second request on, which are not negative when a webhook is deleted', () => {
    const rate = (before: number, now: number) => {
      const of = (succeeded: number) => ({ webhooks: { ...overview.webhooks!, succeeded } })
      return historyOf([of(before), of(now)]).history.newest('succeeded')
    }
    expect([rate(500, 510), rate(500, 100)]).toEqual([2, 0])
    expect(historyOf([{}]).history.newest('succeeded')).toBeUndefined()
  })
})

describe('svc top', () => {
  it('prints once in a pipe and with --once, and asks for one organization', async () => {
    service.answers['GET /orgs/'] = {
      body: { data: [{ id: uuid(3), slug: 'blue-bakery', name: 'Blue Bakery' }] },
    }
    const { code, stdout } = await home.run(['top'])
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^svc top: system scope, http.*\n\nDEVICES +1 234 {2}2 maint/),
    ])
    expect(stdout).not.toContain('\u001b')
    const once = await home.run(['top', '--once', '--json', '--org', 'blue-bakery'])
    expect(JSON.parse(once.stdout)).toEqual(overview)
    expect(service.calls(route).map(({ path }) => path)).toEqual(['/overview', `/overview?orgId=${uuid(3)}`])
  })

  it('streams a document for each request with --json, and survives a service that is away', async () => {
    const answers = [
      { body: overview },
      problem(503, 'unavailable', 'Maintenance'),
      { body: { ...overview, scope: 'partner' } },
    ]
    service.answers[route] = () => answers.shift() ?? problem(403, 'forbidden', 'No more')
    const result = await home.run(['top', '--json', '--interval', '1s'])
    const scopes = result.stdout
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as Overview).scope)
    expect([result.code, scopes, failureOf(result).message]).toEqual([5, ['system', 'partner'], 'No more'])
  })

  it.each([[['--csv']], [['--columns', 'time']], [['--interval', '10ms']], [['--interval', 'soon']]])(
    'refuses %j',
    async (flags) => {
      const result = await home.run(['top', ...flags])
      expect([result.code, result.stdout, service.seen]).toEqual([2, '', []])
    },
  )

  it('asks a slow service less often', () => {
    expect([pauseAfter(5000, 100), pauseAfter(5000, 3000)]).toEqual([5000, 12_000])
  })

  const enter = '\u001b[?1049h\u001b[?25l\u001b[?7l'
  const leave = '\u001b[?7h\u001b[?25h\u001b[?1049l'

  it.skipIf(noTerminal).each([
    ['q', 0],
    ['\u0003', 130],
  ])('takes the whole terminal until %j, and restores it', async (key, exit) => {
    const { code, stdout } = await home.terminal(['top'], { answers: [['verdict', key]] })
    expect(code).toBe(exit)
    expect(stdout).toContain(enter)
    expect(stdout).toContain('\u001b[32m█')
    expect(stdout.split(leave)).toHaveLength(2)
    expect(stdout.indexOf(leave)).toBeGreaterThan(stdout.lastIndexOf('verdict'))
  })

  it.skipIf(noTerminal)('says on the screen that the service is away, and goes on', async () => {
    const away = { ...problem(429, 'rate_limited', 'Too many requests'), headers: { 'retry-after': '1' } }
    const answers = [{ body: overview }, away, away, away, away]
    service.answers[route] = () => answers.shift() ?? { body: overview }
    const { code, stdout } = await home.terminal(['top', '--interval', '1s'], {
      answers: [['The service answers again', 'q']],
    })
    expect(code).toBe(0)
    expect(stdout).toContain('Too many requests: trying again until it answers')
  })
})

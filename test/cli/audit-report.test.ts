import { readdirSync } from 'node:fs'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type ReportData, reportPage } from '../../src/cli/audit-report/page.ts'
import { hasChromium, startChromium } from '../chromium.ts'
import { FakeService, problem, uuid } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()

const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>\u202egpj.exe`
const entry = {
  id: uuid(1),
  timestamp: '2026-01-31T12:00:00.000Z',
  action: 'user.login',
  category: 'authentication',
  user: { id: uuid(2), name: hostile, email: hostile, role: 'admin' },
  resource: { type: 'device', id: uuid(3), name: hostile },
  result: 'failure',
  ipAddress: null,
  userAgent: null,
  details: {},
  orgId: null,
  errorMessage: null,
  seq: 1,
  checksum: 'aa',
  prevChecksum: 'bb',
}
const person = (n: number, email: string) => ({
  id: uuid(n),
  name: email,
  email,
  count: 100 - n,
  lastActivity: '2026-01-31T12:00:00.000Z',
})
const people = [
  person(2, hostile),
  ...Array.from({ length: 30 }, (_, n) => person(n + 3, `person-${n}@example.com`)),
]
const byAction = [
  { action: 'user.login', count: 12_345 },
  { action: 'a.very.long.action.that.no.chart.has.room.for', count: 3 },
]
const replies = {
  stats: {
    totalEvents: 12_500,
    byCategory: [{ category: 'authentication', count: 12_345 }],
    byUser: [],
    range: { from: null, to: null },
  },
  users: {
    totalUsers: 31,
    totalEvents: 900,
    actionsPerUser: people,
    topUsers: people.slice(0, 5),
    recentActivity: [entry],
  },
  security: {
    totalEvents: 12_348,
    loginAttempts: 12_345,
    failedLogins: 45,
    permissionChanges: 3,
    byAction,
    recentEvents: [entry],
  },
  compliance: { totalEvents: 0, dataAccess: 0, dataChanges: 0, exports: 0, byAction: [], recentEvents: [] },
}
const audit = {
  chains: 3,
  entries: 12_345,
  head: { seq: 4711, checksum: '5f3c0a9be1d2'.repeat(5) },
  verdicts: { sound: 3, tampered: 0, unverifiable: 0, pending: 0 },
  verifiedAt: '2026-01-31T10:00:00.000Z',
}
const data = {
  url: 'https://svc.example.com',
  org: hostile,
  from: '2026-01-01',
  to: undefined,
  madeAt: '2026-01-31T12:00:00.000Z',
  audit,
  ...replies,
} as unknown as ReportData

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /overview'] = { body: { audit } }
  service.answers['GET /audit-logs/stats'] = { body: replies.stats }
  service.answers['GET /audit-logs/reports/user-activity'] = { body: replies.users }
  service.answers['GET /audit-logs/reports/security-events'] = { body: replies.security }
  service.answers['GET /audit-logs/reports/compliance'] = { body: replies.compliance }
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const report = (...args: string[]) => home.run(['audit', 'report', ...args])

describe('the page of svc audit report --html', () => {
  it('escapes every name, and loads and runs nothing', () => {
    const page = reportPage(data)
    expect(page).not.toMatch(/<(script|img|link|iframe|a|object|base)\b|<[^>]* (src|href|on\w+)=|\u202e/)
    expect(page).toContain('&lt;script&gt;alert(1)&lt;/script&gt;')
    expect(page).toContain('\\u202e')
    expect(page).toContain(`content="default-src 'none'; style-src 'unsafe-inline'"`)
    expect(page.replaceAll('http://www.w3.org/', '').match(/https?:/g)).toEqual(['https:'])
  })

  it('has a chart of the largest, and everything as a table', () => {
    const page = reportPage(data)
    expect(page.match(/<svg/g)).toHaveLength(4)
    expect(page).toContain('<td>a.very.long.action.that.no.chart.has.room.for</td><td>3</td>')
    expect(page).toContain('<td>person-29@example.com</td>')
    expect(page.match(/<text[^>]*>person-\d+/g)).toHaveLength(14)
    expect(page).toContain('Nothing in this period')
    expect(page).toContain('Verdict of the service: 3 sound, last verified 2026-01-31 10:00:00 UTC')
  })

  it('takes its colors from the page around it', () => {
    const colors = [...reportPage(data).matchAll(/ fill="([^"]*)"/g)].map(([, color]) => color)
    expect([...new Set(colors)].sort()).toEqual(['currentColor', 'none', 'var(--mark)'])
  })

  it.skipIf(!hasChromium)('fits a phone and a desk, light and dark, and makes no request', async () => {
    const browser = await startChromium()
    try {
      for (const width of [360, 1280]) {
        for (const colorScheme of ['light', 'dark'] as const) {
          const tab = await browser.newPage({ viewport: { width, height: 800 }, colorScheme })
          const troubles: string[] = []
          tab.on('request', (one) => troubles.push(one.url()))
          tab.on('console', (one) => troubles.push(one.text()))
          await tab.setContent(reportPage(data))
          const wide = await tab.evaluate('document.documentElement.scrollWidth')
          const back = await tab.evaluate('getComputedStyle(document.body).backgroundColor')
          expect([width, wide, troubles]).toEqual([width, width, []])
          expect(back).toBe(colorScheme === 'dark' ? 'rgb(16, 20, 24)' : 'rgb(244, 245, 247)')
          const { SCREENSHOTS } = process.env
          if (SCREENSHOTS)
            await tab.screenshot({ path: `${SCREENSHOTS}/${width}-${colorScheme}.png`, fullPage: true })
          await tab.close()
        }
      }
    } finally {
      await browser.close()
    }
  })
})

describe('svc audit report --html', () => {
  it('writes all reports into a new private file', async () => {
    const { code, stdout, stderr } = await report('--html', 'report.html', '--since', '2026-01-01')
    expect([code, stdout, stderr]).toEqual([0, '', 'Written to report.html: open it in a browser\n'])
    expect(home.read('report.html')).toMatch(/^<!doctype html>[\s\S]*<\/html>\n$/)
    expect(home.mode('report.html')).toBe('600')
    expect(service.seen).toHaveLength(5)
    const again = await report('--html', 'report.html', '--json')
    expect([again.code, failureOf(again).message]).toEqual([
      2,
      '--html is a format of its own, without other output flags',
    ])
    expect((await report('--html', 'report.html')).stderr).toContain(
      'report.html exists and is not overwritten',
    )
    expect(service.seen).toHaveLength(5)
  })

  it('writes one report to standard output, also of an organization that was deleted', async () => {
    service.answers['GET /overview'] = problem(404, 'not_found', 'Organization not found')
    const { code, stdout } = await report('security', '--html', '-', '--org', uuid(7))
    expect([code, stdout.startsWith('<!doctype html>')]).toEqual([0, true])
    expect(service.seen.map(({ path }) => path.split('?')[0])).toEqual([
      '/overview',
      '/audit-logs/reports/security-events',
    ])
    expect(service.seen.every(({ path }) => path.includes(`orgId=${uuid(7)}`))).toBe(true)
  })

  it('asks which report is meant where there is no page', async () => {
    const result = await report('--json')
    expect([result.code, failureOf(result).message, service.seen]).toEqual([2, 'Missing KIND', []])
  })

  it('names a file that cannot be written in one line', async () => {
    const { code, stderr } = await report('--html', '/nowhere/report.html')
    expect([code, stderr.trim().split('\n')[0]]).toEqual([
      2,
      expect.stringContaining('Cannot write /nowhere/report.html'),
    ])
    expect(stderr).not.toContain('    at ')
    expect(service.seen).toEqual([])
  })

  it('replaces no file that comes while it reads', async () => {
    service.answers['GET /audit-logs/stats'] = () => {
      home.write('raced.html', 'of somebody else')
      return { body: replies.stats }
    }
    const { code, stderr } = await report('--html', 'raced.html')
    expect([code, stderr]).toEqual([2, expect.stringContaining('raced.html exists and is not overwritten')])
    expect(readdirSync(home.path).filter((name) => name.startsWith('raced'))).toEqual(['raced.html'])
    expect(home.read('raced.html')).toBe('of somebody else')
  })

  it('leaves no file when a request fails', async () => {
    service.answers['GET /audit-logs/reports/compliance'] = problem(403, 'forbidden', 'Permission denied')
    expect((await report('--html', 'half.html')).code).toBe(5)
    expect(readdirSync(home.path).filter((name) => name.startsWith('half'))).toEqual([])
  })
})

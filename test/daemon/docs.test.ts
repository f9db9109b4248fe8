import { hash } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { hasChromium, startChromium } from '../chromium.ts'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'

const entries = entriesOf(api)

/** Called by agents and by browsers, which no command stands for. */
const withoutCommand = [
  'agentCommands.list',
  'agentCommands.result',
  'agentDownloads.agent',
  'agentDownloads.component',
  'agentKeys.register',
  'agentTokens.confirm',
  'agentTokens.rotate',
  'agentUpdates.status',
  'agentVersions.info',
  'agentVersions.latest',
  'agents.config',
  'agents.enroll',
  'agents.heartbeat',
  'agents.inventory',
  'auth.register',
  'auth.registerPartner',
  'auth.verifyEmail',
  'diagnosticLogs.submit',
  'eventLogs.submit',
  'ssoSignIn.acs',
  'ssoSignIn.callback',
  'ssoSignIn.login',
  'ssoSignIn.metadata',
]

describe('/docs', () => {
  let service: TestService
  let chromium: Browser
  let index: string
  let slugs: string[]
  const pages = new Map<string, string>()
  const open = async (path: string) => {
    const reply = await fetch(service.url + path)
    return {
      status: reply.status,
      policy: reply.headers.get('content-security-policy'),
      html: await reply.text(),
    }
  }

  beforeAll(async () => {
    service = await startService(() => openMigrated('sqlite'))
    if (hasChromium) chromium = await startChromium()
    index = (await open('/docs')).html
    slugs = [...new Set([...index.matchAll(/href="\/docs\/([\w-]+)"/g)].map(([, slug]) => slug!))]
    for (const slug of slugs) pages.set(slug, (await open(`/docs/${slug}`)).html)
  })
  afterAll(async () => {
    await chromium?.close()
    await service.close()
  })

  it('has an index of every endpoint, and each link leads to its anchor', () => {
    const linked = [...index.matchAll(/href="\/docs\/([\w-]+)#([\w.]+)"/g)].map(([, slug, name]) => ({
      slug,
      name,
    }))
    expect(linked.map(({ name }) => name).sort()).toEqual(entries.map(({ name }) => name).sort())
    for (const { slug, name } of linked)
      expect(pages.get(slug!)!.split(`<article id="${name}">`)).toHaveLength(2)
  })

  it('shows for each endpoint a call with curl, the command of svc that calls it, and its errors', () => {
    const without: string[] = []
    for (const { name, entry } of entries) {
      const slug = entry.tag.toLowerCase().replaceAll(/\W+/g, '-')
      const article = pages.get(slug)!.split(`<article id="${name}">`)[1]!.split('</article>')[0]!
      const path = entry.path.split(':')[0]!.replace(/\/$/, '')
      expect(article).toContain(`&quot;$SVC_URL/api/v1${path}`)
      expect(article).toContain('<code>rate_limited</code>')
      for (const code of entry.errors ?? []) expect(article).toContain(`<code>${code}</code>`)
      if (!article.includes('With svc')) without.push(name)
    }
    expect(without.sort()).toEqual(withoutCommand)
    expect(pages.get('devices')).toContain('svc devices --org blue-bakery --status offline')
    const deletion = pages.get('tenancy')!.split('<article id="orgs.deletion">')[1]!
    expect(deletion.split('</article>')[0]).toContain('svc orgs delete blue-bakery --dry-run')
  })

  it('loads nothing from outside, and runs no script but the search', async () => {
    for (const path of ['/docs', ...slugs.map((slug) => `/docs/${slug}`)]) {
      const { policy, html } = await open(path)
      const digests = (tag: string) =>
        [...html.matchAll(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`, 'g'))].map(
          ([, text = '']) => `'sha256-${hash('sha256', text, 'base64')}'`,
        )
      const script = digests('script').map((digest) => ` script-src ${digest};`)
      expect(policy).toBe(
        `default-src 'none'; style-src ${digests('style')};${script} form-action 'none'; frame-ancestors 'none'; base-uri 'none'`,
      )
      expect(script).toHaveLength(path === '/docs' ? 1 : 0)
      expect(html).not.toMatch(/ (style|on\w+)=|<link|<img|src=/)
    }
  })

  it('answers in the standard format where there is no such page', async () => {
    const { status, html } = await open('/docs/nothing')
    expect([status, JSON.parse(html).code]).toEqual([404, 'not_found'])
  })

  describe.skipIf(!hasChromium)('in a real browser', () => {
    it.each(['light', 'dark'] as const)('fits screens of 360 and 1280 pixels, %s', async (colorScheme) => {
      const page = await chromium.newPage({ colorScheme, viewport: { width: 1280, height: 800 } })
      for (const path of ['/docs', ...slugs.map((slug) => `/docs/${slug}`)]) {
        await page.goto(service.url + path)
        await page.evaluate('for (const one of document.querySelectorAll("details")) one.open = true')
        for (const width of [1280, 360]) {
          await page.setViewportSize({ width, height: 800 })
          expect([path, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([path, width])
        }
      }
      await page.close()
    })

    it('finds endpoints by words of their path and summary', async () => {
      const page = await chromium.newPage()
      await page.goto(`${service.url}/docs`)
      await page.keyboard.press('/')
      await page.keyboard.type('decommission device')
      const shown = page.locator('.endpoints li:visible')
      expect(await shown.count()).toBeGreaterThan(0)
      expect((await page.getByRole('status').textContent())!).toBe(`${await shown.count()} endpoints`)
      await page.getByRole('searchbox').fill('decommission device nothing')
      expect([await shown.count(), await page.getByRole('status').textContent()]).toEqual([0, '0 endpoints'])
      await page.getByRole('searchbox').fill('PATCH /devices/:id')
      await shown.first().getByRole('link').click()
      await page.waitForURL(/\/docs\/devices#devices\.update$/)
      await page.close()
    })
  })
})

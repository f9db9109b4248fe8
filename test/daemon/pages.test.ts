import { hash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { withCommands } from '../../src/core/web-page.ts'
import * as links from '../../src/messages/links.ts'
import { failures } from '../../src/sso/failures.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'

const org = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'
const browsers = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'

const start = (env: Record<string, string> = {}) => startService(() => openMigrated('sqlite'), { env })

async function open(url: string, accept = browsers) {
  const reply = await fetch(url, { headers: { accept }, redirect: 'manual' })
  const { status, headers } = reply
  return { status, headers, type: headers.get('content-type'), html: await reply.text() }
}

/** The CSP digests of the contents of a tag. */
const digestsOf = (html: string, tag: string): string[] =>
  [...html.matchAll(new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`, 'g'))].map(
    ([, text = '']) => `'sha256-${hash('sha256', text, 'base64')}'`,
  )

describe('the pages of the service', () => {
  it('load nothing from other origins, run only their own scripts, and are not cached', async () => {
    const { url } = await start()
    const paths = ['/login', '/login?error=sso_denied', '/login?ssoTest=passed']
    const mailLinks = [links.inviteLink, links.resetLink, links.verifyLink].map((link) => link(url, 'secret'))
    for (const address of [
      ...paths.map((path) => url + path),
      ...mailLinks,
      links.forgotLink(url),
      links.loginLink(url),
    ]) {
      const { status, headers, type, html } = await open(address)
      expect([status, type]).toEqual([200, 'text/html; charset=utf-8'])
      expect(headers.get('referrer-policy')).toBe('no-referrer')
      expect(headers.get('cache-control')).toBe('no-store')
      const policy = headers.get('content-security-policy')!
      const [style] = digestsOf(html, 'style')
      const [script] = digestsOf(html, 'script')
      expect(policy).toBe(
        `default-src 'none'; style-src ${style}; ${script ? `script-src ${script}; connect-src 'self'; ` : ''}form-action 'none'; base-uri 'none'; frame-ancestors 'none'`,
      )
      expect(html).not.toMatch(/ (style|on\w+)=|<link|<img|src=/)
      // Each view of a page has its own heading, in its template.
      expect(html.replaceAll(/<template[\s\S]*?<\/template>/g, '').match(/<h1/g)).toHaveLength(1)
      expect(html).toMatch(/^<!doctype html>\n<html lang="en">/)
      expect(html).not.toContain('secret"')
    }
  })

  it('describe a failure in their own words, and link to a retry for a known organization', async () => {
    const { url } = await start()
    const { html } = await open(`${url}/login?error=user_not_found&message=Call+us&hint=555&orgId=${org}`)
    expect(html).toContain(`${failures.user_not_found.message}.`)
    expect(html).toContain(`href="/api/v1/sso/login/${org}"`)
    expect(html).not.toMatch(/Call us|555/)
    const wrong = ['%3Cscript%3Ealert(1)%3C/script%3E', 'toString', 'x&error=y']
    for (const error of wrong) {
      const unknown = await open(`${url}/login?error=${error}&orgId=%22%3E%3Cb%3E`)
      expect(unknown.html).toContain('Code: <code>sso_error</code>')
      expect(unknown.html).not.toMatch(/alert\(1|<b>|toString|Try again<\/a>/)
    }
    expect((await open(`${url}/login?ssoTest=%3Cb%3E&error=x`)).html).toContain('The trial is over')
  })

  it('name the service by its public URL', async () => {
    const { url } = await start({ PUBLIC_URL: 'https://svc.example.com' })
    expect((await open(`${url}/login`)).html).toContain('svc login --url https://svc.example.com')
    expect((await open(`${url}/accept-invite?token=t`)).html).toContain(
      'svc invite accept --url https://svc.example.com',
    )
  })

  it('are served to browsers only; other clients get JSON', async () => {
    const { url } = await start()
    const login = `${url}/api/v1/sso/login/${org}`
    const refused = await open(login)
    expect([refused.status, refused.type]).toEqual([404, 'text/html; charset=utf-8'])
    expect(refused.html).toContain('No active SSO provider for this organization.')
    expect(refused.html).toContain(`Request: <code>${refused.headers.get('x-request-id')}</code>`)
    // The input is not repeated.
    const strange = await open(`${login}?call-555=now`)
    expect([strange.status, strange.html]).toEqual([400, expect.not.stringContaining('call-555')])
    const programs = [
      'application/json',
      '*/*',
      'application/json, text/html',
      'text/html;q=0.5, application/json',
    ]
    for (const accept of programs) {
      const { status, type, headers } = await open(login, accept)
      expect([accept, status, type]).toEqual([accept, 404, 'application/json; charset=utf-8'])
      expect(headers.get('vary')).toBe('accept')
    }
    expect((await open(`${url}/api/v1/orgs/`)).type).toBe('application/json; charset=utf-8')
    const limited = await start({ RATE_LIMIT_SSO: '1/300', RATE_LIMIT_SSO_IP: '1/300' })
    await open(`${limited.url}/api/v1/sso/login/${org}`)
    const again = await open(`${limited.url}/api/v1/sso/login/${org}`)
    expect([again.status, again.html]).toEqual([429, expect.stringMatching(/Try again in \d+ s\./)])
    expect(again.headers.get('retry-after')).toMatch(/^\d+$/)
    const unknown = await start({ NODE_ENV: 'production', SVC_ADMIN_PASSWORD: 'correct horse battery' })
    expect((await open(`${unknown.url}/api/v1/sso/login/${org}`)).status).toBe(501)
  })
})

it('commands in messages are marked up as code, and nothing else is', () => {
  const hints = Object.values(failures).map(({ hint }) => withCommands(hint))
  for (const html of hints) expect(html.replaceAll(/<code>.*?<\/code>/g, '')).not.toMatch(/svc |--/)
  const commands = (text: string) =>
    [...withCommands(text).matchAll(/<code>(.*?)<\/code>/g)].map(([, command]) => command)
  expect(commands('svc sso test PROVIDER tells what is wrong')).toEqual(['svc sso test PROVIDER'])
  expect(commands('Ask: svc sso list.')).toEqual(['svc sso list'])
  expect(commands('svc sso update PROVIDER --client-id … --client-secret -.')).toEqual([
    'svc sso update PROVIDER --client-id … --client-secret -',
  ])
  expect(commands('--scopes: svc sso update P --scopes "openid email".')).toEqual([
    'svc sso update P --scopes &quot;openid email&quot;',
  ])
  expect(withCommands('a <b> & "svc orgs"')).toBe('a &lt;b&gt; &amp; &quot;<code>svc orgs</code>&quot;')
})

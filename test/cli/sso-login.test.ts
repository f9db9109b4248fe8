import { hash } from 'node:crypto'
import { chmodSync, existsSync, readFileSync, rmSync } from 'node:fs'
import type { RequestOptions } from 'node:http'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { startLoopback } from '../../src/cli/loopback.ts'
import { formatSteps } from '../../src/cli/sso-trial.ts'
import { plainStyle } from '../../src/cli/style.ts'
import { until } from '../daemon/process.ts'
import { FakeService, identity, me, organization, page, problem, uuid } from './fake-service.ts'
import { failureOf, Home, noTerminal, type Result } from './run.ts'

const service = new FakeService()
let home: Home
const orgId = uuid(10)
const mine = {
  ...me,
  scope: 'organization',
  orgId,
  memberships: [{ scope: 'organization', id: orgId, name: 'Blue Bakery', slug: 'blue-bakery', role: 'x' }],
}
const tokens = (n: number) => ({
  accessToken: `access-${n}`,
  refreshToken: `refresh-${n}`,
  expiresInSeconds: 900,
})

beforeAll(() => service.start())
afterAll(() => service.stop())
beforeEach(() => {
  home = new Home({ SVC_URL: service.url, SVC_CREDENTIAL_STORE: 'file' })
  service.seen.length = 0
  service.answers[`GET /sso/check/${orgId}`] = {
    body: { ssoEnabled: true, provider: { id: uuid(70), name: 'Okta', type: 'oidc' } },
  }
  service.answers['POST /sso/exchange'] = { body: tokens(1) }
  service.answers['GET /auth/me'] = { body: mine }
})
afterEach(() => home.remove())

/** Runs svc with a fake browser that only records the address; `then` acts like the browser. */
async function svc(args: string[], then: (address: URL) => Promise<unknown>): Promise<Result> {
  const sent = join(home.path, 'sent')
  rmSync(sent, { force: true })
  const script = home.write('browser.sh', `#!/bin/sh\nprintf %s "$1" > '${sent}'\n`)
  chmodSync(script, 0o755)
  const running = home.run(args, { env: { BROWSER: script } })
  await until(() => existsSync(sent) && readFileSync(sent, 'utf8') !== '', 15_000)
  await then(new URL(readFileSync(sent, 'utf8')))
  return running
}

const redirectOf = (address: URL): URL => new URL(address.searchParams.get('redirect')!)
const post = (url: URL, headers: Record<string, string> = {}, body = '{"code":"the-code"}') =>
  fetch(url, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', origin: url.origin, ...headers },
  })

describe('svc login --sso', () => {
  it('signs in through a browser with a code that is useless without its verifier', async () => {
    let challenge = ''
    const result = await svc(['login', '--sso', orgId, '--json'], async (address) => {
      expect(address.href).toMatch(`${service.url}/api/v1/sso/login/${orgId}?redirect=`)
      challenge = address.searchParams.get('challenge')!
      const reply = await post(redirectOf(address))
      expect([reply.status, await reply.json()]).toEqual([200, { signedIn: true }])
    })
    expect(result.code).toBe(0)
    expect(JSON.parse(result.stdout)).toMatchObject({ orgId, user: { email: identity.email } })
    const { code, verifier } = service.calls('POST /sso/exchange')[0]!.body as Record<string, string>
    expect([code, hash('sha256', verifier!, 'base64url')]).toEqual(['the-code', challenge])
    expect(result.stderr).toContain('for 10 minutes at most')
    expect(result.stderr).not.toContain('the-code')
    // From now on also by its name.
    const again = await svc(['login', '--sso', 'Blue Bakery'], async (address) => {
      expect(address.pathname).toBe(`/api/v1/sso/login/${orgId}`)
      await post(redirectOf(address))
    })
    expect(again.code).toBe(0)
  })

  it('explains why a user was refused, in its own words', async () => {
    const result = await svc(['login', '--sso', orgId, '--json'], async (address) => {
      const back = redirectOf(address)
      back.search = '?error=user_not_found&message=Call+us&hint=555'
      const html = await (await fetch(back)).text()
      expect(html).toContain('There is no account for you here')
      expect(html).not.toMatch(/Call us|555/)
    })
    expect([result.code, result.stdout]).toEqual([4, ''])
    expect(failureOf(result)).toMatchObject({
      code: 'user_not_found',
      message: 'There is no account for you here',
    })
  })

  it('reports a refused code, in the browser too', async () => {
    service.answers['POST /sso/exchange'] = problem(400, 'invalid_exchange_code', 'Invalid or expired code')
    const { code, stderr } = await svc(['login', '--sso', orgId], async (address) => {
      const reply = await post(redirectOf(address))
      expect([reply.status, await reply.json()]).toEqual([400, { error: 'Invalid or expired code' }])
    })
    expect([code, stderr]).toEqual([4, expect.stringContaining('Invalid or expired code')])
  })

  it('does not start if it cannot succeed', async () => {
    service.answers[`GET /sso/check/${orgId}`] = { body: { ssoEnabled: false } }
    const off = await home.run(['login', '--sso', orgId, '--json'])
    expect([off.code, failureOf(off).code]).toEqual([4, 'sso_off'])
    const named = await home.run(['login', '--sso', 'blue-bakery', '--json'])
    expect([named.code, failureOf(named).message]).toEqual([
      2,
      '--sso takes the id of an organization here, not "blue-bakery"',
    ])
    for (const flags of [
      ['--email', 'a@b.c'],
      ['--org', 'x'],
      ['--oidc', 'github'],
    ])
      expect((await home.run(['login', '--sso', orgId, ...flags])).code).toBe(2)
  })

  it('finds an organization by name for signed-in users', async () => {
    home.signIn(service.url)
    service.answers['GET /orgs/'] = { body: { data: [organization(10, 'blue-bakery', 'Blue Bakery')] } }
    const { code } = await svc(['login', '--sso', 'blue-bakery'], (address) => post(redirectOf(address)))
    expect(code).toBe(0)
  })

  it('exits with 130 on Ctrl-C', async () => {
    const { code, stderr } = await home.run(['login', '--sso', orgId, '--no-browser'], {
      signalAfter: { text: 'Ctrl-C ends', signal: 'SIGINT' },
    })
    expect([code, stderr]).toEqual([
      130,
      expect.stringContaining(`Open this address in a browser:\n  ${service.url}`),
    ])
  })

  it('verifies a second factor with a code, or explains how', async () => {
    const enrolled = { ...mine, user: { ...identity, mfaEnabled: true, mfaMethod: 'totp' } }
    service.answers['GET /auth/me'] = ({ headers }) => ({
      body: { ...enrolled, mfaVerified: headers.authorization === 'Bearer access-2' },
    })
    service.answers['POST /auth/mfa/verify'] = {
      body: { user: identity, tokens: tokens(2), mfaRequired: false },
    }
    const unasked = await svc(['login', '--sso', orgId], (address) => post(redirectOf(address)))
    expect([unasked.code, unasked.stderr]).toEqual([
      0,
      expect.stringContaining(`svc login --sso ${orgId} --otp CODE`),
    ])
    const proven = await svc(['login', '--sso', orgId, '--otp', '123456', '--json'], (address) =>
      post(redirectOf(address)),
    )
    expect(JSON.parse(proven.stdout)).toMatchObject({ mfaVerified: true })
    expect(service.calls('POST /auth/mfa/verify')).toMatchObject([
      { body: { code: '123456' }, headers: { authorization: 'Bearer access-1' } },
    ])
  })

  it.skipIf(noTerminal)(
    'prompts for the code of a second factor at a terminal, again after a mistake',
    async () => {
      const enrolled = { ...mine, user: { ...identity, mfaEnabled: true, mfaMethod: 'totp' } }
      service.answers['GET /auth/me'] = { body: enrolled }
      service.answers['POST /auth/mfa/verify'] = ({ body }) =>
        (body as { code: string }).code === '123456'
          ? { body: { user: identity, tokens: tokens(2), mfaRequired: false } }
          : problem(401, 'invalid_mfa_code', 'Invalid MFA code')
      const pasted: [string, string] = ['Address or code', 'a-code-that-was-pasted\r']
      const login = ['login', '--sso', orgId, '--no-browser']
      const { code } = await home.terminal(login, {
        answers: [pasted, ['Code of your authenticator', '000000\r'], ['not right', '123456\r']],
      })
      expect([code, service.calls('POST /auth/mfa/verify').length]).toEqual([0, 2])
      const none = await home.terminal(login, { answers: [pasted, ['Code of your authenticator', '-\r']] })
      expect([none.code, service.calls('POST /auth/mfa/verify').length]).toEqual([0, 2])
    },
  )

  it.skipIf(noTerminal)('accepts the pasted final address of a browser on another machine', async () => {
    const { code, stdout } = await home.terminal(['login', '--sso', orgId, '--no-browser'], {
      answers: [
        ['Address or code', 'http://127.0.0.1:5000/x\r'],
        ['no code in that', 'http://127.0.0.1:5000/x#ssoCode=a-code-that-was-pasted\r'],
      ],
    })
    expect([code, stdout]).toEqual([0, expect.stringContaining('Signed in to')])
    expect(service.calls('POST /sso/exchange')[0]?.body).toMatchObject({ code: 'a-code-that-was-pasted' })
  })
})

describe('the loopback server', () => {
  it('answers one browser, at its own address, from its own page', async () => {
    const { redirect, callback, close } = await startLoopback()
    const url = new URL(redirect)
    expect(url.href).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/[\w-]{22}$/)
    const page = await fetch(url)
    expect(page.headers.get('content-security-policy')).toMatch(
      /^default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'; connect-src 'self'; form-action 'none'; /,
    )
    const status = async (...asked: Parameters<typeof post>) => (await post(...asked)).status
    expect(await status(new URL('/', url))).toBe(404)
    expect((await fetch(new URL('/?error=sso_denied', url))).status).toBe(404)
    expect(await status(url, { origin: 'https://evil.example' })).toBe(403)
    expect(await status(url, { 'sec-fetch-site': 'cross-site' })).toBe(403)
    expect(await status(url, { 'content-type': 'text/plain' })).toBe(403)
    expect(await status(url, {}, 'x'.repeat(2000))).toBe(400)
    expect(await status(url, {}, '{"code":1}')).toBe(400)
    expect(await statusAt(url, { headers: { host: 'evil.example' } })).toBe(404)
    // Other pages can send the browser there, but cannot end the sign-in.
    expect(await statusAt(url, { path: '//[' })).toBe(404)
    const first = post(url)
    const came = await callback
    expect(came).toMatchObject({ code: 'the-code' })
    expect(await status(url)).toBe(409)
    if ('code' in came) came.answer()
    expect((await first).status).toBe(200)
    await close()
    await expect(fetch(url)).rejects.toThrow()
  })

  /** The status of a request with another Host header or path. */
  async function statusAt(url: URL, asked: RequestOptions): Promise<number | undefined> {
    const { request } = await import('node:http')
    return new Promise((resolve, reject) => {
      request(url, asked, (reply) => resolve(reply.resume().statusCode))
        .on('error', reject)
        .end()
    })
  }
})

describe('svc sso test --login', () => {
  const path = `/sso/providers/${uuid(70)}/test-logins`
  const step = { step: 'A code came', ok: true, received: null, code: null, hint: null }
  const failed = { ...step, ok: false, step: 'No', received: 'x', code: 'sso_denied', hint: 'Ask' }
  beforeEach(() => {
    home.signIn(service.url)
    service.answers['GET /sso/providers'] = page([{ id: uuid(70), name: 'Okta' }])
    service.answers[`POST ${path}`] = {
      status: 201,
      body: { id: uuid(71), loginUrl: `${service.url}/api/v1/sso/login/${orgId}?test=t` },
    }
  })

  it.each([
    ['passed', 0],
    ['failed', 1],
  ])('shows the steps of a trial that %s, and exits with %i', async (status, exit) => {
    const came = { status, steps: status === 'passed' ? [step] : [step, failed] }
    service.answers[`GET ${path}/${uuid(71)}`] = { body: came }
    const { code, stdout } = await svc(['sso', 'test', 'Okta', '--login', '--json'], async () => {
      const { redirect } = service.calls(`POST ${path}`)[0]!.body as { redirect: string }
      expect(await (await fetch(`${redirect}?ssoTest=${status}`)).text()).toContain('The trial is over')
    })
    expect([code, JSON.parse(stdout)]).toEqual([exit, came])
  })

  it('does not need the browser to return, as the service knows when the trial is over', async () => {
    service.answers[`GET ${path}/${uuid(71)}`] = { body: { status: 'passed', steps: [step] } }
    const { code, stdout } = await home.run(['sso', 'test', 'Okta', '--login', '--no-browser'])
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^✓ A code came\n/)])
  })

  it('opens only web pages', async () => {
    service.answers[`POST ${path}`] = { status: 201, body: { id: uuid(71), loginUrl: 'file:///etc/passwd' } }
    const { code, stderr } = await home.run(['sso', 'test', 'Okta', '--login'])
    expect([code, stderr]).toEqual([1, expect.stringContaining('not a web page')])
  })

  it('shows no control sequences', () => {
    const steps = [{ ...failed, received: 'a\u001b[2Jb' }]
    expect(formatSteps({ status: 'failed', steps }, plainStyle)).toBe(
      '✗ No\n    a\\u001b[2Jb\n    Code: sso_denied\n    Hint: Ask\nThe sign-in does not work\n',
    )
  })
})

describe.skipIf(noTerminal)('svc sso create at a terminal', () => {
  it('prompts for what a provider needs', async () => {
    home.signIn(service.url)
    const okta = {
      id: 'okta',
      name: 'Okta',
      type: 'oidc',
      issuer: 'https://{domain}.okta.com',
      entityId: null,
      ssoUrl: null,
      certificateInstructions: null,
    }
    service.answers['GET /sso/presets'] = { body: { data: [okta] } }
    service.answers['POST /sso/providers'] = { status: 201, body: { data: { id: uuid(70), name: 'Okta' } } }
    const { code } = await home.terminal(['sso', 'create', '--org', orgId, '-q'], {
      columns: 120,
      answers: [
        ['Kind of provider', '\r'],
        ['Issuer, such as', 'https://bakery.okta.com\r'],
        ['Client id', '0oa1\r'],
        ['Client secret', 'hush\r'],
        ['What people know it as', 'Okta\r'],
      ],
    })
    expect([code, service.calls('POST /sso/providers')[0]?.body]).toEqual([
      0,
      {
        orgId,
        name: 'Okta',
        preset: 'okta',
        issuer: 'https://bakery.okta.com',
        clientId: '0oa1',
        clientSecret: 'hush',
      },
    ])
  })
})

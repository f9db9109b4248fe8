import { chmodSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, BrowserContext, ConsoleMessage, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { hasChromium, startChromium } from '../chromium.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { Home, type Result } from '../cli/run.ts'
import { until } from '../daemon/process.ts'
import { aboveStorage } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld, roleOf, type World } from '../world.ts'
import { certifiedProvider } from './certified.ts'
import { addMember } from './sign-in/sign-in-fixture.ts'

const password = 'correct horse battery staple'
const accounts = {
  dora: { email: 'dora@bakery.example.com', name: 'Dora Bakes' },
  newcomer: { email: 'nina@bakery.example.com', name: 'Nina <New>' },
  stranger: { email: 'sam@elsewhere.example', name: 'Sam' },
}

/** Browsers request a favicon from every site, and most have none. */
const isComplaint = (line: ConsoleMessage): boolean =>
  line.type() === 'error' && !line.text().startsWith('Failed to load resource')

aboveStorage((kind, open) => {
  const onSqlite = it.runIf(kind === 'sqlite')

  describe.skipIf(!hasChromium || !hasOpenssl)('single sign-on in a real browser', () => {
    const certificate = testCertificate()
    const home = new Home()
    /** Console errors of pages, in particular violations of the content security policy. */
    const complaints: string[] = []
    let service: TestService
    let world: World
    let idp: Awaited<ReturnType<typeof certifiedProvider>>
    let chromium: Browser
    let providerId: string
    let orgId: string

    const admin = () => service.client(world.tokens.system)
    const change = (body: object) =>
      admin().call(api.ssoProviders.update, { params: { id: providerId }, body })

    beforeAll(async () => {
      const env = { OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8', OUTBOUND_CA_FILE: certificate.file }
      service = await startService(open, { env })
      world = await buildWorld(service)
      orgId = world.orgs.bakery.id
      const redirectUri = `${service.url}/api/v1/sso/callback`
      idp = await certifiedProvider(certificate, { redirectUri, accounts })
      const its = { name: 'Certified', type: 'oidc', issuer: idp.issuer, clientId: 'svc' } as const
      const { data, warning } = await admin().call(api.ssoProviders.create, {
        body: { ...its, orgId, clientSecret: 'hush', autoProvision: false },
      })
      expect(warning).toBeUndefined()
      providerId = data.id
      await admin().call(api.ssoProviders.setStatus, {
        params: { id: providerId },
        body: { status: 'active' },
      })
      chromium = await startChromium()
    })
    afterAll(async () => {
      await chromium?.close()
      await idp?.close()
      await service?.close()
      home.remove()
    })

    afterEach(() => expect(complaints.splice(0)).toEqual([]))

    /** Opens a URL in a browser, and fills in the login form if the provider shows it. */
    async function at(url: string, login: string, by?: BrowserContext): Promise<Page> {
      const context = by ?? (await chromium.newContext({ ignoreHTTPSErrors: true }))
      const page = await context.newPage()
      page.setDefaultTimeout(10_000)
      page.on('console', (line) => void (isComplaint(line) && complaints.push(line.text())))
      page.on('pageerror', ({ message }) => void complaints.push(message))
      await page.goto(url)
      if (page.url().startsWith(idp.issuer)) {
        await page.getByLabel('Login').fill(login)
        await page.getByRole('button').click()
      }
      return page
    }
    const begin = (login: string, by?: BrowserContext) =>
      at(`${service.url}/api/v1/sso/login/${orgId}`, login, by)
    const heading = (page: Page, name: string) => page.getByRole('heading', { level: 1, name }).waitFor()
    const said = async (page: Page) =>
      ((await page.locator('main').textContent()) ?? '').replaceAll(/\s+/g, ' ').trim()

    it('recognizes an account, shows who is signed in, and signs out', async () => {
      await addMember(service, orgId, accounts.dora.email)
      const page = await begin('dora')
      await heading(page, 'You are signed in')
      expect(await said(page)).toContain(
        `As ${accounts.dora.email}, ${accounts.dora.email}; organization ${world.orgs.bakery.name}.`,
      )
      // The code is not in the history, and nothing is stored where a script could read it.
      expect(page.url()).toBe(`${service.url}/login`)
      expect(await page.evaluate('[localStorage.length, sessionStorage.length, document.cookie]')).toEqual([
        0,
        0,
        expect.stringMatching(/^service_csrf_token=[0-9a-f]+$/),
      ])
      const cookies = await page.context().cookies(`${service.url}/api/v1/auth/`)
      expect(cookies.find(({ name }) => name === 'service_refresh_token')).toMatchObject({ httpOnly: true })
      // The cookie keeps the session after a reload.
      await page.reload()
      await heading(page, 'You are signed in')
      await page.getByRole('button', { name: 'Sign out' }).click()
      await heading(page, 'You are signed out')
      expect(await page.context().cookies()).not.toContainEqual(
        expect.objectContaining({ name: 'service_refresh_token' }),
      )
      await page.reload()
      await heading(page, 'Sign in')
      // The provider still has its session: the user is signed in without a prompt, by the subject.
      await service.storage.write((tx) =>
        tx
          .updateTable('users')
          .set({ email: 'moved@bakery.example.com' })
          .where('email', '=', accounts.dora.email)
          .execute(),
      )
      const again = await begin('nobody is asked', page.context())
      await heading(again, 'You are signed in')
      expect(await said(again)).toContain('moved@bakery.example.com')
      await page.context().close()
    })

    onSqlite('refuses an uninvited user and another domain, and explains what to do', async () => {
      const page = await begin('newcomer')
      await heading(page, 'You are not signed in')
      expect(await said(page)).toMatch(
        /^You are not signed in There is no account for you here\. What to do Ask .* Code: user_not_found$/,
      )
      expect(await page.getByRole('alert').textContent()).toBe('There is no account for you here.')
      const again = page.getByRole('link', { name: 'Try again' })
      expect(await again.getAttribute('href')).toBe(`/api/v1/sso/login/${orgId}`)
      await page.context().close()
      await change({ allowedDomains: 'bakery.example.com' })
      const other = await begin('stranger')
      await heading(other, 'You are not signed in')
      expect(await said(other)).toContain('E-mail addresses of this domain may not sign in here.')
      await other.context().close()
      const denied = await begin('nobody')
      expect(await said(denied)).toContain('The identity provider did not let you in.')
      await denied.context().close()
    })

    onSqlite('creates an account when allowed, and shows the claims of the provider as text', async () => {
      await change({ autoProvision: true, defaultRoleId: roleOf('Org Viewer', 'organization') })
      const page = await begin('newcomer')
      await heading(page, 'You are signed in')
      expect(await said(page)).toContain('As Nina <New>, nina@bakery.example.com;')
      await page.context().close()
    })

    onSqlite('is the only way to sign in when enforced', async () => {
      const email = 'pat@bakery.example.com'
      const id = await addMember(service, orgId, email)
      const hash = await hashPassword(password)
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ password_hash: hash }).where('id', '=', id).execute(),
      )
      const login = () => service.client().call(api.auth.login, { body: { email, password } })
      expect((await login()).tokens).not.toBeNull()
      await change({ enforceSSO: true, force: true })
      await expect(login()).rejects.toMatchObject({ status: 401, code: 'invalid_credentials' })
      const page = await begin('newcomer')
      await heading(page, 'You are signed in')
      await page.context().close()
      await change({ enforceSSO: false })
    })

    /** Runs svc with a fake browser that only records the address; `then` opens it. */
    async function svc(
      args: string[],
      then: (address: string) => Promise<void>,
      env: Record<string, string> = {},
    ): Promise<Result> {
      const sent = join(home.path, `sent-${args.length}-${Date.now()}`)
      const script = home.write('browser.sh', `#!/bin/sh\nprintf %s "$1" > '${sent}'\n`)
      chmodSync(script, 0o755)
      const running = home.run(args, { env: { BROWSER: script, SVC_URL: service.url, ...env } })
      try {
        await until(() => existsSync(sent) && readFileSync(sent, 'utf8') !== '', 15_000)
        await then(readFileSync(sent, 'utf8'))
      } catch (error) {
        const { stdout, stderr } = await running
        throw new Error(`${(error as Error).message}\n${stdout}\n${stderr}`)
      }
      return running
    }

    onSqlite('svc login --sso signs in a terminal', async () => {
      const args = ['login', '--sso', orgId, '--store', 'file', '--json']
      const { stdout, stderr, code } = await svc(args, async (address) => {
        const page = await at(address, 'newcomer')
        await heading(page, 'You are signed in')
        expect(await said(page)).toContain('Return to your terminal.')
        expect(page.url()).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/[\w-]{22}$/)
        await page.context().close()
      })
      expect([code, stderr]).toEqual([0, expect.stringContaining('Signing in with Certified')])
      expect(JSON.parse(stdout)).toMatchObject({
        user: { email: 'nina@bakery.example.com' },
        scope: 'organization',
        orgId,
        store: 'file',
      })
      const whoami = await home.run(['whoami', '--jq', '.user.email'])
      expect(whoami.stdout).toBe('nina@bakery.example.com\n')
      // From now on also by the name of the organization, even when signed out.
      await home.run(['logout'])
      const failed = await svc(['login', '--sso', world.orgs.bakery.name, '--json'], async (address) => {
        const page = await at(address, 'stranger')
        await heading(page, 'You are not signed in')
        expect(await said(page)).toContain('Code: domain_not_allowed')
        await page.context().close()
      })
      expect([failed.code, failed.stdout]).toEqual([4, ''])
      expect(JSON.parse(failed.stderr.trim().split('\n').at(-1)!)).toEqual({
        error: {
          code: 'domain_not_allowed',
          message: 'E-mail addresses of this domain may not sign in here',
          status: null,
          requestId: null,
          hint: 'Use the address of your organization, or ask an administrator to allow the domain.',
        },
      })
    })

    onSqlite('svc sso test --login shows each step, and creates no session', async () => {
      const env = { SVC_TOKEN: world.tokens.system }
      const trial = (login: string) =>
        svc(
          ['sso', 'test', providerId, '--login'],
          async (address) => {
            const page = await at(address, login)
            await heading(page, 'The trial is over')
            await page.context().close()
          },
          env,
        )
      const passed = await trial('newcomer')
      expect([passed.code, passed.stdout]).toEqual([
        0,
        expect.stringMatching(/^✓ [\s\S]+ a trial: no session was created\.\n$/),
      ])
      expect(passed.stdout).toContain('✓ The account is known\n    nina@bakery.example.com')
      const failed = await trial('stranger')
      expect(failed.code).toBe(1)
      expect(failed.stdout).toMatch(
        /✗ E-mail addresses of this domain may not sign in here\n {4}.*\n {4}Code: domain_not_allowed\n {4}Hint: Use/,
      )
    })
  })
})

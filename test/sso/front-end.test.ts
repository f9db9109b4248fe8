import { createServer, type Server } from 'node:http'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hasChromium, startChromium } from '../chromium.ts'
import { hasOpenssl, listening, testCertificate } from '../cli/network.ts'
import { aboveStorage } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { certifiedProvider } from './certified.ts'
import { addMember } from './sign-in/sign-in-fixture.ts'

const accounts = { dora: { email: 'dora@bakery.example.com', name: 'Dora Bakes' } }

/** A dashboard that serves one page at every path; the test evaluates scripts in it. */
const frontEnd = (): Server =>
  createServer((_, reply) => {
    reply.setHeader('content-type', 'text/html')
    reply.end('<!doctype html><title>Dashboard</title><link rel="icon" href="data:,"><h1>Dashboard</h1>')
  })

const close = (server: Server) => new Promise((resolve) => server.close(resolve).closeAllConnections())

async function freePort(): Promise<number> {
  const probe = createServer()
  const port = await listening(probe)
  await close(probe)
  return port
}

/** The script of a front-end; it returns the status of each step, or the error of the browser. */
const script = (url: string, code: string | null) => `(async () => {
  const ask = async (method, path, { body, headers = {} } = {}) => {
    try {
      const reply = await fetch(${JSON.stringify(url)} + '/api/v1' + path, {
        method, credentials: 'include', body: body && JSON.stringify(body),
        headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
      })
      return { status: reply.status, csrf: reply.headers.get('x-service-csrf'), body: await reply.json() }
    } catch (error) { return { status: error.name } }
  }
  const exchanged = await ask('POST', '/sso/exchange', { body: { code: ${JSON.stringify(code)} } })
  const refreshed = await ask('POST', '/auth/refresh', {
    body: {}, headers: { 'x-service-csrf': exchanged.csrf ?? 'none' },
  })
  const bearer = { authorization: 'Bearer ' + (refreshed.body?.tokens?.accessToken ?? refreshed.body?.accessToken) }
  const me = await ask('GET', '/users/me', { headers: bearer })
  return {
    statuses: [exchanged.status, refreshed.status, me.status],
    email: me.body?.email, exchangeReply: exchanged.body,
  }
})()`

type ScriptResult = { statuses: unknown[]; email?: string; exchangeReply?: unknown }

aboveStorage((_, open) => {
  describe.skipIf(!hasChromium || !hasOpenssl)('a front-end on another origin, in a real browser', () => {
    const certificate = testCertificate()
    const [ours, theirs] = [frontEnd(), frontEnd()]
    let [app, stranger] = ['', '']
    let service: TestService
    let world: World
    let idp: Awaited<ReturnType<typeof certifiedProvider>>
    let chromium: Browser

    beforeAll(async () => {
      app = `http://127.0.0.1:${await listening(ours)}`
      stranger = `http://127.0.0.1:${await listening(theirs)}`
      const port = String(await freePort())
      service = await startService(open, {
        env: {
          PORT: port,
          PUBLIC_URL: `http://127.0.0.1:${port}`,
          DASHBOARD_URL: app,
          OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
          OUTBOUND_CA_FILE: certificate.file,
        },
      })
      world = await buildWorld(service)
      idp = await certifiedProvider(certificate, {
        redirectUri: `${service.url}/api/v1/sso/callback`,
        accounts,
      })
      const system = service.client(world.tokens.system)
      const its = { name: 'Certified', type: 'oidc', issuer: idp.issuer, clientId: 'svc' } as const
      const orgId = world.orgs.bakery.id
      const body = { ...its, orgId, clientSecret: 'hush', autoProvision: false }
      const { data } = await system.call(api.ssoProviders.create, { body })
      await system.call(api.ssoProviders.setStatus, { params: { id: data.id }, body: { status: 'active' } })
      await addMember(service, orgId, accounts.dora.email)
      chromium = await startChromium()
    })
    afterAll(async () => {
      await chromium?.close()
      await idp?.close()
      await service?.close()
      await Promise.all([close(ours), close(theirs)])
    })

    /** Signs in, and returns the page when the front-end has received its code. */
    async function arrive() {
      const context = await chromium.newContext({ ignoreHTTPSErrors: true })
      const page = await context.newPage()
      page.setDefaultTimeout(15_000)
      await page.goto(`${service.url}/api/v1/sso/login/${world.orgs.bakery.id}`)
      await page.getByLabel('Login').fill('dora')
      await page.getByRole('button').click()
      await page.waitForURL((url) => url.hash.startsWith('#ssoCode='))
      const url = new URL(page.url())
      return { page, context, origin: url.origin, code: url.hash.slice('#ssoCode='.length) }
    }

    it('exchanges its code, refreshes the session with the cookie, and calls the API', async () => {
      const { page, context, origin, code } = await arrive()
      expect(origin).toBe(app)
      const result: ScriptResult = await page.evaluate(script(service.url, code))
      expect(result.statuses).toEqual([200, 200, 200])
      expect(result.email).toBe(accounts.dora.email)
      const cookies = await context.cookies(`${service.url}/api/v1/auth/`)
      expect(cookies.find(({ name }) => name === 'service_refresh_token')).toMatchObject({ httpOnly: true })
      await context.close()
    })

    it('is refused all of it if its origin is not allowed, even with an existing session', async () => {
      const { page, context, code } = await arrive()
      const first: ScriptResult = await page.evaluate(script(service.url, code))
      expect(first.statuses).toEqual([200, 200, 200])
      await page.goto(`${stranger}/`)
      const result: ScriptResult = await page.evaluate(script(service.url, code))
      expect(result).toMatchObject({ statuses: ['TypeError', 'TypeError', 'TypeError'] })
      expect(result.exchangeReply).toBeUndefined()
      // The session of the allowed origin is unaffected.
      await page.goto(`${app}/`)
      const again: ScriptResult = await page.evaluate(script(service.url, null))
      expect(again.statuses[0]).toBe(400)
      expect(again.statuses.slice(1)).toEqual([200, 200])
      await context.close()
    })
  })
})

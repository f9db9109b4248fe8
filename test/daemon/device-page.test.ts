import { chmodSync, existsSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { generateSync } from 'otplib'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { version } from '../../src/version.ts'
import { hasChromium, startChromium } from '../chromium.ts'
import { follow } from '../cli/follow-process.ts'
import { Home } from '../cli/run.ts'
import { aboveStorage } from '../databases.ts'
import { adminEmail, adminPassword, startService, type TestService } from '../harness.ts'
import { freePort } from '../postgres.ts'
import { until } from './process.ts'

aboveStorage((_, open) => {
  describe.skipIf(!hasChromium)('the page where a terminal is approved, on a phone', () => {
    let service: TestService
    let chromium: Browser

    beforeAll(async () => {
      const PORT = String(await freePort())
      service = await startService(open, { env: { PORT, PUBLIC_URL: `http://127.0.0.1:${PORT}` } })
      chromium = await startChromium()
    })
    afterAll(async () => {
      await chromium?.close()
      await service?.close()
    })

    const start = () =>
      service.client().call(api.auth.startDeviceAuthorization, { body: { client: 'svc on <b>web-1</b>' } })
    const poll = (deviceCode: string) =>
      service.client().call(api.auth.pollDeviceAuthorization, { body: { deviceCode } })
    const heading = (page: Page, text: string) =>
      page.getByRole('heading', { name: text, exact: true }).waitFor()
    const fits = async (page: Page) =>
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
    const opened = async (): Promise<Page> => {
      const page = await chromium.newPage({ viewport: { width: 360, height: 740 } })
      page.setDefaultTimeout(15_000)
      await page.goto(`${service.url}/device`)
      return page
    }
    const signIn = async (page: Page, password = adminPassword) => {
      await page.getByLabel('E-mail').fill(adminEmail)
      await page.getByLabel('Password').fill(password)
      await page.getByRole('button', { name: 'Sign in' }).click()
    }
    const enter = async (page: Page, code: string) => {
      await page.getByLabel('Code that the terminal shows').fill(code)
      await page.getByRole('button', { name: 'Continue' }).click()
    }
    const live = async () =>
      (
        await service.storage.read
          .selectFrom('sessions')
          .select('id')
          .where('revoked_at', 'is', null)
          .execute()
      ).length

    it('signs a person in, says what asks, approves it, and leaves no session in the browser', async () => {
      const { deviceCode, userCode } = await start()
      const page = await opened()
      await signIn(page, 'not the password')
      await page.getByText('Invalid email or password.').waitFor()
      await fits(page)
      await signIn(page)
      await enter(page, 'BBBB-BBBB')
      await page.getByText('Invalid or expired code of a terminal.').waitFor()
      await enter(page, userCode.toLowerCase())
      await heading(page, 'Is this yours?')
      await page.getByText('svc on <b>web-1</b>').waitFor()
      await fits(page)
      await page.getByRole('button', { name: 'Approve' }).click()
      await heading(page, 'The terminal is signed in')
      expect(await live()).toBe(0)
      expect((await poll(deviceCode)).tokens).not.toBeNull()
      await page.close()
    })

    it('is opened by svc login --device, which is signed in once it is approved', async () => {
      const home = new Home({ SVC_URL: service.url, SVC_CREDENTIAL_STORE: 'file' })
      onTestFinished(() => home.remove())
      const script = home.write('browser.sh', `#!/bin/sh\nprintf %s "$1" > '${home.path}/opened'\n`)
      chmodSync(script, 0o755)
      const login = follow(home, ['login', '--device'], { BROWSER: script })
      const code = () => /^ {2}(\w{4}-\w{4})$/m.exec(login.said.stderr)?.[1]
      await until(() => code() !== undefined && existsSync(join(home.path, 'opened')), 20_000)
      const page = await chromium.newPage({ viewport: { width: 360, height: 740 } })
      page.setDefaultTimeout(15_000)
      await page.goto(home.read('opened'))
      await signIn(page)
      await enter(page, code()!)
      await heading(page, 'Is this yours?')
      await page.getByText(`svc ${version} on ${hostname()}`).waitFor()
      await page.getByRole('button', { name: 'Approve' }).click()
      await heading(page, 'The terminal is signed in')
      await page.close()
      await until(() => login.said.stderr.includes('the session is in'), 20_000)
      expect(login.said.stderr).toContain(`Signed in to ${service.url} as ${adminEmail}, system scope\n`)
      const status = await home.run(['auth', 'status', '--json'])
      expect(JSON.parse(status.stdout)).toMatchObject({ url: service.url, user: { email: adminEmail } })
      expect(await live()).toBeGreaterThan(0)
      expect((await home.run(['logout'])).code).toBe(0)
    })

    it('denies it', async () => {
      const { deviceCode, userCode } = await start()
      const page = await opened()
      await signIn(page)
      await enter(page, userCode)
      await page.getByRole('button', { name: 'Deny' }).click()
      await heading(page, 'Denied')
      await expect(poll(deviceCode)).rejects.toMatchObject({ code: 'access_denied' })
      await page.close()
    })

    it('asks for the second factor', async () => {
      const { tokens } = await service
        .client()
        .call(api.auth.login, { body: { email: adminEmail, password: adminPassword } })
      const client = service.client(tokens!.accessToken)
      const { secret, recoveryCodes } = await client.call(api.auth.setupMfa, { body: {} })
      await client.call(api.auth.enableMfa, { body: { code: generateSync({ secret }) } })
      const { deviceCode, userCode } = await start()
      const page = await opened()
      await signIn(page)
      await heading(page, 'Your code')
      await page.getByLabel('Code, or a recovery code').fill(recoveryCodes[0]!)
      await page.getByRole('button', { name: 'Continue' }).click()
      await enter(page, userCode)
      await page.getByRole('button', { name: 'Approve' }).click()
      await heading(page, 'The terminal is signed in')
      const terminal = service.client((await poll(deviceCode)).tokens!.accessToken)
      expect(await terminal.call(api.auth.me)).toMatchObject({ mfaVerified: true })
      await page.close()
    })
  })
})

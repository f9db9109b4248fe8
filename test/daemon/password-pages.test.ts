import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hasChromium, startChromium } from '../chromium.ts'
import { aboveStorage } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { received } from '../identity/mailbox.ts'
import { freePort } from '../postgres.ts'
import { buildWorld, roleOf, type World } from '../world.ts'

const password = 'nine quiet herons over the weir'
const better = 'seven purple elephants on a roof'
const email = 'ada@example.com'

aboveStorage((_, open) => {
  describe.skipIf(!hasChromium)('the pages that letters link to, on a phone', () => {
    let service: TestService
    let world: World
    let chromium: Browser

    beforeAll(async () => {
      const PORT = String(await freePort())
      service = await startService(open, { env: { PORT, PUBLIC_URL: `http://127.0.0.1:${PORT}` } })
      world = await buildWorld(service)
      chromium = await startChromium()
    })
    afterAll(async () => {
      await chromium?.close()
      await service?.close()
    })

    const signIn = (secret: string) =>
      service.client().call(api.auth.login, { body: { email, password: secret } })
    const at = async (url: string): Promise<Page> => {
      const page = await chromium.newPage({ viewport: { width: 360, height: 740 } })
      page.setDefaultTimeout(15_000)
      await page.goto(url)
      return page
    }
    const heading = (page: Page, text: string) =>
      page.getByRole('heading', { name: text, exact: true }).waitFor()
    const fill = async (page: Page, first: string, again: string) => {
      await page.getByLabel('New password').fill(first)
      await page.getByLabel('Once more').fill(again)
      await page.getByRole('button').click()
    }
    const fits = async (page: Page) =>
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)

    it('take the first password of an invited person, and leave no session', async () => {
      await service.client(world.tokens.bakery).call(api.users.invite, {
        body: { email, name: 'Ada <b>', roleId: roleOf('Org Viewer', 'organization') },
      })
      const [link] = (await received(service, email, 'invitation')).links
      const page = await at(link!)
      await page.getByText('Ada <b>').waitFor()
      await fits(page)
      await fill(page, password, better)
      expect(await page.getByRole('alert').textContent()).toBe('The two passwords differ.')
      await fill(page, 'password1', 'password1')
      await page
        .getByText(/guess|common/i)
        .last()
        .waitFor()
      await expect(signIn('password1')).rejects.toMatchObject({ status: 401 })
      await fill(page, password, password)
      await heading(page, 'Your account is ready')
      const live = service.storage.read
        .selectFrom('sessions')
        .innerJoin('users', 'users.id', 'sessions.user_id')
        .select('sessions.id')
        .where('users.email', '=', email)
        .where('sessions.revoked_at', 'is', null)
      expect(await live.execute()).toEqual([])
      expect((await signIn(password)).tokens).not.toBeNull()
      await page.close()

      const again = await at(link!)
      await heading(again, 'You are not invited')
      await again.close()
    })

    it('send a link for a new password, and take it once', async () => {
      const asked = await at(`${service.url}/forgot-password`)
      await fits(asked)
      await asked.getByLabel('E-mail').fill(email)
      await asked.getByRole('button').click()
      await heading(asked, 'Look into your mail')
      await asked.close()
      const [link] = (await received(service, email, 'password-reset')).links
      const page = await at(link!)
      await fits(page)
      await fill(page, better, better)
      await heading(page, 'Your password is set')
      await expect(signIn(password)).rejects.toMatchObject({ status: 401 })
      expect((await signIn(better)).tokens).not.toBeNull()
      await page.reload()
      await fill(page, password, password)
      await page.getByText('Invalid or expired reset token.').waitFor()
      await page.close()
    })
  })
})

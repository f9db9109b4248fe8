import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { addPerson, password, post, signIn } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld, roleOf, type World } from '../world.ts'
import { lettersOf, unsent } from './mail.ts'

inTurn((open) => {
  let service: TestService
  let world: World

  const begin = async (env: Record<string, string>) => {
    service = await startService(open, { env, outside: { mailer: unsent(false) } })
    world = await buildWorld(service)
  }
  const invite = (email: string, token = world.tokens.bakery) =>
    post(service, '/users/invite', token, { email, name: 'A', roleId: roleOf('Org Viewer', 'organization') })
  const limited = { status: 429, body: { code: 'rate_limited', retryAfter: expect.any(Number) } }

  describe('invitations', () => {
    it('to one address are limited to five an hour per tenant, including those sent again', async () => {
      await begin({ RATE_LIMIT_INVITE_ADDRESS: '5/3600' })
      const first = await invite('ada@example.com')
      const { id: userId } = first.body as { id?: string }
      const replies = []
      for (let n = 0; n < 7; n += 1)
        replies.push(await post(service, '/users/resend-invite', world.tokens.bakery, { userId }))
      expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 429, 429, 429])
      expect(replies.at(-1)).toMatchObject(limited)
      expect(replies.at(-1)!.headers['retry-after']).toBe(
        String((replies.at(-1)!.body as { retryAfter: number }).retryAfter),
      )
      expect(await lettersOf(service)).toHaveLength(5)
      expect((await invite('Ada@Example.com')).status, 'however it is written').toBe(429)
      expect((await invite('bob@example.com')).status, 'another address').toBe(201)
      expect((await invite('ada@example.com', world.tokens.harbor)).status, 'another tenant').toBe(201)
    })

    it.each(['INVITER', 'TENANT'])('are limited by RATE_LIMIT_INVITE_%s', async (name) => {
      await begin({ [`RATE_LIMIT_INVITE_${name}`]: '3/3600' })
      for (const n of [1, 2, 3]) expect((await invite(`person${n}@example.com`)).status).toBe(201)
      expect(await invite('person4@example.com')).toMatchObject(limited)
      expect((await invite('person5@example.com', world.tokens.harbor)).status).toBe(201)
    })
  })

  describe('mails', () => {
    beforeEach(() => begin({ RATE_LIMIT_LETTER: '2/3600', RATE_LIMIT_NOTICE: '2/3600' }))

    it('that anyone can request are limited per address, whether or not it has an account', async () => {
      for (const email of ['nobody@example.com', 'admin@example.com']) {
        const forgot = () => post(service, '/auth/forgot-password', undefined, { email })
        expect([(await forgot()).status, (await forgot()).status]).toEqual([200, 200])
        expect(await forgot()).toMatchObject(limited)
        // Another kind of mail: it does not use up the limit of password resets.
        const body = { email, name: 'A', password: 'seven purple elephants on a roof' }
        expect((await post(service, '/auth/register', undefined, body)).status).toBe(200)
      }
    })

    it('about the sign-in settings of a user are limited per user who causes them', async () => {
      const orgId = world.orgs.bakery.id
      const email = await addPerson(service, 'grace', { orgId }, 'Org Viewer')
      const { accessToken } = (await signIn(service, { email, password })) as { accessToken: string }
      const { id } = (await service.client(accessToken).call(api.users.me)) as { id: string }
      const reset = (token: string) => post(service, `/users/${id}/mfa/reset`, token)
      // A caller who cannot reach the user uses up no one else's limit.
      for (const _ of [1, 2]) expect((await reset(world.tokens.harbor)).status).toBe(404)
      for (const _ of [1, 2]) expect((await reset(world.tokens.bakery)).status).toBe(200)
      expect(await reset(world.tokens.bakery)).toMatchObject(limited)
      expect((await reset(world.tokens.system)).status).toBe(200)
    })
  })
})

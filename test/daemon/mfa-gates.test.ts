import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, serviceOn, startService, testClock } from '../harness.ts'
import { systemToken } from '../world.ts'
import { addPerson, addTenant, audited, enrolFactor, login, password, post, signIn } from './people.ts'
import { send } from './request.ts'

const enrollUrl = '/auth/mfa/setup'

inTurn((open) => {
  const clock = testClock()
  const start = () => startService(open, { clock })

  it('minting a key requires an MFA session; a user without a factor gets the enrollment URL', async () => {
    const service = await start()
    const { orgId } = await addTenant(service)
    const { accessToken } = await signIn(service)
    const mint = (token: string) => post(service, '/enrollment-keys', token, { orgId, name: 'reception' })
    expect(await mint(accessToken)).toMatchObject({
      status: 403,
      body: { code: 'mfa_required', error: 'MFA required', enrollUrl },
    })
    const { tokens } = await enrolFactor(service.client(accessToken), clock)
    expect((await mint(tokens.accessToken)).status).toBe(201)
    const without = await mint(await systemToken(service, { mfa: false }))
    expect(without).toMatchObject({ status: 403, body: { code: 'mfa_required' } })
    expect(without.body).not.toHaveProperty('enrollUrl')
    const denied = (await audited(service, 'enrollment_key.create')).filter(
      ({ result }) => result === 'denied',
    )
    expect(denied).toMatchObject(
      [1, 2].map(() => ({ user: { email: adminEmail }, details: { code: 'mfa_required' } })),
    )
  })

  it('a role with Force MFA permits only enrollment and sign-out until the user has a factor', async () => {
    const service = await start()
    const { partnerId } = await addTenant(service)
    const who = { email: await addPerson(service, 'partner', { partnerId }, 'Partner Admin'), password }
    const { body } = await login(service, who)
    expect(body).toMatchObject({ mfaRequired: false, mfaEnrollmentRequired: true, enrollUrl })
    const token = body.tokens!.accessToken
    const blocked = ['/orgs/', '/orgs/sites', '/devices', '/enrollment-keys', '/audit-logs/logs']
    for (const path of blocked) {
      const reply = await send(service.url, 'GET', `/api/v1${path}`, { token })
      expect(reply).toMatchObject({ status: 428, body: { code: 'mfa_enrollment_required', enrollUrl } })
    }
    expect((await post(service, '/orgs/organizations', token, { name: 'A', slug: 'a' })).status).toBe(428)
    expect((await send(service.url, 'GET', '/api/v1/auth/me', { token })).status).toBe(200)
    const { tokens } = await enrolFactor(service.client(token), clock)
    expect((await service.client(tokens.accessToken).call(api.orgs.list)).data).toHaveLength(1)

    const other = { email: await addPerson(service, 'other', { partnerId }, 'Partner Admin'), password }
    const { accessToken } = await signIn(service, other)
    expect((await post(service, '/auth/logout', accessToken)).status, 'signing out stays open').toBe(200)
  })

  it('settings.security.requireMfa does the same for the members of an organization', async () => {
    const service = await start()
    const { orgId } = await addTenant(service, { security: { requireMfa: true } })
    const who = { email: await addPerson(service, 'baker', { orgId }, 'Org Viewer'), password }
    const { accessToken } = await signIn(service, who)
    const devices = (token: string) => send(service.url, 'GET', '/api/v1/devices', { token })
    expect((await devices(accessToken)).status).toBe(428)
    const { tokens } = await enrolFactor(service.client(accessToken), clock)
    expect((await devices(tokens.accessToken)).status).toBe(200)
  })

  it('ENABLE_2FA=false lifts the MFA requirements, also at sign-in, and hides the routes', async () => {
    const database = await open()
    const on = await serviceOn(database, { clock })
    const { partnerId, orgId } = await addTenant(on)
    const who = { email: await addPerson(on, 'partner', { partnerId }, 'Partner Admin'), password }
    await enrolFactor(on.client((await signIn(on)).accessToken), clock)
    await on.close()

    const service = await serviceOn(database, { clock, env: { ENABLE_2FA: 'false' } })
    const { body } = await login(service)
    expect(body).toMatchObject({ mfaRequired: false, mfaEnrollmentRequired: false })
    const token = body.tokens!.accessToken
    expect((await post(service, '/enrollment-keys', token, { orgId, name: 'reception' })).status).toBe(201)
    const partner = await signIn(service, who)
    expect((await service.client(partner.accessToken).call(api.orgs.list)).data).toHaveLength(1)
    const hidden = [
      await post(service, '/auth/mfa/setup', partner.accessToken),
      await post(service, '/auth/mfa/enable', partner.accessToken, { code: '123456' }),
      await post(service, '/auth/mfa/verify', undefined, { tempToken: 'x', code: '123456' }),
    ]
    for (const { status, body } of hidden) expect([status, body.code]).toEqual([404, 'not_found'])
  })
})

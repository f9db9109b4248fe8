import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds } from '../../src/core/time.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { userIdOf } from '../laws/fixture.ts'
import { addOrgUser, addProvider, addRole, addUser, roleOf } from '../world.ts'
import { certificate, expiredCertificate } from './certificates.ts'
import { fault, issuer, signedIn, start } from './provider-fixture.ts'

const day = 24 * 3600
const missing = 'is missing in an active provider'
const noEndpoint = expect.stringContaining(`${missing}: set it, or the issuer again`)

inTurn((open) => {
  describe('an active provider', () => {
    it('is complete, and each missing field is named', async () => {
      const { create, setStatus, change, client } = await start(open)
      const { data } = await client.call(api.ssoProviders.create, { body: { name: 'a', type: 'oidc' } })
      expect((await setStatus(data.id, 'testing')).status).toBe('testing')
      await expect(setStatus(data.id, 'active')).rejects.toMatchObject({
        status: 400,
        code: 'invalid_request',
        details: [
          ...['issuer', 'clientId', 'clientSecret'].map((field) => ({
            path: `provider.${field}`,
            message: missing,
          })),
          ...['authorizationUrl', 'tokenUrl', 'userInfoUrl', 'jwksUrl'].map((field) => ({
            path: `provider.${field}`,
            message: noEndpoint,
          })),
        ],
      })
      expect((await change(data.id, { issuer, clientId: 'svc', clientSecret: 'hush' })).status).toBe(
        'testing',
      )
      expect(await setStatus(data.id, 'active')).toMatchObject({ status: 'active', hasClientSecret: true })
      const saml = await create({ type: 'saml', issuer: undefined })
      await expect(setStatus(saml.id, 'active')).rejects.toMatchObject({
        details: ['entityId', 'ssoUrl', 'certificate'].map((field) => ({
          path: `provider.${field}`,
          message: missing,
        })),
      })
    })

    it('cannot be made incomplete', async () => {
      const { create, setStatus, change } = await start(open)
      const { id } = await create()
      await setStatus(id, 'active')
      await expect(change(id, { clientSecret: null })).rejects.toEqual(fault('body.clientSecret', missing))
      await expect(change(id, { jwksUrl: '' })).rejects.toEqual(fault('body.jwksUrl', noEndpoint))
      await expect(change(id, { issuer: 'https://silent.example.com' })).rejects.toMatchObject({
        status: 400,
      })
      await setStatus(id, 'inactive')
      expect(await change(id, { clientSecret: null })).toMatchObject({ hasClientSecret: false })
    })

    it('of SAML has a valid certificate, given as PEM or as in metadata', async () => {
      const { create, setStatus, change } = await start(open)
      const fields = { type: 'saml', entityId: 'urn:idp', ssoUrl: 'https://idp.example.com/sso' } as const
      const bare = certificate.replaceAll(/-----[A-Z ]+-----|\s/g, '')
      const { id, certificate: kept } = await create({ ...fields, issuer: undefined, certificate: bare })
      expect(kept).toBe(certificate)
      expect((await setStatus(id, 'active')).status).toBe('active')
      await expect(change(id, { certificate: expiredCertificate })).rejects.toEqual(
        fault('body.certificate', 'expired at 2025-01-01T00:00:00.000Z'),
      )
      await setStatus(id, 'inactive')
      await change(id, { certificate: expiredCertificate })
      await expect(setStatus(id, 'active')).rejects.toEqual(
        fault('provider.certificate', 'expired at 2025-01-01T00:00:00.000Z'),
      )
    })

    it('has its change of status in the audit log', async () => {
      const { create, setStatus, service } = await start(open)
      const { id } = await create()
      const news = await newEntries(service)
      await setStatus(id, 'active')
      expect(await news()).toMatchObject([
        {
          action: 'sso.provider.status.update',
          resourceId: id,
          details: { before: { status: 'inactive' }, after: { status: 'active' } },
        },
      ])
    })
  })

  describe('the public check for single sign-on', () => {
    it('returns the oldest active provider of the organization', async () => {
      const { bakery, service, clock, setStatus, create, system } = await start(open)
      const check = (orgId = bakery.id) => service.client().call(api.sso.check, { params: { orgId } })
      expect(await check()).toEqual({ ssoEnabled: false })
      const { id } = await create()
      const at = (seconds: number) => ({ status: 'active', createdAt: addSeconds(clock(), seconds) }) as const
      await addProvider(service, bakery.id, { ...at(5), name: 'later' })
      const first = await addProvider(service, bakery.id, { ...at(-5), name: 'first', enforceSSO: true })
      await setStatus(id, 'active')
      const loginUrl = `/api/v1/sso/login/${bakery.id}`
      expect(await check()).toEqual({
        ssoEnabled: true,
        provider: { id: first, name: 'first', type: 'oidc' },
        enforceSSO: true,
        loginUrl,
      })
      // The session of the organization's administrator ended, as passwords are no longer accepted.
      const testing = { params: { id: first }, body: { status: 'testing' } } as const
      await expect(setStatus(first, 'testing')).rejects.toMatchObject({ status: 401 })
      await system.call(api.ssoProviders.setStatus, testing)
      expect(await check()).toMatchObject({ provider: { id }, enforceSSO: false, loginUrl })
    })

    it('does not reveal which organizations exist', async () => {
      const { garage, harbor, service, system } = await start(open).then((s) => ({ ...s, ...s.world.orgs }))
      const line = async (orgId: string) => {
        const reply = await fetch(`${service.url}/api/v1/sso/check/${orgId}`)
        return [reply.status, await reply.text()]
      }
      const nothing = [200, '{"ssoEnabled":false}']
      expect(await line(newId())).toEqual(nothing)
      expect(await line(garage.id)).toEqual(nothing)
      for (const org of [garage, harbor]) await addProvider(service, org.id, { status: 'active' })
      expect((await line(garage.id))[1]).toContain('"ssoEnabled":true')
      const params = { id: garage.id }
      await system.call(api.orgs.update, { params, body: { status: 'suspended' } })
      expect(await line(garage.id)).toEqual(nothing)
      await system.call(api.orgs.update, { params, body: { status: 'trial' } })
      expect((await line(garage.id))[1]).toContain('"ssoEnabled":true')
      await system.call(api.orgs.remove, { params })
      expect(await line(garage.id)).toEqual(nothing)
    })
  })

  describe('enforced single sign-on', () => {
    const refusal = fault(
      'body.enforceSSO',
      expect.stringContaining('has to sign in with this provider first'),
    )

    it('requires that an administrator of the organization used the provider within a day', async () => {
      const { create, change, service, clock, bakery, garage } = await start(open)
      const { id } = await create()
      const { id: other } = await create()
      const enforce = () => change(id, { enforceSSO: true })
      await expect(enforce()).rejects.toEqual(refusal)
      const admin = await userIdOf(service, 'bakery-admin')
      const writers = await addRole(service, bakery.id, 'writers', ['organizations:write'])
      const heirs = await addRole(service, bakery.id, 'heirs', ['devices:read'], writers)
      await addOrgUser(service, 'heir', bakery.id, { role: heirs })
      const at = clock()
      await signedIn(service, { providerId: other, userId: admin, at })
      await signedIn(service, { providerId: id, userId: await userIdOf(service, 'bakery-viewer'), at })
      await signedIn(service, { providerId: id, userId: await userIdOf(service, 'garage-admin'), at })
      await signedIn(service, { providerId: id, userId: await addUser(service, 'nobody'), at })
      await signedIn(service, { providerId: id, userId: admin, at: addSeconds(at, -day - 1) })
      await expect(enforce()).rejects.toEqual(refusal)
      await signedIn(service, {
        providerId: id,
        userId: await userIdOf(service, 'heir'),
        at: addSeconds(at, -day + 1),
      })
      expect(await enforce()).toMatchObject({ enforceSSO: true })
      expect(garage.id).not.toBe(bakery.id)
      clock.forward(2 * day)
    })

    it('can be forced, which the audit log records, and ended again', async () => {
      const { create, change, service } = await start(open)
      await expect(create({ enforceSSO: true })).rejects.toEqual(refusal)
      const news = await newEntries(service)
      const { id } = await create({ enforceSSO: true, force: true })
      expect(await change(id, { enforceSSO: false })).toMatchObject({ enforceSSO: false })
      expect(await change(id, { enforceSSO: true, force: true })).toMatchObject({ enforceSSO: true })
      expect(await change(id, { enforceSSO: true, name: 'b' })).toMatchObject({ name: 'b' })
      const entries = await news()
      expect(entries.map(({ details }) => (details as { forced?: boolean }).forced)).toEqual([
        true,
        undefined,
        true,
        undefined,
      ])
    })

    it('is not justified by a sign-in with another issuer', async () => {
      const { create, change, service, clock } = await start(open)
      const { id, createdBy: userId } = await create()
      await signedIn(service, { providerId: id, userId, at: clock() })
      await expect(change(id, { issuer: 'https://other.example.com', enforceSSO: true })).rejects.toEqual(
        refusal,
      )
      expect(await change(id, { enforceSSO: true })).toMatchObject({ enforceSSO: true })
    })
  })

  describe('the default role of a provider', () => {
    it('is a role of the organization, or a built-in one for organizations', async () => {
      const { create, change, bakery, garage, world, service } = await start(open)
      const viewer = roleOf('Org Viewer', 'organization')
      expect(await create({ defaultRoleId: viewer })).toMatchObject({ defaultRoleId: viewer })
      const { id } = await create({ defaultRoleId: bakery.roleId })
      const ofPartner = await addRole(service, { partnerId: world.partners.acme }, 'a', ['devices:read'])
      for (const role of [garage.roleId, roleOf('Partner Viewer', 'partner'), ofPartner, newId()]) {
        const refused = fault('body.defaultRoleId', 'is not a role that people of this organization can have')
        await expect(change(id, { defaultRoleId: role })).rejects.toEqual(refused)
        await expect(create({ defaultRoleId: role })).rejects.toEqual(refused)
      }
    })

    it('holds only permissions that whoever configures the provider holds', async () => {
      const { create, bakery, service, setStatus } = await start(open)
      const writers = await addRole(service, bakery.id, 'writers', ['organizations:write'])
      const lesser = service.client(await addOrgUser(service, 'lesser', bakery.id, { role: writers }))
      const admin = roleOf('Org Admin', 'organization')
      const body = { name: 'a', type: 'oidc', defaultRoleId: admin } as const
      const refused = expect.objectContaining({
        status: 403,
        message: expect.stringMatching(/^Cannot assign permission not held by caller: .*users:write/),
      })
      await expect(lesser.call(api.ssoProviders.create, { body })).rejects.toEqual(refused)
      const { id } = await create({ defaultRoleId: admin })
      const params = { id }
      const mine = { issuer: 'https://mine.example.com' }
      await expect(lesser.call(api.ssoProviders.update, { params, body: mine })).rejects.toEqual(refused)
      await lesser.call(api.ssoProviders.update, { params, body: { ...mine, defaultRoleId: writers } })
      expect(await setStatus(id, 'testing')).toMatchObject({ defaultRoleId: writers })
    })
  })
})

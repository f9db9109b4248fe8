import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { addMember, codeIn, errorIn, person, start } from './sign-in/sign-in-fixture.ts'

onEveryDatabase((_kind, open) => {
  /** A service with a provider, at which the member Dora can sign in. */
  async function setUp() {
    const on = await start(open)
    const { id } = await on.provider()
    const userId = await addMember(on.service, on.bakery.id, person.email)
    const enter = async (who: object = {}) => {
      const { location } = await on.signIn({ ...person, ...who })
      return on.service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
    }
    const list = (query = {}) => on.client.call(api.ssoIdentities.list, { params: { id }, query })
    const unlink = (identityId: string, providerId = id) =>
      on.client.call(api.ssoIdentities.unlink, { params: { id: providerId, identityId } })
    return { ...on, id, userId, enter, list, unlink }
  }

  describe('the identities of a provider', () => {
    it('are listed, latest sign-in first, without tokens and profiles', async () => {
      const { service, clock, bakery, userId, enter, list } = await setUp()
      const other = await addMember(service, bakery.id, 'eve@bakery.example.com')
      const began = clock()
      await enter()
      await enter({ sub: 'subject-2', email: 'eve@bakery.example.com' })
      clock.forward(60)
      await enter()
      const { data, pagination } = await list()
      const times = { lastLoginAt: clock(), createdAt: began }
      expect(data).toEqual([
        { id: expect.any(String), userId, email: person.email, externalId: 'subject-1', ...times },
        expect.objectContaining({ userId: other, externalId: 'subject-2', lastLoginAt: began }),
      ])
      expect(pagination).toEqual({ page: 1, limit: 50, total: 2 })
      const second = await list({ page: 2, limit: 1 })
      expect([second.data[0]?.userId, second.pagination.total]).toEqual([other, 2])
    })

    it('are unlinked together with their sessions, so that another subject can be linked', async () => {
      const { service, id, bakery, client, userId, enter, signIn, list, unlink } = await setUp()
      const { accessToken } = await enter()
      const eve = { sub: 'subject-2', email: 'eve@bakery.example.com' }
      await addMember(service, bakery.id, eve.email)
      const others = await enter(eve)
      const waiting = codeIn((await signIn()).location)
      const renamed = { ...person, sub: 'subject-9' }
      expect(errorIn((await signIn(renamed)).location)).toBe('sso_link_required')
      const known = (await list()).data.find((one) => one.userId === userId)!
      const { data: other } = await client.call(api.ssoProviders.create, {
        body: { name: 'b', type: 'oidc' },
      })
      const absent = { status: 404, message: 'Identity not found' }
      await expect(unlink(known.id, other.id)).rejects.toMatchObject(absent)
      const news = await newEntries(service)
      expect(await unlink(known.id)).toEqual({ success: true })
      await expect(unlink(known.id)).rejects.toMatchObject(absent)
      expect(await news()).toMatchObject([
        {
          action: 'sso.identity.unlink',
          orgId: bakery.id,
          resourceType: 'sso_identity',
          resourceId: known.id,
          resourceName: person.email,
          details: { providerId: id, userId, externalId: 'subject-1' },
        },
        { action: 'sso.identity.unlink', result: 'denied', resourceId: known.id },
      ])
      const me = (token: string) => service.client(token).call(api.auth.me)
      await expect(me(accessToken)).rejects.toMatchObject({ status: 401 })
      expect(await me(others.accessToken)).toMatchObject({ user: { email: eve.email } })
      const exchange = service.client().call(api.ssoSignIn.exchange, { body: { code: waiting } })
      await expect(exchange).rejects.toMatchObject({ code: 'invalid_exchange_code' })
      expect(errorIn((await signIn(renamed)).location)).toBeNull()
    })
  })

  describe('the addresses to register at a provider', () => {
    it('are shown with the provider, derived from the public URL', async () => {
      const { client, provider } = await start(open, { SAML_SP_ENTITY_ID: 'urn:svc' })
      const oidc = await provider()
      const at = 'https://svc.example.com/api/v1/sso'
      const shown = { redirectUri: `${at}/callback`, acsUrl: null, serviceEntityId: null }
      expect(oidc).toMatchObject(shown)
      expect((await client.call(api.ssoProviders.show, { params: { id: oidc.id } })).data).toMatchObject(
        shown,
      )
      const body = { name: 'SAML', type: 'saml' } as const
      const { data: saml } = await client.call(api.ssoProviders.create, { body })
      const posted = { redirectUri: null, acsUrl: `${at}/saml/acs`, serviceEntityId: 'urn:svc' }
      expect(saml).toMatchObject(posted)
      const { data } = await client.call(api.ssoProviders.list)
      expect(data.filter(({ id }) => [oidc.id, saml.id].includes(id))).toMatchObject([shown, posted])
    })
  })
})

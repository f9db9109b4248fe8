import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { joinOrganization } from '../../src/identity/memberships.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addRole, addUser, tokenFor } from '../world.ts'
import { certificate } from './certificates.ts'
import {
  documentOf,
  endpointsOf,
  fault,
  issuer,
  knownBy,
  noEndpoints,
  oidc,
  signedIn,
  start,
} from './provider-fixture.ts'

const said = (status: number, message: unknown) => expect.objectContaining({ status, message })

inTurn((open) => {
  describe('an identity provider', () => {
    it('keeps its default role: nobody deletes that, active or not', async () => {
      const { service, bakery, client, create, change, show } = await start(open)
      const role = await addRole(service, bakery.id, 'Staff', ['devices:read'])
      const { id } = await create({ defaultRoleId: role })
      await create({ defaultRoleId: role })
      const remove = () => client.call(api.roles.remove, { params: { id: role } })
      await expect(remove()).rejects.toMatchObject({
        code: 'role_in_use',
        message: 'Cannot delete role that is in use: 2 SSO providers have it as their default',
        details: { userCount: 0, childRoleCount: 0, providerCount: 2 },
      })
      expect(await show(id)).toMatchObject({ status: 'inactive', defaultRoleId: role })
      const { data } = await client.call(api.ssoProviders.list, {})
      for (const one of data) await change(one.id, { defaultRoleId: null })
      expect(await remove()).toMatchObject({ success: true })
    })

    it('is created inactive, with all fields, and never shows its secret', async () => {
      const { service, bakery, client, create, clock, show } = await start(open)
      const news = await newEntries(service)
      const made = await create({ clientSecret: 'hush-hush' })
      expect(made).toEqual({
        id: expect.any(String),
        orgId: bakery.id,
        name: 'Okta',
        type: 'oidc',
        status: 'inactive',
        tokenAuth: null,
        preset: null,
        issuer,
        clientId: 'svc',
        hasClientSecret: true,
        unreadable: [],
        ...endpointsOf(issuer),
        scopes: 'openid profile email',
        entityId: null,
        ssoUrl: null,
        certificate: null,
        attributeMapping: { email: 'email', name: 'name' },
        autoProvision: true,
        defaultRoleId: null,
        allowedDomains: null,
        enforceSSO: false,
        redirectUri: `${service.url}/api/v1/sso/callback`,
        acsUrl: null,
        serviceEntityId: null,
        createdBy: expect.any(String),
        nameIdFormat: null,
        forceAuthn: false,
        signRequests: false,
        vouches: expect.arrayContaining(['organizations:write']),
        vouchedBy: expect.any(String),
        createdAt: clock(),
        updatedAt: clock(),
      })
      expect(await show(made.id)).toEqual(made)
      const { data } = await client.call(api.ssoProviders.list)
      expect(data.find(({ id }) => id === made.id)).toEqual(made)
      const { client_secret: sealed } = await service.storage.read
        .selectFrom('sso_providers')
        .select('client_secret')
        .where('id', '=', made.id)
        .executeTakeFirstOrThrow()
      expect(sealed).toMatch(/^v1\./)
      const [entry, ...others] = await news()
      expect(others).toEqual([])
      expect(entry).toMatchObject({
        action: 'sso.provider.create',
        resourceType: 'sso_provider',
        resourceId: made.id,
        resourceName: 'Okta',
        orgId: bakery.id,
        details: { type: 'oidc', status: 'inactive', after: { issuer, hasClientSecret: true } },
      })
      expect(JSON.stringify(entry)).not.toContain('hush-hush')
    })

    it('belongs to the organization of the caller, or to the one named', async () => {
      const { bakery, garage, client, system, service, world } = await start(open)
      await expect(system.call(api.ssoProviders.create, { body: oidc })).rejects.toEqual(
        said(400, 'orgId is required for system scope'),
      )
      const acme = service.client(world.tokens.acme)
      await expect(acme.call(api.ssoProviders.create, { body: oidc })).rejects.toEqual(
        said(400, 'orgId is required for partner scope'),
      )
      const { data } = await acme.call(api.ssoProviders.create, { body: { ...oidc, orgId: garage.id } })
      expect(data.orgId).toBe(garage.id)
      const params = { id: data.id }
      for (const call of [
        () => client.call(api.ssoProviders.show, { params }),
        () => client.call(api.ssoProviders.update, { params, body: { name: 'mine' } }),
        () => client.call(api.ssoProviders.setStatus, { params, body: { status: 'testing' } }),
        () => client.call(api.ssoProviders.test, { params }),
        () => client.call(api.ssoProviders.remove, { params }),
      ]) {
        await expect(call()).rejects.toEqual(said(404, 'Provider not found'))
      }
      const denied = expect.objectContaining({ status: 403, code: 'org_access_denied' })
      const body = { ...oidc, orgId: garage.id }
      await expect(client.call(api.ssoProviders.create, { body })).rejects.toEqual(denied)
      const query = { orgId: garage.id }
      await expect(client.call(api.ssoProviders.list, { query })).rejects.toEqual(denied)
      const inGarage = await acme.call(api.ssoProviders.list, { query })
      expect(inGarage.data.map(({ orgId }) => orgId)).toEqual([garage.id, garage.id])
      expect((await acme.call(api.ssoProviders.list, { query: { limit: 1 } })).pagination).toEqual({
        page: 1,
        limit: 1,
        total: 3,
      })
      expect((await client.call(api.ssoProviders.list)).data.map(({ orgId }) => orgId)).toEqual([bakery.id])
    })

    it('needs organizations:read to view, organizations:write and a second factor to change', async () => {
      const { service, bakery, create } = await start(open)
      const { id } = await create()
      const as = async (permission: string, mfa: boolean) => {
        const name = `${permission.replace(':', '-')}-${mfa}`
        const userId = await addUser(service, name)
        const roleId = await addRole(service, bakery.id, name, [permission])
        const membership = { orgId: bakery.id, userId, roleId, siteIds: null, groupIds: null }
        await service.storage.write((tx) => joinOrganization(tx, membership, new Date().toISOString()))
        return service.client(
          await tokenFor(service, userId, { kind: 'organization', orgId: bakery.id }, { mfa }),
        )
      }
      const params = { id }
      const [reader, writer, other] = [
        await as('organizations:read', true),
        await as('organizations:write', true),
        await as('devices:read', true),
      ]
      const unproven = await as('organizations:write', false)
      const changes = (by: typeof reader) => [
        () => by.call(api.ssoProviders.create, { body: oidc }),
        () => by.call(api.ssoProviders.update, { params, body: { name: 'b' } }),
        () => by.call(api.ssoProviders.setStatus, { params, body: { status: 'testing' } }),
        () => by.call(api.ssoProviders.test, { params }),
        () => by.call(api.ssoProviders.remove, { params }),
      ]
      for (const change of changes(reader)) await expect(change()).rejects.toMatchObject({ status: 403 })
      for (const change of changes(unproven))
        await expect(change()).rejects.toMatchObject({ status: 403, code: 'mfa_required' })
      for (const change of changes(writer)) await change()
      for (const by of [writer, other]) {
        await expect(by.call(api.ssoProviders.list)).rejects.toMatchObject({ status: 403 })
        await expect(by.call(api.ssoProviders.show, { params })).rejects.toMatchObject({ status: 403 })
      }
      expect((await reader.call(api.ssoProviders.list)).data).toHaveLength(2)
      expect((await other.call(api.sso.presets)).data).toHaveLength(9)
      await expect(service.client().call(api.sso.presets)).rejects.toMatchObject({ status: 401 })
    })

    it('cannot be changed by members restricted to a part of the organization', async () => {
      const { service, bakery, create } = await start(open)
      const { id } = await create()
      const token = await addOrgUser(service, 'narrowed', bakery.id, { siteIds: [bakery.siteId] })
      const narrowed = service.client(token)
      const params = { id }
      const denied = expect.objectContaining({ status: 403, code: 'site_access_denied' })
      await expect(narrowed.call(api.ssoProviders.create, { body: oidc })).rejects.toEqual(denied)
      await expect(narrowed.call(api.ssoProviders.update, { params, body: { name: 'b' } })).rejects.toEqual(
        denied,
      )
      await expect(
        narrowed.call(api.ssoProviders.setStatus, { params, body: { status: 'testing' } }),
      ).rejects.toEqual(denied)
      await expect(narrowed.call(api.ssoProviders.remove, { params })).rejects.toEqual(denied)
    })

    it('is changed, and the audit log records the changed fields, but never a secret', async () => {
      const { service, create, change, clock, show } = await start(open)
      const made = await create()
      clock.forward(5)
      const news = await newEntries(service)
      const after = await change(made.id, {
        name: 'Okta, head office',
        clientSecret: 'another',
        allowedDomains: ' Example.com, example.COM,@bücher.example ,',
        attributeMapping: { email: 'mail', name: 'cn', groups: 'groups' },
        tokenUrl: 'https://tokens.example.com/t',
        scopes: 'openid  groups openid',
        autoProvision: false,
      })
      expect(after).toEqual({
        ...made,
        name: 'Okta, head office',
        allowedDomains: 'example.com,xn--bcher-kva.example',
        attributeMapping: { email: 'mail', name: 'cn', groups: 'groups' },
        tokenUrl: 'https://tokens.example.com/t',
        scopes: 'openid groups',
        autoProvision: false,
        updatedAt: clock(),
      })
      expect(await show(made.id)).toEqual(after)
      const [entry, ...others] = await news()
      expect(others).toEqual([])
      expect(entry).toMatchObject({ action: 'sso.provider.update', resourceId: made.id })
      const { changedFields, before } = entry!.details as { changedFields: string[]; before: object }
      expect([...changedFields].sort()).toEqual([
        'allowedDomains',
        'attributeMapping',
        'autoProvision',
        'clientSecret',
        'name',
        'scopes',
        'tokenUrl',
      ])
      expect(before).toMatchObject({ name: 'Okta', autoProvision: true })
      expect(JSON.stringify(entry)).not.toMatch(/hush|another/)
    })

    it.each(['', null])('loses the fields that are set to %j', async (nothing) => {
      const { create, change, bakery } = await start(open)
      const { id } = await create({ allowedDomains: 'example.com', defaultRoleId: bakery.roleId })
      const fields = ['issuer', 'clientId', 'clientSecret', 'allowedDomains', 'defaultRoleId'] as const
      const body = Object.fromEntries([...fields, 'jwksUrl'].map((field) => [field, nothing]))
      expect(await change(id, body)).toMatchObject({
        issuer: null,
        clientId: null,
        hasClientSecret: false,
        allowedDomains: null,
        defaultRoleId: null,
        ...noEndpoints,
      })
      const created = await create({ ...body, certificate: nothing, entityId: nothing, ssoUrl: nothing })
      expect(created).toMatchObject({ issuer: null, hasClientSecret: false, certificate: null })
    })

    it('needs a type and at least one change, and stays in its organization', async () => {
      const { create, change, client, bakery, garage, service, world } = await start(open)
      const { id } = await create()
      for (const body of [{}, { force: true }, { orgId: bakery.id }]) {
        await expect(change(id, body)).rejects.toEqual(said(400, 'No updates provided'))
      }
      expect(await change(id, { orgId: bakery.id, name: 'b' })).toMatchObject({ name: 'b' })
      await expect(change(id, { orgId: garage.id, name: 'c' })).rejects.toMatchObject({ status: 403 })
      const acme = service.client(world.tokens.acme)
      const body = { orgId: garage.id, name: 'c' }
      await expect(acme.call(api.ssoProviders.update, { params: { id }, body })).rejects.toEqual(
        fault('body.orgId', 'cannot change: make another provider there'),
      )
      await expect(client.call(api.ssoProviders.create, { body: { name: 'a' } })).rejects.toEqual(
        fault('body.type', 'is required, unless a preset says it'),
      )
    })

    it.each([
      ['issuer', 'http://idp.example.com', 'must use HTTPS'],
      ['issuer', 'https://{domain}.okta.com', 'fill in {domain} with what is yours'],
      ['issuer', 'https://idp.example.com?a=b', 'must not have a query: it is an issuer'],
      ['issuer', 'https://user@idp.example.com', 'must not hold a user name or password'],
      ['issuer', 'okta', 'must be a URL'],
      ['tokenUrl', 'http://idp.example.com/token', 'must use HTTPS'],
      ['tokenUrl', 'https://inner.example.com/token', 'must not point to internal network addresses'],
      ['jwksUrl', 'https://missing.example.com/keys', 'has a host that could not be resolved'],
      ['userInfoUrl', `https://idp.example.com/${'x'.repeat(500)}`, 'must be at most 500 characters'],
      ['ssoUrl', 'https://idp.example.com/#a', 'must not have a fragment'],
      [
        'allowedDomains',
        'example.com,someone@example.com',
        '"someone@example.com" is not a domain, such as example.com',
      ],
      ['allowedDomains', '*.example.com', '"*.example.com" is not a domain, such as example.com'],
      ['scopes', 'profile email', 'must hold openid, or nobody says who signs in'],
      ['scopes', 'openid "a"', 'must be OAuth scopes, with spaces between them'],
      ['certificate', 'hello', 'must be one X.509 certificate, as PEM'],
      ['certificate', certificate + certificate, 'must be one X.509 certificate, as PEM'],
      [
        'certificate',
        certificate.replaceAll('CERTIFICATE', 'PRIVATE KEY'),
        'must be one X.509 certificate, as PEM',
      ],
      ['preset', 'keycloak', expect.stringMatching(/^must be one of azure-ad, okta, /)],
      ['defaultRoleId', 'admin', 'must be a UUID'],
    ])('cannot be created or changed with a %s such as %s', async (field, value, message) => {
      const { create, change, service } = await start(open)
      const { id } = await create()
      const news = await newEntries(service)
      await expect(create({ [field]: value })).rejects.toEqual(fault(`body.${field}`, message))
      await expect(change(id, { [field]: value })).rejects.toEqual(fault(`body.${field}`, message))
      expect(await news()).toEqual([])
    })

    it('maps at least the claims for email and name, and only known ones', async () => {
      const { create } = await start(open)
      const faults: [unknown, object[]][] = [
        [{ email: 'email' }, [{ path: 'body.attributeMapping.name', message: 'is required' }]],
        [
          { email: ' ', name: 'a', phone: 'b' },
          [
            { path: 'body.attributeMapping.email', message: 'must not be empty' },
            { path: 'body.attributeMapping.phone', message: 'is not a known field' },
          ],
        ],
      ]
      for (const [attributeMapping, details] of faults) {
        await expect(create({ attributeMapping } as never)).rejects.toMatchObject({ status: 400, details })
      }
    })

    it('is deleted for good, with its pending sign-ins and identities', async () => {
      const { create, service, client, clock, show } = await start(open)
      const { id, createdBy: userId } = await create()
      const { id: other } = await create()
      for (const providerId of [id, other]) await signedIn(service, { providerId, userId, at: clock() })
      const news = await newEntries(service)
      expect(await client.call(api.ssoProviders.remove, { params: { id } })).toEqual({ success: true })
      expect([await knownBy(service, id), await knownBy(service, other)]).toEqual([
        [0, 0],
        [1, 1],
      ])
      expect(await news()).toMatchObject([
        {
          action: 'sso.provider.delete',
          resourceId: id,
          details: { forgotten: 1, before: { name: 'Okta' } },
        },
      ])
      await expect(show(id)).rejects.toMatchObject({ status: 404 })
    })
  })

  describe('a change of the issuer', () => {
    it('fills in the new endpoints, and removes the identities of the old issuer', async () => {
      const { create, change, published, service, clock } = await start(open)
      const other = 'https://other.example.com'
      const { id, createdBy: userId } = await create()
      await signedIn(service, { providerId: id, userId, at: clock() })
      await change(id, { name: 'b', issuer })
      expect(await knownBy(service, id)).toEqual([1, 1])
      published[other] = documentOf(other)
      const news = await newEntries(service)
      await expect(change(id, { issuer: other })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.clientSecret', message: expect.stringContaining('it is secret') }],
      })
      expect(await change(id, { issuer: other, clientSecret: 'another' })).toMatchObject({
        issuer: other,
        ...endpointsOf(other),
      })
      expect(await knownBy(service, id)).toEqual([0, 0])
      expect(await news()).toMatchObject([{ details: { forgotten: 1 } }])
    })

    it('never keeps the endpoints of the old issuer, even if the new one has none', async () => {
      const { create, change, client } = await start(open)
      const { id } = await create()
      const silent = 'https://silent.example.com'
      const body = { issuer: silent, jwksUrl: 'https://silent.example.com/jwks' }
      const { data, warning } = await client.call(api.ssoProviders.update, { params: { id }, body })
      expect(data).toMatchObject({ ...noEndpoints, ...body })
      expect(warning).toContain(`OIDC discovery failed for issuer "${silent}"`)
      expect(await change(id, { type: 'saml' })).toMatchObject({ type: 'saml', ...noEndpoints })
    })
  })

  describe('a preset', () => {
    it('fills in what is not given', async () => {
      const { create, asked } = await start(open)
      const okta = await create({ type: undefined, preset: 'okta', allowedDomains: 'example.com' })
      expect(okta).toMatchObject({
        type: 'oidc',
        preset: 'okta',
        scopes: 'openid profile email groups',
        attributeMapping: { email: 'email', name: 'name', firstName: 'given_name', groups: 'groups' },
      })
      const said = { scopes: 'openid', attributeMapping: { email: 'e', name: 'n' } }
      expect(await create({ preset: 'okta', ...said })).toMatchObject(said)
      asked.length = 0
      const google = await create({ preset: 'google', issuer: undefined })
      expect(asked).toEqual(['https://accounts.google.com/.well-known/openid-configuration'])
      expect(google).toMatchObject({
        issuer: 'https://accounts.google.com',
        tokenUrl: 'https://oauth2.googleapis.com/token',
        jwksUrl: 'https://www.googleapis.com/oauth2/v3/certs',
      })
      const saml = await create({ type: undefined, preset: 'adfs-saml', issuer: undefined })
      expect(saml).toMatchObject({ type: 'saml', ssoUrl: null, issuer: null })
      expect(saml.attributeMapping.groups).toBe('http://schemas.xmlsoap.org/claims/Group')
    })

    it('fits only its own type', async () => {
      const { create, change } = await start(open)
      const { id } = await create({ preset: 'okta' })
      await expect(create({ preset: 'okta-saml' })).rejects.toEqual(
        fault('body.preset', 'the preset okta-saml is for saml'),
      )
      await expect(change(id, { type: 'saml' })).rejects.toEqual(
        fault('body.type', 'the preset okta is for oidc'),
      )
    })

    it('that is set again keeps later changes', async () => {
      const { create, change } = await start(open)
      const { id } = await create({ preset: 'okta' })
      await change(id, { scopes: 'openid' })
      expect(await change(id, { preset: 'okta' })).toMatchObject({ scopes: 'openid' })
      expect(await change(id, { preset: 'auth0' })).toMatchObject({ scopes: 'openid profile email', issuer })
      expect(await change(id, { preset: null, scopes: '' })).toMatchObject({
        preset: null,
        scopes: 'openid profile email',
      })
    })

    it('is one of nine, each with its mapping and, for SAML, how to find the certificate', async () => {
      const { client } = await start(open)
      const { data } = await client.call(api.sso.presets)
      expect(data.map(({ id, type }) => `${id} ${type}`)).toEqual([
        'azure-ad oidc',
        'okta oidc',
        'google oidc',
        'auth0 oidc',
        'azure-ad-saml saml',
        'okta-saml saml',
        'onelogin-saml saml',
        'adfs-saml saml',
        'google-saml saml',
      ])
      for (const { type, attributeMapping, certificateInstructions, issuer: of, ssoUrl, scopes } of data) {
        expect([attributeMapping.email, attributeMapping.name]).not.toContain('')
        expect(certificateInstructions !== null).toBe(type === 'saml')
        expect([of !== null, ssoUrl !== null]).toEqual([type === 'oidc', type === 'saml'])
        expect(scopes?.startsWith('openid profile email') ?? false).toBe(type === 'oidc')
      }
    })
  })
})

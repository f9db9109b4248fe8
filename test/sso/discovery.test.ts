import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { reaching } from '../webhooks/receiver.ts'
import { buildWorld } from '../world.ts'
import { issuerOf } from './issuer.ts'
import { endpointsOf, noEndpoints } from './provider-fixture.ts'

const tooLarge = (1 << 20) + 1

describe.skipIf(!hasOpenssl)('OIDC discovery', () => {
  const certificate = testCertificate()

  onEveryDatabase((_, open) => {
    const start = async (env: Record<string, string> = reaching(certificate)) => {
      const service = await startService(open, { env })
      const world = await buildWorld(service)
      const idp = await issuerOf(certificate)
      const client = service.client(world.tokens.bakery)
      const create = (issuer: string, more: object = {}) =>
        client.call(api.ssoProviders.create, {
          body: { name: 'a', type: 'oidc', issuer, clientId: 'svc', clientSecret: 'hush', ...more },
        })
      const test = (id: string) => client.call(api.ssoProviders.test, { params: { id } })
      return { service, idp, client, create, test }
    }

    it('fills in the endpoints, and explicit ones take precedence', async () => {
      const { idp, client, create } = await start()
      const { data, warning } = await create(idp.url)
      expect(data).toMatchObject({ issuer: idp.url, status: 'inactive', ...endpointsOf(idp.url) })
      expect(warning).toBeUndefined()
      expect(idp.asked).toEqual(['GET /.well-known/openid-configuration'])
      const userInfoUrl = `${idp.url}/me`
      expect((await create(idp.url, { userInfoUrl })).data).toMatchObject({
        ...endpointsOf(idp.url),
        userInfoUrl,
      })
      const params = { id: data.id }
      await client.call(api.ssoProviders.update, { params, body: { name: 'b', scopes: 'openid' } })
      await client.call(api.ssoProviders.update, { params, body: { tokenUrl: `${idp.url}/t` } })
      expect(idp.asked).toHaveLength(2)
      const again = await client.call(api.ssoProviders.update, { params, body: { issuer: idp.url } })
      expect(again.data).toMatchObject(endpointsOf(idp.url))
    })

    it('requests the document below the path of the issuer', async () => {
      const { idp, create, test } = await start()
      const issuer = `${idp.url}/tenants/a/`
      idp.document.issuer = issuer
      const { data, warning } = await create(issuer)
      expect([data.issuer, warning]).toEqual([issuer, undefined])
      expect(idp.asked).toEqual(['GET /tenants/a/.well-known/openid-configuration'])
      expect(await test(data.id)).toMatchObject({ success: true })
    })

    it('can be tested without changing the provider', async () => {
      const { idp, service, create, test, client } = await start()
      const { data } = await create(idp.url)
      idp.document.token_endpoint = `${idp.url}/token2`
      const news = await newEntries(service)
      expect(await test(data.id)).toEqual({
        success: true,
        message: 'Provider configuration is valid',
        discovery: {
          issuer: idp.url,
          authorizationEndpoint: `${idp.url}/authorize`,
          tokenEndpoint: `${idp.url}/token2`,
          userInfoEndpoint: `${idp.url}/userinfo`,
        },
      })
      expect(await news()).toMatchObject([
        { action: 'sso.provider.test', resourceId: data.id, resourceName: 'a', details: { issuer: idp.url } },
      ])
      expect(await client.call(api.ssoProviders.show, { params: { id: data.id } })).toEqual({
        data,
        membersBeyond: 0,
      })
      const silent = (await create('')).data
      expect(await test(silent.id)).toEqual({
        success: true,
        message: 'Provider configuration appears valid',
      })
      const saml = (await create('', { type: 'saml' })).data
      await expect(test(saml.id)).rejects.toMatchObject({
        status: 400,
        message: 'Only OIDC providers can be tested',
      })
    })

    type Idp = Awaited<ReturnType<typeof issuerOf>>
    const says = (change: object) => (idp: Idp) => void Object.assign(idp.document, change)
    const answers = (answer: ReturnType<Idp['answer']>) => (idp: Idp) => {
      idp.answer = () => answer
    }
    it.each<[string, (idp: Idp) => void, reason: string | RegExp, hint: string | RegExp]>([
      ['is missing', answers({ status: 404 }), '404', /is the issuer right, with its path\?$/],
      ['redirects', answers({ status: 302, headers: { location: '/b' } }), '302', /is the issuer right/],
      ['is not JSON', answers({ body: '<html>' }), 'the document is not JSON', /has to be an OpenID Connect/],
      ['is a list', answers({ body: '[]' }), 'the document is not JSON', /has to be an OpenID Connect/],
      [
        'is too large',
        answers({ body: JSON.stringify({ a: 'x'.repeat(tooLarge) }) }),
        'the document is larger than 1 MiB',
        /^look at/,
      ],
      [
        'is of another issuer',
        says({ issuer: 'https://other.example.com/' }),
        'the issuer calls itself "https://other.example.com/"',
        'the issuer has to be what it calls itself, to the letter: https://other.example.com/',
      ],
      ['has no keys', says({ jwks_uri: undefined }), 'the document has no jwks_uri', /has to be/],
      [
        'has an endpoint without TLS',
        says({ token_endpoint: 'http://127.0.0.1/token' }),
        'its token_endpoint must use HTTPS',
        /set the endpoints by hand$/,
      ],
      [
        'has an endpoint that is not public',
        says({ userinfo_endpoint: 'https://10.0.0.1/me' }),
        'its userinfo_endpoint must not point to internal network addresses',
        /set the endpoints by hand$/,
      ],
      [
        'has an endpoint that is too long',
        says({ authorization_endpoint: `https://127.0.0.1/${'x'.repeat(500)}` }),
        'its authorization_endpoint must be at most 500 characters',
        /set the endpoints by hand$/,
      ],
    ])('of a document that %s warns at creation and fails the test', async (_, spoil, reason, hint) => {
      const { idp, service, create, test, client } = await start()
      spoil(idp)
      const { data, warning } = await create(idp.url)
      expect(data).toMatchObject({ issuer: idp.url, status: 'inactive', ...noEndpoints })
      expect(warning).toMatch(`OIDC discovery failed for issuer "${idp.url}": ${reason}. `)
      const news = await newEntries(service)
      await expect(test(data.id)).rejects.toMatchObject({
        status: 400,
        code: 'oidc_discovery_failed',
        message: `OIDC discovery failed: ${reason}`,
        details: { hint: expect.stringMatching(hint) },
      })
      expect(await news()).toEqual([])
      const params = { id: data.id }
      const set = await client.call(api.ssoProviders.update, { params, body: endpointsOf(idp.url) })
      expect(set.data).toMatchObject(endpointsOf(idp.url))
      await client.call(api.ssoProviders.setStatus, { params, body: { status: 'active' } })
    })

    it('accepts a document of up to 1 MiB', async () => {
      const { idp, create } = await start()
      idp.document.padding = 'x'.repeat(1_000_000)
      expect((await create(idp.url)).warning).toBeUndefined()
    })

    it('accepts a document without optional fields, but such a provider cannot be activated', async () => {
      const { idp, create, client } = await start()
      delete idp.document.userinfo_endpoint
      const { data, warning } = await create(idp.url)
      expect([data.userInfoUrl, data.jwksUrl, warning]).toEqual([null, `${idp.url}/keys`, undefined])
      const active = { params: { id: data.id }, body: { status: 'active' as const } }
      await expect(client.call(api.ssoProviders.setStatus, active)).rejects.toMatchObject({
        details: [{ path: 'provider.userInfoUrl', message: expect.stringContaining('is missing') }],
      })
    })

    it('does not connect to addresses that are not public', async () => {
      const { idp, create, test } = await start({
        OUTBOUND_ALLOW_CIDRS: '10.0.0.0/8',
        OUTBOUND_CA_FILE: certificate.file,
      })
      const { data, warning } = await create(idp.url)
      const reason = 'discovery URL must use HTTPS and must not point to internal network addresses'
      expect(warning).toContain(reason)
      await expect(test(data.id)).rejects.toMatchObject({
        message: `OIDC discovery failed: ${reason}`,
        details: { hint: expect.stringContaining('OUTBOUND_ALLOW_CIDRS') },
      })
      expect(idp.asked).toEqual([])
      await expect(create('', { tokenUrl: `${idp.url}/token` })).rejects.toMatchObject({
        details: [{ path: 'body.tokenUrl', message: 'must not point to internal network addresses' }],
      })
    })

    it('explains how to fix an untrusted certificate or an unreachable server', async () => {
      const { idp, create, test } = await start({ OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' })
      const hintOf = async (issuer: string) => {
        const failure = test((await create(issuer)).data.id)
        return failure.catch(({ details }) => (details as { hint: string }).hint)
      }
      expect(await hintOf(idp.url)).toContain('OUTBOUND_CA_FILE')
      expect(await hintOf('https://127.0.0.1:1')).toContain('nothing listens there')
    })
  })
})

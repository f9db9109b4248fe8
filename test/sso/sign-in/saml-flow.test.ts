import { type KeyObject, verify, X509Certificate } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { addSeconds } from '../../../src/core/time.ts'
import { parseXml } from '../../../src/sso/saml/xml.ts'
import { onEveryDatabase } from '../../databases.ts'
import { newEntries } from '../../laws/audited.ts'
import { withoutKey } from '../../lost-key.ts'
import { metricsToken, scrapedValues } from '../../metric-values.ts'
import { roleOf } from '../../world.ts'
import { expected, jo, type Said, signedAssertion } from '../saml/identity-provider.ts'
import { post, requestIn, responseTo, saml, samlEnv } from './posting.ts'
import { addMember, browser, codeIn, errorIn, start } from './sign-in-fixture.ts'

/** Whether the request in that redirect is signed by the holder of the key. */
function isSignedBy(publicKey: KeyObject, location: string): boolean {
  const { search, searchParams } = new URL(location)
  const [, signed = ''] = /(SAMLRequest=.*&SigAlg=[^&]+)&Signature=/.exec(search) ?? []
  const signature = Buffer.from(searchParams.get('Signature') ?? '', 'base64')
  return verify('sha256', Buffer.from(signed), publicKey, signature)
}

onEveryDatabase((kind, open) => {
  async function setUp(more: object = {}, env: Record<string, string> = {}) {
    const on = await start(open, { ...samlEnv, ...env })
    const { service, bakery, clock } = on
    const { id } = await on.provider({ ...saml, ...more })
    const begin = async (by = browser(), query = '') => {
      const { status, location } = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}${query}`)
      return {
        by,
        status,
        location,
        form: (said: Partial<Said> = {}) => responseTo(location, clock(), { said }),
      }
    }
    const enter = async (said: Partial<Said> = {}) => {
      const { by, form } = await begin()
      return post(by, service, form(said))
    }
    const exchange = (location: string) =>
      service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
    return { ...on, id, begin, enter, exchange }
  }

  describe('a SAML sign-in', () => {
    it('leads by a redirect request, a posted form and a code to a session', async () => {
      const { service, bakery, begin, exchange, clock, id: providerId } = await setUp()
      const userId = await addMember(service, bakery.id, jo)
      const news = await newEntries(service)
      const { by, status, location, form } = await begin(browser(), '?redirect=/devices')
      const { origin, pathname, searchParams } = new URL(location)
      expect([status, origin + pathname, searchParams.get('idpid')]).toEqual([
        302,
        'https://idp.example.com/sso',
        '1',
      ])
      const { request, relayState } = requestIn(location)
      expect([request.name, relayState]).toEqual(['AuthnRequest', expect.stringMatching(/^[0-9a-f]{64}$/)])
      expect(Object.fromEntries(request.attributes)).toMatchObject({
        Version: '2.0',
        ID: expect.stringMatching(/^_[0-9a-f]{32}$/),
        IssueInstant: clock(),
        Destination: saml.ssoUrl,
        AssertionConsumerServiceURL: expected.acsUrl,
      })
      expect(request.children.map(({ name, text }) => [name, text])).toEqual([
        ['Issuer', expected.entityId],
        ['NameIDPolicy', ''],
      ])

      const ended = await post(by, service, form())
      expect([ended.status, ended.location.split('#')[0]]).toEqual([302, 'https://app.example.com/devices'])
      expect(by.jar.size).toBe(0)
      const tokens = await exchange(ended.location)
      expect(await service.client(tokens.accessToken).call(api.auth.me)).toMatchObject({
        user: { id: userId },
        scope: 'organization',
        orgId: bakery.id,
        mfaVerified: false,
      })
      expect(await news()).toMatchObject([
        { action: 'sso.login', orgId: bakery.id, actorId: userId, details: { providerId, made: 'link' } },
        { action: 'user.login', orgId: bakery.id, actorId: userId, details: { method: 'sso' } },
      ])
      const [link] = await service.storage.read.selectFrom('sso_identities').selectAll().execute()
      expect(link).toMatchObject({ external_id: jo, email: jo, access_token: null, refresh_token: null })
      expect(JSON.parse(link?.profile ?? '')).toMatchObject({ nameId: jo, groups: ['bakers', 'early birds'] })
    })

    it('identifies users by NameID, even under another address', async () => {
      const { service, bakery, enter, exchange } = await setUp()
      const userId = await addMember(service, bakery.id, jo)
      const persistent = { nameId: 'a7f3', nameIdFormat: null }
      expect(errorIn((await enter(persistent)).location)).toBeNull()
      const { location } = await enter({
        ...persistent,
        attributes: { email: ['new@elsewhere.example.com'] },
      })
      const { accessToken } = await exchange(location)
      expect((await service.client(accessToken).call(api.auth.me)).user.id).toBe(userId)
    })

    it('creates an account when allowed', async () => {
      const role = roleOf('Org Viewer', 'organization')
      const { service, enter, exchange } = await setUp({ autoProvision: true, defaultRoleId: role })
      const attributes = { email: [jo], firstName: ['Jo'], lastName: ['Baker'] }
      const { accessToken } = await exchange((await enter({ attributes })).location)
      expect(await service.client(accessToken).call(api.auth.me)).toMatchObject({
        user: { email: jo, name: 'Jo Baker', status: 'active' },
        role: { id: role },
      })
    })

    it('creates no account for an organization that is full', async () => {
      const role = roleOf('Org Viewer', 'organization')
      const { service, bakery, enter } = await setUp(
        { autoProvision: true, defaultRoleId: role },
        { QUOTA_MEMBERS: '1' },
      )
      const attributes = { email: [jo], firstName: ['Jo'], lastName: ['Baker'] }
      expect(errorIn((await enter({ attributes })).location)).toBe('organization_full')
      await addMember(service, bakery.id, jo)
      expect(errorIn((await enter({ attributes })).location)).toBeNull()
    })

    it('accepts the second factor of the provider', async () => {
      const { service, bakery, enter, exchange } = await setUp()
      await addMember(service, bakery.id, jo)
      const { location } = await enter({ authnContext: 'https://refeds.org/profile/mfa' })
      const { accessToken } = await exchange(location)
      expect(await service.client(accessToken).call(api.auth.me)).toMatchObject({ mfaVerified: true })
    })

    it('sets a cookie that is also sent with a cross-site form', async () => {
      const { service, bakery } = await setUp()
      const reply = await fetch(`${service.url}/api/v1/sso/login/${bakery.id}`, { redirect: 'manual' })
      const [cookie] = reply.headers.getSetCookie()
      expect(cookie).toMatch(/^service_sso_[0-9a-f]{16}=/)
      for (const part of ['SameSite=None', 'Secure', 'HttpOnly', 'Path=/api/v1/sso', 'Max-Age=600'])
        expect(cookie).toContain(part)
    })

    it('without HTTPS sets the strictest cookie that still comes back with a redirect', async () => {
      const { service, bakery } = await setUp({}, { PUBLIC_URL: 'http://svc.example.com' })
      const reply = await fetch(`${service.url}/api/v1/sso/login/${bakery.id}`, { redirect: 'manual' })
      expect(reply.headers.getSetCookie()[0]).toMatch(/SameSite=Lax/)
      expect(reply.headers.getSetCookie()[0]).not.toMatch(/Secure/)
    })

    it('is refused in another browser, without a start, a second time, or as JSON', async () => {
      const { service, bakery, begin } = await setUp()
      await addMember(service, bakery.id, jo)
      const send = async (form: Record<string, string>, by = browser()) =>
        errorIn((await post(by, service, form)).location)
      expect(await send((await begin()).form())).toBe('invalid_callback')
      const { by, form } = await begin()
      const right = form()
      expect(await send({ ...right, RelayState: 'f'.repeat(64) }, by)).toBe('session_expired')
      const { RelayState, ...unsolicited } = right
      expect(await send(unsolicited, by)).toBe('invalid_callback')
      const body = JSON.stringify(right)
      const headers = { 'content-type': 'application/json' }
      const json = await by.open(`${service.url}/api/v1/sso/saml/acs`, { method: 'POST', body, headers })
      expect([json.status, JSON.parse(json.text).code]).toEqual([415, 'unsupported_media_type'])
      expect(await send(right, by)).toBeNull()
      expect(await send(right, by)).toBe('session_expired')
      // The response in another sign-in of the same browser.
      const { form: next } = await begin(by)
      expect(await send({ ...right, RelayState: next().RelayState! }, by)).toBe('saml_request_mismatch')
      expect(RelayState).toMatch(/^[0-9a-f]{64}$/)
    })

    it('that starts at the provider is refused', async () => {
      const { service, bakery, begin } = await setUp()
      await addMember(service, bakery.id, jo)
      const { by, form } = await begin()
      const { SAMLResponse } = form({ inResponseTo: null, confirmedInResponseTo: null })
      const news = await newEntries(service)
      const alone = await post(browser(), service, { SAMLResponse: SAMLResponse! })
      expect(errorIn(alone.location)).toBe('invalid_callback')
      const { location } = await post(by, service, { ...form(), SAMLResponse: SAMLResponse! })
      expect(errorIn(location)).toBe('saml_request_mismatch')
      expect(await news()).toMatchObject([
        {
          action: 'user.login.failed',
          orgId: bakery.id,
          details: { method: 'sso', reason: 'saml_request_mismatch' },
        },
      ])
    })

    it('cannot be replayed, even with its session restored or on another replica', async () => {
      const { service, bakery, begin, replica } = await setUp()
      await addMember(service, bakery.id, jo)
      const { by, form } = await begin()
      const [jar, used] = [[...by.jar], form()]
      const { storage } = service
      const row = await storage.read.selectFrom('sso_sessions').selectAll().executeTakeFirstOrThrow()
      expect(errorIn((await post(by, service, used)).location)).toBeNull()
      const again = async (at = service) => {
        await storage.write((tx) => tx.insertInto('sso_sessions').values(row).execute())
        for (const [name, value] of jar) by.jar.set(name, value)
        return errorIn((await post(by, at, used)).location)
      }
      expect(await again()).toBe('saml_replayed')
      if (kind === 'postgres') expect(await again(await replica())).toBe('saml_replayed')
    })

    it('is not completed by an OpenID Connect callback', async () => {
      const { service, begin } = await setUp()
      const { by, form } = await begin()
      const { RelayState } = form()
      const callback = `${service.url}/api/v1/sso/callback?code=a&state=${RelayState}`
      expect(errorIn((await by.open(callback)).location)).toBe('invalid_callback')
    })

    it('does not complete an OpenID Connect sign-in', async () => {
      const { service, bakery, provider, idp } = await start(open, samlEnv)
      await provider()
      const by = browser()
      const { location } = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
      const RelayState = new URL(location).searchParams.get('state')!
      const form = { SAMLResponse: Buffer.from('<a/>').toString('base64'), RelayState }
      expect(errorIn((await post(by, service, form)).location)).toBe('invalid_callback')
      expect(idp.asked).not.toContain('/token')
    })
  })

  describe('a SAML request', () => {
    it('is signed, and demands a NameID format and a new authentication, if so configured', async () => {
      const { service, bakery, begin, client, id } = await setUp()
      await addMember(service, bakery.id, jo)
      const plain = await begin()
      expect(new URL(plain.location).searchParams.has('Signature')).toBe(false)
      const body = { signRequests: true, nameIdFormat: 'persistent', forceAuthn: true } as const
      const { data } = await client.call(api.ssoProviders.update, { params: { id }, body })
      expect(data).toMatchObject(body)
      const { location } = await begin()
      const { request } = requestIn(location)
      expect(request.attributes.get('ForceAuthn')).toBe('true')
      expect(request.children[1]!.attributes.get('Format')).toBe(
        'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent',
      )
      const metadata = await (await fetch(`${service.url}/api/v1/sso/saml/metadata?signed=true`)).text()
      const [, base64 = ''] = /<ds:X509Certificate>([^<]+)</.exec(metadata) ?? []
      const { publicKey } = new X509Certificate(Buffer.from(base64, 'base64'))
      expect(isSignedBy(publicKey, location)).toBe(true)
    })

    it('is signed by a new key, set up anew, when the old one cannot be decrypted', async () => {
      const { service, world, bakery, client, id, clock } = await setUp()
      const sign = { params: { id }, body: { signRequests: true } } as const
      await client.call(api.ssoProviders.update, sign)
      await service.close()
      const env = { ...samlEnv, PUBLIC_URL: 'https://svc.example.com', METRICS_TOKEN: metricsToken }
      const again = await withoutKey(service, { clock, env })
      const login = () => browser().open(`${again.url}/api/v1/sso/login/${bakery.id}`)
      const refused = await login()
      expect(refused.status).toBe(400)
      expect(refused.text).toContain('cannot be decrypted: a system administrator has to set signRequests')
      const unreadable = await scrapedValues(again.url, 'svc_unreadable_values_total')
      expect(unreadable['saml_keys.private_key']).toBeGreaterThan(0)
      const certificateOf = async () =>
        /<ds:X509Certificate>([^<]+)</.exec(
          await (await fetch(`${again.url}/api/v1/sso/saml/metadata?signed=true`)).text(),
        )![1]!
      const old = await certificateOf()
      // All tenants share the key: an administrator of one of them does not replace it.
      await again.client(world.tokens.bakery).call(api.ssoProviders.update, sign)
      expect(await certificateOf()).toBe(old)
      expect((await login()).status).toBe(400)
      const news = await newEntries(again)
      const system = again.client(world.tokens.system)
      await Promise.all([1, 2].map(() => system.call(api.ssoProviders.update, sign)))
      const replaced = (await news()).filter(({ details }) => details.signingKey === 'replaced')
      expect(replaced).toHaveLength(1)
      const { location } = await login()
      const { publicKey } = new X509Certificate(Buffer.from(await certificateOf(), 'base64'))
      expect(await certificateOf()).not.toBe(old)
      expect(isSignedBy(publicKey, location)).toBe(true)
      const rows = await again.storage.read.selectFrom('saml_keys').select(['id', 'certificate']).execute()
      expect(rows).toEqual(
        expect.arrayContaining([{ id: expect.stringContaining('until'), certificate: old }]),
      )
      expect(rows).toHaveLength(2)
    })

    it('that demands a new authentication is not answered by an old one', async () => {
      const { service, bakery, begin, clock } = await setUp({ forceAuthn: true })
      await addMember(service, bakery.id, jo)
      const answered = async (seconds: number) => {
        const { by, location } = await begin()
        const at = `AuthnInstant="${addSeconds(clock(), seconds)}"`
        const sign = (xml: string) => signedAssertion(xml.replace(/AuthnInstant="[^"]+"/, at))
        return (await post(by, service, responseTo(location, clock(), { sign }))).location
      }
      expect(codeIn(await answered(0))).not.toBe('')
      expect(errorIn(await answered(-3600))).toBe('saml_not_forced')
    })
  })

  describe('the SAML metadata of the service', () => {
    const read = async (env: Record<string, string>) => {
      const { service } = await start(open, env)
      const reply = await fetch(`${service.url}/api/v1/sso/saml/metadata`)
      return { type: reply.headers.get('content-type'), document: parseXml(await reply.text()) }
    }

    it('give its entity ID, ACS address and NameID format', async () => {
      const { type, document } = await read({})
      expect(type).toMatch(/^application\/samlmetadata\+xml/)
      expect([document.name, document.attributes.get('entityID')]).toEqual([
        'EntityDescriptor',
        'https://svc.example.com/api/v1/sso/saml/metadata',
      ])
      const [role] = document.children
      expect(Object.fromEntries(role!.attributes)).toMatchObject({
        AuthnRequestsSigned: 'false',
        WantAssertionsSigned: 'true',
      })
      const [format, acs] = role!.children
      expect(format!.text).toBe('urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress')
      expect(Object.fromEntries(acs!.attributes)).toMatchObject({
        Binding: 'urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST',
        Location: expected.acsUrl,
      })
    })

    it('are the same on all replicas, with or without AuthnRequestsSigned', async () => {
      const { service, replica, client, id } = await setUp()
      const bare = await (await fetch(`${service.url}/api/v1/sso/saml/metadata?signed=true`)).text()
      // No provider demands signed requests yet.
      expect(bare).not.toContain('KeyDescriptor')
      expect(bare).toContain('AuthnRequestsSigned="false"')
      const sign = () =>
        client.call(api.ssoProviders.update, { params: { id }, body: { signRequests: true } })
      await sign()
      await client.call(api.ssoProviders.update, { params: { id }, body: { signRequests: false } })
      await sign()
      const ask = async ({ url }: { url: string }, query = '') =>
        (await fetch(`${url}/api/v1/sso/saml/metadata${query}`)).text()
      const all = await Promise.all(
        kind === 'sqlite' ? [1, 2].map(() => ask(service)) : [ask(service), ask(await replica())],
      )
      expect(all[0]).toBe(all[1])
      const signed = await ask(service, '?signed=true')
      expect(signed).toBe(all[0]!.replace('AuthnRequestsSigned="false"', 'AuthnRequestsSigned="true"'))
      const [row, ...more] = await service.storage.read.selectFrom('saml_keys').selectAll().execute()
      expect(more).toEqual([])
      expect(row!.private_key).toMatch(/^v1\./)
      expect(signed).toContain(row!.certificate)
    })

    it('give the configured entity ID', async () => {
      const { document } = await read({ SAML_SP_ENTITY_ID: 'urn:svc:"a"&<b>' })
      expect(document.attributes.get('entityID')).toBe('urn:svc:"a"&<b>')
    })
  })
})

import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { joinOrganization } from '../../../src/identity/memberships.ts'
import { pkceChallenge } from '../../../src/sso/oidc/flow.ts'
import type { Db } from '../../../src/storage/open.ts'
import { onEveryDatabase } from '../../databases.ts'
import { newEntries } from '../../laws/audited.ts'
import { addRole, roleOf } from '../../world.ts'
import { addMember, type Browser, browser, codeIn, errorIn, person, start } from './sign-in-fixture.ts'

onEveryDatabase((kind, open) => {
  describe('a sign-in with an identity provider', () => {
    it('starts with state, nonce, PKCE and a cookie', async () => {
      const { service, bakery, provider } = await start(open)
      await provider({ scopes: 'openid email' })
      const by = browser()
      const { status, location } = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
      expect(status).toBe(302)
      const { origin, pathname, searchParams } = new URL(location)
      expect(origin + pathname).toBe('https://idp.example.com/authorize')
      const query = Object.fromEntries(searchParams)
      expect(query).toEqual({
        response_type: 'code',
        client_id: 'svc',
        scope: 'openid email',
        code_challenge_method: 'S256',
        redirect_uri: 'https://svc.example.com/api/v1/sso/callback',
        state: expect.stringMatching(/^[0-9a-f]{64}$/),
        nonce: expect.stringMatching(/^[0-9a-f]{64}$/),
        code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      })
      const [row] = await service.storage.read.selectFrom('sso_sessions').selectAll().execute()
      expect(row).toMatchObject({ redirect_path: '/', expires_at: '2026-03-01T12:10:00.000Z' })
      expect(JSON.stringify(row)).not.toContain(query.state)
      expect(by.jar.size).toBe(1)
    })

    it('signs in a member of the organization, and links the identity', async () => {
      const { service, bakery, provider, signIn } = await start(open, {
        DASHBOARD_URL: 'https://app.example.com',
      })
      const { id: providerId } = await provider()
      const userId = await addMember(service, bakery.id, 'Dora@Bakery.example.com')
      const news = await newEntries(service)
      const { status, location } = await signIn(person, { query: '?redirect=/devices' })
      expect([status, location.split('#')[0]]).toEqual([302, 'https://app.example.com/devices'])
      const reply = await service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
      expect(reply).toEqual({
        accessToken: expect.any(String),
        refreshToken: expect.any(String),
        expiresInSeconds: 900,
      })
      const me = await service.client(reply.accessToken).call(api.auth.me)
      expect(me).toMatchObject({
        user: { id: userId },
        scope: 'organization',
        orgId: bakery.id,
        mfaVerified: false,
      })
      const identity = await service.storage.read
        .selectFrom('sso_identities')
        .selectAll()
        .executeTakeFirstOrThrow()
      expect(identity).toMatchObject({
        provider_id: providerId,
        user_id: userId,
        external_id: 'subject-1',
        email: person.email,
        token_expires_at: '2026-03-01T13:00:00.000Z',
      })
      expect(JSON.parse(identity.profile)).toMatchObject(person)
      expect(`${identity.access_token} ${identity.refresh_token}`).toMatch(/^v1\.\S+ v1\.\S+$/)
      expect(await news()).toMatchObject([
        { action: 'sso.login', orgId: bakery.id, actorId: userId, details: { providerId, made: 'link' } },
        { action: 'user.login', orgId: bakery.id, actorId: userId, details: { method: 'sso', mfa: false } },
      ])
      // From now on identified by the subject, even under another address.
      const again = await signIn({ ...person, email: 'dora@elsewhere.example.com' })
      expect(codeIn(again.location)).not.toBe('')
      expect(await service.storage.read.selectFrom('sso_identities').selectAll().execute()).toMatchObject([
        { id: identity.id, email: 'dora@elsewhere.example.com' },
      ])
    })

    it('creates an account when allowed, with the default role and without a password', async () => {
      const { service, provider, change, signIn } = await start(open)
      const { id } = await provider()
      expect(errorIn((await signIn()).location)).toBe('user_not_found')
      await change(id, { autoProvision: true })
      expect(errorIn((await signIn()).location)).toBe('default_role_required')
      const role = roleOf('Org Viewer', 'organization')
      await change(id, { defaultRoleId: role })
      const { location } = await signIn()
      const { accessToken } = await service
        .client()
        .call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
      const me = await service.client(accessToken).call(api.auth.me)
      expect(me).toMatchObject({
        user: { email: person.email, name: 'Dora Bakes', status: 'active' },
        role: { id: role },
      })
      const user = await service.storage.read
        .selectFrom('users')
        .selectAll()
        .where('id', '=', me.user.id)
        .executeTakeFirstOrThrow()
      expect(user.password_hash).toBeNull()
      expect(codeIn((await signIn()).location)).not.toBe('')
    })

    it('creates no account for an organization that is full, and invites nobody to it', async () => {
      const { service, bakery, garage, provider, signIn } = await start(open, { QUOTA_MEMBERS: '3' })
      const members = service.storage.read
        .selectFrom('organization_memberships')
        .select('user_id')
        .where('org_id', '=', bakery.id)
      await addMember(service, bakery.id, 'known@bakery.example.com')
      const before = await members.execute()
      expect(before.length).toBeGreaterThanOrEqual(3)
      await addMember(service, garage.id, 'gus@garage.example.com')
      await provider({ autoProvision: true, defaultRoleId: roleOf('Org Viewer', 'organization') })
      expect(errorIn((await signIn()).location)).toBe('organization_full')
      const elsewhere = { ...person, sub: 'gus', email: 'gus@garage.example.com' }
      expect(errorIn((await signIn(elsewhere)).location)).toBe('organization_full')
      expect(await members.execute()).toEqual(before)
      const member = { ...person, sub: 'known', email: 'known@bakery.example.com' }
      expect(errorIn((await signIn(member)).location)).toBeNull()
    })

    it('refuses users with a specific reason each', async () => {
      const { service, system, bakery, garage, provider, change, signIn } = await start(open)
      const { id } = await provider()
      const reason = async (who: Record<string, unknown>) => errorIn((await signIn(who)).location)
      await addMember(service, garage.id, 'gus@garage.example.com')
      expect(await reason({ ...person, email: 'gus@garage.example.com' })).toBe('no_org_access')
      expect(await reason({ ...person, email: 'admin@example.com' })).toBe('no_org_access')
      expect(await reason({ ...person, email: undefined })).toBe('sso_email_missing')
      const userId = await addMember(service, bakery.id, person.email)
      for (const no of [false, 'false', 'False', 0, '0', ['false']])
        expect([no, await reason({ ...person, email_verified: no })]).toEqual([no, 'sso_email_unverified'])
      await change(id, { allowedDomains: 'example.org, bäckerei.example' })
      expect(await reason(person)).toBe('domain_not_allowed')
      expect(await reason({ ...person, email: 'a@sub.example.org' })).toBe('domain_not_allowed')
      await change(id, { allowedDomains: 'bakery.example.com' })
      expect(await reason(person)).toBeNull()
      expect(await reason({ ...person, sub: 'somebody-else' })).toBe('sso_link_required')
      const disabled = (tx: Db) =>
        tx.updateTable('users').set({ status: 'disabled' }).where('id', '=', userId).execute()
      await service.storage.write(disabled)
      expect(await reason(person)).toBe('account_inactive')
      await system.call(api.orgs.update, { params: { id: bakery.id }, body: { status: 'suspended' } })
      const { status, text } = await browser().open(`${service.url}/api/v1/sso/login/${bakery.id}`)
      expect([status, JSON.parse(text).error]).toEqual([404, 'No active SSO provider for this organization'])
    })

    it('activates an invited user', async () => {
      const { service, bakery, provider, signIn } = await start(open)
      await provider()
      const userId = await addMember(service, bakery.id, person.email, 'invited')
      expect(codeIn((await signIn()).location)).not.toBe('')
      const user = service.storage.read.selectFrom('users').select('status').where('id', '=', userId)
      expect(await user.executeTakeFirst()).toEqual({ status: 'active' })
    })

    it('is refused in another browser, a second time, too late, or after a provider change', async () => {
      const { service, idp, bakery, clock, provider, change, setStatus } = await start(open)
      const { id } = await provider()
      await addMember(service, bakery.id, person.email)
      const by = browser()
      const begin = async () => {
        const { location } = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
        return `${service.url}/api/v1/sso/callback${new URL(await idp.authorize(location, person)).search}`
      }
      const end = async (url: string, who = by) => errorIn((await who.open(url)).location)
      expect(await end(await begin(), browser())).toBe('invalid_callback')
      const twice = await begin()
      expect(await end(twice)).toBeNull()
      expect(await end(twice)).toBe('session_expired')
      const late = await begin()
      clock.forward(601)
      expect(await end(late)).toBe('session_expired')
      const changed = await begin()
      await change(id, { name: 'another name' })
      expect(await end(changed)).toBe('sso_config_changed')
      const off = await begin()
      await setStatus(id, 'inactive')
      expect(await end(off)).toBe('provider_not_found')
      expect(await end(`${service.url}/api/v1/sso/callback?code=a`)).toBe('invalid_callback')
      expect(await end(`${service.url}/api/v1/sso/callback?code=a&state=b`)).toBe('session_expired')
    })

    it('gives a code that works once, for two minutes, and only with the verifier', async () => {
      const { service, bakery, clock, provider, signIn } = await start(open)
      await provider()
      await addMember(service, bakery.id, person.email)
      const exchange = (body: { code: string; verifier?: string }) =>
        service.client().call(api.ssoSignIn.exchange, { body })
      const refused = {
        status: 400,
        code: 'invalid_exchange_code',
        message: 'Invalid or expired token exchange code',
      }
      const code = codeIn((await signIn()).location)
      const both = await Promise.allSettled([exchange({ code }), exchange({ code })])
      expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
      await expect(exchange({ code })).rejects.toMatchObject(refused)
      const late = codeIn((await signIn()).location)
      clock.forward(121)
      await expect(exchange({ code: late })).rejects.toMatchObject(refused)
      const query = `?redirect=${encodeURIComponent('http://127.0.0.1:5000/')}`
      const bare = await browser().open(`${service.url}/api/v1/sso/login/${bakery.id}${query}`)
      expect(JSON.parse(bare.text).details).toMatchObject([{ path: 'query.challenge' }])
      const { location } = await signIn(person, { query: `${query}&challenge=${pkceChallenge('my own')}` })
      expect(location).toMatch(/^http:\/\/127\.0\.0\.1:5000\/#ssoCode=/)
      await expect(exchange({ code: codeIn(location) })).rejects.toMatchObject(refused)
      await expect(exchange({ code: codeIn(location), verifier: 'other' })).rejects.toMatchObject(refused)
      expect(await exchange({ code: codeIn(location), verifier: 'my own' })).toMatchObject({
        expiresInSeconds: 900,
      })
    })

    it('that ends at the built-in page has a code that no other browser can use', async () => {
      const { service, bakery, provider, signIn } = await start(open, { DASHBOARD_URL: '' })
      await provider()
      await addMember(service, bakery.id, person.email)
      const by = browser()
      const { location } = await signIn(person, { browser: by })
      expect(location).toMatch(/^\/login#ssoCode=/)
      const body = JSON.stringify({ code: codeIn(location) })
      const exchange = (who: Browser) =>
        who.open(`${service.url}/api/v1/sso/exchange`, {
          method: 'POST',
          body,
          headers: { 'content-type': 'application/json' },
        })
      expect(await exchange(browser())).toMatchObject({ status: 400 })
      expect(await exchange(by)).toMatchObject({ status: 200 })
      const elsewhere = await signIn(person, { query: '?redirect=/devices' })
      // A path of a missing application would answer with an error, with the code in the address.
      expect(elsewhere.location).toMatch(/^\/login#ssoCode=/)
    })

    it.each(['', 'https://app.example.com'])(
      'goes on at the page that approves a terminal, where that asked for it (DASHBOARD_URL %j)',
      async (DASHBOARD_URL) => {
        const { service, bakery, provider, signIn } = await start(open, { DASHBOARD_URL })
        await provider()
        await addMember(service, bakery.id, person.email)
        const by = browser()
        const { location } = await signIn(person, { browser: by, query: '?redirect=/device' })
        expect(location).toMatch(/^\/device#ssoCode=/)
        const body = JSON.stringify({ code: codeIn(location) })
        const request = { method: 'POST', body, headers: { 'content-type': 'application/json' } }
        const exchange = (who: Browser) => who.open(`${service.url}/api/v1/sso/exchange`, request)
        expect(await exchange(browser())).toMatchObject({ status: 400 })
        expect(await exchange(by)).toMatchObject({ status: 200 })
      },
    )

    it('has a code that a planted address cannot use at our pages', async () => {
      const { service, bakery, provider, signIn } = await start(open, {
        DASHBOARD_URL: 'https://app.example.com',
      })
      await provider()
      await addMember(service, bakery.id, person.email)
      const exchange = async (query: string, more: object) => {
        const { location } = await signIn(person, { query })
        const body = JSON.stringify({ code: codeIn(location), ...more })
        const request = { method: 'POST', body, headers: { 'content-type': 'application/json' } }
        return (await browser().open(`${service.url}/api/v1/sso/exchange`, request)).status
      }
      // The SHA-256 of nothing: a request without a verifier is no proof.
      const challenge = pkceChallenge('')
      expect(await exchange(`?redirect=/device&challenge=${challenge}`, { sameBrowser: true })).toBe(400)
      expect(await exchange(`?redirect=/device&challenge=${challenge}`, {})).toBe(400)
      // A dashboard takes codes without a challenge; our pages do not.
      expect(await exchange('?redirect=/', { sameBrowser: true })).toBe(400)
      expect(await exchange('?redirect=/', {})).toBe(200)
    })

    it('redirects to no other site', async () => {
      const { service, bakery, provider, signIn } = await start(open, {
        DASHBOARD_URL: 'https://app.example.com',
      })
      await provider()
      await addMember(service, bakery.id, person.email)
      const targets = [
        '//evil.example',
        '/\\evil.example',
        'https://evil.example',
        '/\t/evil.example',
        'x',
        '/a#b',
      ]
      for (const target of [
        ...targets,
        'http://127.0.0.1.evil.example:80/',
        'http://127.0.0.1:80@evil.example/',
      ]) {
        const { location } = await signIn(person, { query: `?redirect=${encodeURIComponent(target)}` })
        expect(location, target).toMatch(/^https:\/\/app\.example\.com\/#ssoCode=/)
      }
    })

    it('accepts the second factor of the provider', async () => {
      const { service, bakery, provider, signIn } = await start(open)
      await provider()
      await addMember(service, bakery.id, person.email)
      const { location } = await signIn({ ...person, amr: ['pwd', 'mfa'] })
      const tokens = await service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
      expect(await service.client(tokens.accessToken).call(api.auth.me)).toMatchObject({ mfaVerified: true })
    })

    it.runIf(kind === 'postgres')(
      'can start at one replica, return to another, and end at the first',
      async () => {
        const { service, bakery, provider, signIn, replica } = await start(open)
        await provider()
        await addMember(service, bakery.id, person.email)
        const second = await replica()
        const { location } = await signIn(person, { at: second })
        const body = { code: codeIn(location) }
        expect(await service.client().call(api.ssoSignIn.exchange, { body })).toMatchObject({
          expiresInSeconds: 900,
        })
        await expect(second.client().call(api.ssoSignIn.exchange, { body })).rejects.toMatchObject({
          status: 400,
        })
      },
    )

    it('creates one account for concurrent first sign-ins', async () => {
      const { service, provider, signIn } = await start(open)
      await provider({ autoProvision: true, defaultRoleId: roleOf('Org Viewer', 'organization') })
      const ways = await Promise.all(Array.from({ length: 6 }, () => signIn()))
      expect(ways.map(({ location }) => errorIn(location))).toEqual(Array.from({ length: 6 }, () => null))
      const users = service.storage.read
        .selectFrom('users')
        .select('id')
        .where('email_key', '=', person.email)
      expect(await users.execute()).toHaveLength(1)
    })
  })

  describe('a session of single sign-on', () => {
    const signedIn = async (env = {}) => {
      const all = await start(open, env)
      const { id: providerId } = await all.provider()
      const userId = await addMember(all.service, all.bakery.id, person.email)
      const session = async () => {
        const { location } = await all.signIn()
        return all.service.client().call(api.ssoSignIn.exchange, { body: { code: codeIn(location) } })
      }
      return { ...all, providerId, userId, session }
    }

    it('is limited to its organization', async () => {
      const { service, garage, userId, session } = await signedIn()
      const roleId = await addRole(service, garage.id, 'r', ['devices:read'])
      const joins = { orgId: garage.id, userId, roleId, siteIds: null }
      await service.storage.write((tx) => joinOrganization(tx, joins, '2026-03-01T12:00:00.000Z'))
      const { accessToken } = await session()
      const as = service.client(accessToken)
      const body = { orgId: garage.id }
      await expect(as.call(api.auth.switch, { body })).rejects.toMatchObject({
        status: 403,
        code: 'forbidden',
      })
      await expect(as.call(api.auth.setupMfa, { body: {} })).rejects.toMatchObject({
        status: 403,
        code: 'forbidden',
      })
    })

    it('lasts a day at most, and ends with its provider', async () => {
      const { service, client, clock, providerId, session, setStatus } = await signedIn()
      const { refreshToken } = await session()
      const refresh = (token: string) =>
        service.client().call(api.auth.refresh, { body: { refreshToken: token } })
      const { tokens } = await refresh(refreshToken)
      clock.forward(24 * 3600)
      await expect(refresh(tokens.refreshToken!)).rejects.toMatchObject({ status: 401 })
      const second = await session()
      await setStatus(providerId, 'inactive')
      await expect(service.client(second.accessToken).call(api.auth.me)).rejects.toMatchObject({
        status: 401,
      })
      await expect(refresh(second.refreshToken)).rejects.toMatchObject({ status: 401 })
      await setStatus(providerId, 'active')
      const third = await session()
      expect(await service.client(third.accessToken).call(api.auth.me)).toMatchObject({
        scope: 'organization',
      })
      await client.call(api.ssoProviders.remove, { params: { id: providerId } })
      await expect(service.client(third.accessToken).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
    })
  })
})

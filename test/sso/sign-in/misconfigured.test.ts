import { SignJWT, UnsecuredJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { logInto } from '../../../daemon/log.ts'
import { api } from '../../../src/api.ts'
import type { BodyOf } from '../../../src/core/endpoint.ts'
import type { FailureKind } from '../../../src/core/outbound.ts'
import { type FailureCode, failures } from '../../../src/sso/failures.ts'
import { type Open, onEveryDatabase } from '../../databases.ts'
import { addRole, roleOf } from '../../world.ts'
import { fault, issuer } from '../provider-fixture.ts'
import { selfSigned } from '../saml/certificate.ts'
import {
  certificate,
  jo,
  keys,
  otherKeys,
  restrictedTo,
  type Said,
  signedAssertion,
} from '../saml/identity-provider.ts'
import type { IdentityProvider } from './identity-provider.ts'
import { post, responseTo, saml, samlEnv } from './posting.ts'
import { addMember, type Browser, browser, codeIn, errorIn, person, start } from './sign-in-fixture.ts'

type Change = BodyOf<typeof api.ssoProviders.update>
type Answers = IdentityProvider['replies'][string]

/** A misconfiguration, and what an administrator is shown. */
type Wrong = {
  what: string
  /** Settings of the provider in the service. */
  set?: Change
  code: FailureCode
  /** What was received, as shown in the log and the trial. */
  detail: string
  /** A part of the hint, which names what to fix. */
  mend: string
}

type Case = Wrong & {
  /** Replies of the identity provider. */
  replies?: Record<string, Answers>
  does?: (idp: IdentityProvider, seconds: number) => void
  who?: Record<string, unknown>
  /** Parameters of the callback. */
  answer?: Record<string, string>
}

type SamlCase = Wrong & { said?: Partial<Said>; sign?: (xml: string) => string }

const claims = (said: Record<string, unknown>) => (idp: IdentityProvider) => {
  idp.idClaims = said
}
const shifted = (by: number, length: number) => (idp: IdentityProvider, seconds: number) => {
  idp.idClaims = { iat: seconds + by, exp: seconds + by + length }
}
const token = (make: (said: Record<string, unknown>, idp: IdentityProvider) => Promise<string>) => {
  return (idp: IdentityProvider) => {
    idp.idToken = (said) => make(said, idp)
  }
}
const failing = (path: string, fails: FailureKind) => ({ [path]: { fails } })
const client = { id: '--client-id', secret: '--client-secret' }

const cases: Case[] = [
  {
    what: 'a wrong client secret',
    set: { clientSecret: 'wrong' },
    code: 'sso_client_rejected',
    detail: '401 invalid_client: client authentication',
    mend: client.secret,
  },
  {
    what: 'a client secret with a space behind it',
    set: { clientSecret: 'hush ' },
    code: 'sso_client_rejected',
    detail: 'the secret has space around it',
    mend: 'without spaces',
  },
  {
    what: 'a client that the provider does not know',
    set: { clientId: 'unknown' },
    code: 'sso_client_rejected',
    detail: '401 invalid_client',
    mend: client.id,
  },
  {
    what: 'a client without the permission for this flow',
    answer: { error: 'unauthorized_client', code: '' },
    code: 'sso_client_rejected',
    detail: 'unauthorized_client',
    mend: client.id,
  },
  {
    what: 'a redirect address that is not registered',
    replies: { '/token': { status: 400, body: { error: 'redirect_uri_mismatch' } } },
    code: 'sso_redirect_rejected',
    detail: '400 redirect_uri_mismatch',
    mend: 'PUBLIC_URL',
  },
  {
    what: 'a code that is of another application',
    replies: { '/token': { status: 400, body: { error: 'invalid_grant' } } },
    code: 'sso_code_rejected',
    detail: '400 invalid_grant',
    mend: 'client id',
  },
  {
    what: 'another tenant',
    does: claims({ iss: 'https://login.example.com/other/v2.0' }),
    code: 'sso_issuer_mismatch',
    detail: 'login.example.com/other',
    mend: '--issuer',
  },
  {
    what: 'an issuer without its last slash',
    does: claims({ iss: `${issuer}/` }),
    code: 'sso_issuer_mismatch',
    detail: `"${issuer}/", not "${issuer}"`,
    mend: 'to the letter',
  },
  {
    what: 'an answer of another provider',
    answer: { iss: 'https://other.example.com' },
    code: 'sso_issuer_mismatch',
    detail: 'the answer is of "https://other',
    mend: '--issuer',
  },
  {
    what: 'no e-mail address',
    who: { sub: 'subject-1', name: 'Dora' },
    code: 'sso_email_missing',
    detail: '"email" is not among sub, name',
    mend: 'scope email',
  },
  {
    what: 'an e-mail address in a claim that is not there',
    set: { attributeMapping: { email: 'mail', name: 'name' } },
    code: 'sso_email_missing',
    detail: '"mail" is not among sub, email',
    mend: 'map email',
  },
  {
    what: 'a user name where the e-mail address should be',
    set: { attributeMapping: { email: 'name', name: 'name' } },
    code: 'sso_email_missing',
    detail: '"Dora Bakes" is none',
    mend: 'map email',
  },
  {
    what: 'an e-mail address that is not verified',
    who: { ...person, email_verified: false },
    code: 'sso_email_unverified',
    detail: person.email,
    mend: 'Verify',
  },
  {
    what: 'a clock that is behind at the provider',
    does: shifted(-3600, 300),
    code: 'sso_token_expired',
    detail: 'here it is',
    mend: 'clocks',
  },
  {
    what: 'a clock that is ahead at the provider',
    does: shifted(120, 300),
    code: 'sso_clock_ahead',
    detail: 'here it is',
    mend: 'clocks',
  },
  {
    what: 'keys that cannot be read',
    does: token((said, idp) => idp.signed(said, 'its', 'rotated')),
    replies: failing('/keys', 'timeout'),
    code: 'sso_keys_unavailable',
    detail: `${issuer}/keys: it failed: timeout`,
    mend: 'svc sso test',
  },
  {
    what: 'a wrong address of the keys',
    does: token((said, idp) => idp.signed(said, 'its', 'rotated')),
    replies: { '/keys': { status: 404, body: 'nothing here' } },
    code: 'sso_keys_unavailable',
    detail: `${issuer}/keys answered 404`,
    mend: 'address of the keys',
  },
  {
    what: 'a key that is not published',
    does: token((said, idp) => idp.signed(said, 'its', 'rotated')),
    code: 'sso_key_unknown',
    detail: 'no applicable key',
    mend: '--issuer',
  },
  {
    what: 'another key under the same name',
    does: token((said, idp) => idp.signed(said, 'another')),
    code: 'sso_signature_invalid',
    detail: 'signature verification failed',
    mend: 'keys',
  },
  {
    what: 'a token signed with the client secret',
    does: token((said) =>
      new SignJWT(said).setProtectedHeader({ alg: 'HS256' }).sign(new TextEncoder().encode('hush'.repeat(8))),
    ),
    code: 'sso_algorithm_refused',
    detail: 'its algorithm is "HS256"',
    mend: 'RS256',
  },
  {
    what: 'a token that is not signed',
    does: token(async (said) => new UnsecuredJWT(said).encode()),
    code: 'sso_algorithm_refused',
    detail: 'its algorithm is "none"',
    mend: 'none and HS256',
  },
  {
    what: 'an ID token that is no JWT',
    does: token(async () => 'opaque'),
    code: 'sso_token_malformed',
    detail: 'Invalid Compact JWS',
    mend: 'token address',
  },
  {
    what: 'a nonce that is not passed on',
    does: claims({ nonce: undefined }),
    code: 'sso_nonce_mismatch',
    detail: 'it has none',
    mend: 'nonce',
  },
  {
    what: 'a token for another application',
    does: claims({ aud: 'other' }),
    code: 'sso_audience_mismatch',
    detail: 'it is for "other", not "svc"',
    mend: '--client-id',
  },
  {
    what: 'a token that was given to another application',
    does: claims({ aud: ['svc', 'other'], azp: 'other' }),
    code: 'sso_audience_mismatch',
    detail: 'it was given to "other"',
    mend: '--client-id',
  },
  {
    what: 'another access token than the one of the ID token',
    does: claims({ at_hash: 'AAAAAAAAAAAAAAAAAAAAAA' }),
    code: 'sso_access_token_mismatch',
    detail: 'at_hash',
    mend: 'proxies',
  },
  {
    what: 'user info of another person',
    replies: { '/userinfo': { body: { ...person, sub: 'subject-2' } } },
    code: 'sso_subject_mismatch',
    detail: 'differ',
    mend: 'tells about people',
  },
  {
    what: 'user info that refuses the token',
    replies: { '/userinfo': { status: 401, body: { error: 'invalid_token' } } },
    code: 'sso_userinfo_failed',
    detail: 'it answered 401',
    mend: 'scopes',
  },
  {
    what: 'no subject',
    does: (idp) => {
      idp.idToken = async () => undefined
    },
    replies: { '/userinfo': { body: { email: person.email } } },
    code: 'sso_no_subject',
    detail: '',
    mend: 'openid',
  },
  {
    what: 'a token endpoint that is a web page',
    replies: { '/token': { body: '<html>Sign in</html>' } },
    code: 'sso_token_failed',
    detail: 'its reply has no access_token',
    mend: 'token address',
  },
  {
    what: 'a token endpoint that fails',
    replies: { '/token': { status: 500, body: 'oops' } },
    code: 'sso_token_failed',
    detail: 'it answered 500',
    mend: 'token address',
  },
  {
    what: 'a token endpoint that does not answer',
    replies: failing('/token', 'timeout'),
    code: 'sso_timeout',
    detail: 'idp.example.com: it failed: timeout',
    mend: 'firewall',
  },
  {
    what: 'a token endpoint with a wrong certificate',
    replies: failing('/token', 'tls'),
    code: 'sso_tls_failed',
    detail: 'idp.example.com: it failed: tls',
    mend: 'OUTBOUND_CA_FILE',
  },
  {
    what: 'a token endpoint whose name does not resolve',
    replies: failing('/token', 'dns'),
    code: 'sso_dns_failed',
    detail: 'idp.example.com: it failed: dns',
    mend: 'spelled',
  },
  {
    what: 'a token endpoint that has moved into the internal network',
    replies: failing('/token', 'blocked'),
    code: 'sso_address_blocked',
    detail: 'idp.example.com',
    mend: 'OUTBOUND_ALLOW_CIDRS',
  },
  {
    what: 'a token endpoint where nothing listens',
    replies: failing('/token', 'refused'),
    code: 'sso_provider_unreachable',
    detail: 'idp.example.com',
    mend: 'port',
  },
  {
    what: 'scopes that the provider does not know',
    answer: { error: 'invalid_scope', error_description: 'unknown scope groups', code: '' },
    code: 'sso_scope_refused',
    detail: 'invalid_scope: unknown scope groups',
    mend: '--scopes',
  },
  {
    what: 'a user who is not assigned to the application',
    answer: { error: 'access_denied', error_description: 'AADSTS50105', code: '' },
    code: 'sso_denied',
    detail: 'access_denied: AADSTS50105',
    mend: 'assign',
  },
  {
    what: 'a provider that is out of order',
    answer: { error: 'server_error', code: '' },
    code: 'sso_refused_by_provider',
    detail: 'server_error',
    mend: 'its log',
  },
  {
    what: 'an answer without a code',
    answer: { code: '' },
    code: 'invalid_callback',
    detail: 'the answer has no code',
    mend: 'Begin again',
  },
  {
    what: 'a domain that is not allowed',
    set: { allowedDomains: 'other.example.com' },
    code: 'domain_not_allowed',
    detail: 'is none of other.example.com',
    mend: 'allow the domain',
  },
  {
    what: 'an unknown user without provisioning',
    who: { ...person, sub: 'new', email: 'new@bakery.example.com' },
    code: 'user_not_found',
    detail: 'new@bakery.example.com',
    mend: 'invite',
  },
  {
    what: 'provisioning without a default role',
    set: { autoProvision: true },
    who: { ...person, sub: 'new', email: 'new@bakery.example.com' },
    code: 'default_role_required',
    detail: 'new@bakery.example.com',
    mend: '--default-role',
  },
  {
    what: 'a user of another organization',
    who: { ...person, sub: 'gus', email: 'gus@garage.example.com' },
    code: 'no_org_access',
    detail: 'gus@garage.example.com',
    mend: 'invite',
  },
  {
    what: 'a user of another organization, with provisioning',
    set: { autoProvision: true, defaultRoleId: roleOf('Org Viewer', 'organization') },
    who: { ...person, sub: 'gus', email: 'gus@garage.example.com' },
    code: 'invitation_pending',
    detail: 'gus@garage.example.com',
    mend: 'svc invite accept',
  },
  {
    what: 'a disabled user',
    who: { ...person, sub: 'off', email: 'off@bakery.example.com' },
    code: 'account_inactive',
    detail: 'off@bakery.example.com',
    mend: 'svc users enable',
  },
  {
    what: 'a user whose account is linked with another subject',
    who: { ...person, sub: 'subject-9', email: 'linked@bakery.example.com' },
    code: 'sso_link_required',
    detail: 'linked@bakery.example.com',
    mend: 'svc sso unlink PROVIDER',
  },
]

const sha1 = 'http://www.w3.org/2000/09/xmldsig#rsa-sha1'
const encrypted = '<saml:EncryptedAssertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"/>'
const anHour = { past: '2026-03-01T11:00:00Z', future: '2026-03-09T12:00:00Z' }

const samlCases: SamlCase[] = [
  {
    what: 'a certificate that is not the one of the provider',
    sign: (xml) => signedAssertion(xml, { keys: otherKeys, shows: selfSigned(otherKeys) }),
    code: 'saml_signature_invalid',
    detail: certificate.fingerprint256,
    mend: '--certificate',
  },
  {
    what: 'an entity id that is not the one of the provider',
    set: { entityId: 'https://idp.example.com/other' },
    code: 'saml_issuer_mismatch',
    detail: 'not "https://idp.example.com/other"',
    mend: '--entity-id',
  },
  {
    what: 'an audience that is not this service',
    said: { audience: restrictedTo('https://other.example.com') },
    code: 'saml_audience_mismatch',
    detail: 'it is for "https://other.example.com"',
    mend: 'our metadata',
  },
  {
    what: 'an ACS address that is not ours',
    said: { recipient: 'https://other.example.com/acs' },
    code: 'saml_recipient_mismatch',
    detail: 'other.example.com/acs',
    mend: 'ACS address',
  },
  {
    what: 'an assertion that is not signed',
    sign: (xml) => xml,
    code: 'saml_unsigned',
    detail: '',
    mend: 'sign assertions',
  },
  {
    what: 'a signature with SHA-1',
    sign: (xml) => signedAssertion(xml, { method: sha1 }),
    code: 'saml_algorithm_refused',
    detail: 'rsa-sha1',
    mend: 'RSA-SHA256',
  },
  {
    what: 'an assertion that is encrypted',
    said: { after: encrypted },
    code: 'saml_encrypted',
    detail: 'EncryptedAssertion',
    mend: 'encryption',
  },
  {
    what: 'a signature that covers one of two assertions',
    said: { after: '<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_two"/>' },
    code: 'saml_signature_ambiguous',
    detail: 'more than one assertion',
    mend: 'forged',
  },
  {
    what: 'a clock that is behind at the provider',
    said: { notOnOrAfter: anHour.past },
    code: 'saml_expired',
    detail: 'here it is',
    mend: 'clocks',
  },
  {
    what: 'a clock that is ahead at the provider',
    said: { notBefore: anHour.future },
    code: 'saml_not_yet_valid',
    detail: 'here it is',
    mend: 'clocks',
  },
  {
    what: 'a sign-in that began at the provider',
    said: { inResponseTo: null, confirmedInResponseTo: null },
    code: 'saml_request_mismatch',
    detail: 'the response is to',
    mend: 'Begin at this service',
  },
  {
    what: 'a provider that refuses',
    said: {
      status:
        '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Responder"/><samlp:StatusMessage>not assigned</samlp:StatusMessage>',
    },
    code: 'saml_status',
    detail: 'Responder: not assigned',
    mend: 'its log',
  },
  {
    what: 'a transient NameID',
    said: { nameIdFormat: 'urn:oasis:names:tc:SAML:2.0:nameid-format:transient' },
    code: 'saml_no_subject',
    detail: 'transient',
    mend: 'NameID',
  },
  {
    what: 'a reply of another binding',
    sign: () => 'artifact',
    code: 'saml_malformed',
    detail: '',
    mend: 'HTTP-POST',
  },
  {
    what: 'no e-mail address',
    said: { nameId: 'jo', nameIdFormat: null, attributes: { upn: ['jo'] } },
    code: 'sso_email_missing',
    detail: '"email" is not among upn',
    mend: 'map email',
  },
]

type Stage = Awaited<ReturnType<typeof start>>

/** A service with a provider, whose log is captured. */
async function setUp(open: Open, env: Record<string, string>, more: Parameters<Stage['provider']>[0]) {
  const lines: Record<string, unknown>[] = []
  const into = { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) }
  const begun = await start(open, { LOG_LEVEL: 'warn', ...env }, { log: logInto(into, 'warn') })
  const { id } = await begun.provider(more)
  const refusals = () => lines.filter(({ msg }) => msg === 'SSO sign-in refused')
  return { ...begun, id, lines, refusals }
}

/** Signs in and runs a trial like a browser, and checks what each place reports about the fault. */
async function expectTold(
  { service, client, clock, bakery, id, lines, refusals }: Awaited<ReturnType<typeof setUp>>,
  { code, detail, mend }: Wrong,
  end: (by: Browser, location: string) => Promise<{ status: number; location: string }>,
): Promise<void> {
  lines.length = 0
  const { hint, message } = failures[code]
  expect(hint).toContain(mend)
  const by = browser()
  const way = async (url: string) => end(by, (await by.open(url)).location)
  // The cached keys have expired, so they are fetched again.
  clock.forward(601)
  const { status, location } = await way(`${service.url}/api/v1/sso/login/${bakery.id}`)
  const query = Object.fromEntries(new URL(location, service.url).searchParams)
  expect([status, query]).toEqual([302, { error: code, message, hint, orgId: bakery.id }])
  const received = detail === '' ? expect.anything() : expect.stringContaining(detail)
  const logEntry = { reason: code, hint, providerId: id, ...(detail !== '' && { detail: received }) }
  expect(refusals()).toEqual([expect.objectContaining(logEntry)])

  clock.forward(601)
  const trial = await client.call(api.ssoTrials.begin, { params: { id }, body: {} })
  const ended = await way(trial.loginUrl.replace('https://svc.example.com', service.url))
  expect(ended.location).toBe(`https://app.example.com/login?ssoTest=failed&error=${code}`)
  const { status: came, steps } = await client.call(api.ssoTrials.show, { params: { id, testId: trial.id } })
  expect([came, steps.map(({ ok }) => ok)]).toEqual(['failed', [...steps.slice(1).map(() => true), false]])
  const last = { step: message, ok: false, code, hint }
  expect(steps.at(-1)).toMatchObject(detail === '' ? last : { ...last, received })
  expect(JSON.stringify([lines, steps])).not.toMatch(/hush|access-token|"again"|eyJ/)
}

onEveryDatabase((kind, open) => {
  describe('a misconfigured OpenID Connect provider', () => {
    let on: Awaited<ReturnType<typeof setUp>>
    const usual = {
      clientId: 'svc',
      clientSecret: 'hush',
      autoProvision: false,
      allowedDomains: null,
      attributeMapping: { email: 'email', name: 'name' },
    }

    beforeAll(async () => {
      on = await setUp(open, {}, {})
      const { service, bakery, garage, signIn } = on
      await addMember(service, bakery.id, person.email)
      await addMember(service, bakery.id, 'off@bakery.example.com', 'disabled')
      await addMember(service, bakery.id, 'linked@bakery.example.com')
      await addMember(service, garage.id, 'gus@garage.example.com')
      await signIn({ ...person, sub: 'subject-3', email: 'linked@bakery.example.com' })
    })
    afterAll(() => on.service.close())

    it.each(cases)('$what: the browser, the log and a trial explain the fix', async (wrong) => {
      const { service, idp, clock, id, change } = on
      const { set = {}, replies = {}, who = person, answer, does } = wrong
      Object.assign(idp, { replies, idClaims: {}, idToken: undefined })
      await change(id, { ...usual, ...set })
      await expectTold(on, wrong, async (by, location) => {
        does?.(idp, Math.floor(Date.parse(clock()) / 1000))
        const { search } = new URL(await idp.authorize(location, who, answer))
        return by.open(`${service.url}/api/v1/sso/callback${search}`)
      })
    })
  })

  describe('a misconfigured SAML provider', () => {
    let on: Awaited<ReturnType<typeof setUp>>
    beforeAll(async () => {
      on = await setUp(open, samlEnv, saml)
      await addMember(on.service, on.bakery.id, jo)
    })
    afterAll(() => on.service.close())

    it.each(samlCases)('$what: the browser, the log and a trial explain the fix', async (wrong) => {
      const { service, clock, id, change } = on
      await change(id, { entityId: saml.entityId, ...wrong.set })
      await expectTold(on, wrong, (by, location) => post(by, service, responseTo(location, clock(), wrong)))
    })

    it('an expired certificate: the browser, the log and a trial explain the fix', async () => {
      const { service, clock, id, change } = on
      const short = selfSigned(keys, { from: new Date('2026-01-01'), to: new Date('2026-03-02') })
      await change(id, { certificate: short.toString() })
      clock.forward(24 * 3600)
      const wrong = { what: '', detail: 'at 2026-03-02', mend: 'Renew' }
      await expectTold(on, { ...wrong, code: 'saml_certificate_expired' }, (by, location) =>
        post(by, service, responseTo(location, clock())),
      )
    })
  })

  describe('a misconfiguration around a provider', () => {
    it('is refused when it is entered, if it can be detected then', async () => {
      const { client, idp, provider } = await start(open)
      const create = (more: object) =>
        client.call(api.ssoProviders.create, {
          body: { name: 'a', type: 'oidc', clientSecret: 'hush', clientId: 'svc', issuer, ...more },
        })
      await expect(create({ issuer: 'http://idp.example.com' })).rejects.toEqual(
        fault('body.issuer', 'must use HTTPS'),
      )
      const { warning, data } = await create({ issuer: `${issuer}/` })
      expect(warning).toContain(`The issuer has to be what it calls itself, to the letter: ${issuer}`)
      await expect(
        client.call(api.ssoProviders.setStatus, { params: { id: data.id }, body: { status: 'active' } }),
      ).rejects.toMatchObject({
        details: expect.arrayContaining([
          { path: 'provider.tokenUrl', message: expect.stringContaining('issuer again') },
        ]),
      })
      // A space that was copied along is not part of a client id.
      expect((await create({ clientId: ' svc ' })).data.clientId).toBe('svc')
      expect(idp.asked).not.toContain('/token')
      await provider()
    })

    it.runIf(kind === 'postgres')('is reported when the address of the service has changed', async () => {
      const { provider, replica, signIn } = await start(open)
      await provider()
      const moved = await replica({ PUBLIC_URL: 'https://new.example.com' })
      const { location } = await signIn(person, { at: moved })
      expect(errorIn(location)).toBe('sso_redirect_rejected')
    })

    it('is reported when the provider is disabled, changed or deleted during a sign-in', async () => {
      const { service, idp, clock, bakery, client, provider, change, setStatus } = await start(open)
      const { id } = await provider()
      await addMember(service, bakery.id, person.email)
      const under = async (way: () => Promise<unknown>) => {
        const by = browser()
        const begun = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
        const { search } = new URL(await idp.authorize(begun.location, person))
        clock.forward(1)
        await way()
        const { location } = await by.open(`${service.url}/api/v1/sso/callback${search}`)
        const query = new URL(location, service.url).searchParams
        return [query.get('error'), query.get('hint')]
      }
      const errorAndHint = (code: FailureCode) => [code, failures[code].hint]
      expect(await under(() => setStatus(id, 'inactive'))).toEqual(errorAndHint('provider_not_found'))
      await setStatus(id, 'active')
      expect(await under(() => change(id, { scopes: 'openid email' }))).toEqual(
        errorAndHint('sso_config_changed'),
      )
      const remove = () => client.call(api.ssoProviders.remove, { params: { id } })
      expect(await under(remove)).toEqual(errorAndHint('provider_not_found'))
    })

    it('is reported when the default role was deleted, which an earlier version allowed', async () => {
      const { service, bakery, provider, signIn } = await start(open)
      const roleId = await addRole(service, bakery.id, 'Newcomer', ['devices:read'])
      await provider({ autoProvision: true, defaultRoleId: roleId })
      await service.storage.write((tx) => tx.deleteFrom('roles').where('id', '=', roleId).execute())
      const { location } = await signIn()
      expect(errorIn(location)).toBe('default_role_required')
    })
  })

  describe('a trial of a correctly configured provider', () => {
    it('shows what was received, and creates no session', async () => {
      const { service, idp, client, world, provider, setStatus } = await start(open)
      const { id } = await provider({
        autoProvision: true,
        defaultRoleId: roleOf('Org Viewer', 'organization'),
      })
      await setStatus(id, 'testing')
      const trial = await client.call(api.ssoTrials.begin, {
        params: { id },
        body: { redirect: '/settings' },
      })
      const show = () => client.call(api.ssoTrials.show, { params: { id, testId: trial.id } })
      expect(await show()).toEqual({ status: 'pending', steps: [] })
      const by = browser()
      const begun = await by.open(trial.loginUrl.replace('https://svc.example.com', service.url))
      const { search } = new URL(await idp.authorize(begun.location, { ...person, amr: ['mfa'] }))
      const { location } = await by.open(`${service.url}/api/v1/sso/callback${search}`)
      expect([location, codeIn(location)]).toEqual(['https://app.example.com/login?ssoTest=passed', ''])
      const { status, steps } = await show()
      expect([status, steps.map(({ ok }) => ok)]).toEqual(['passed', [true, true, true, true, true, true]])
      expect(steps.slice(-2)).toMatchObject([
        { step: 'An account would be made', received: 'Dora Bakes, dora@bakery.example.com' },
        { step: 'A second factor', received: 'the provider asked for one' },
      ])
      expect(JSON.stringify(steps)).not.toMatch(/access-token|"again"|eyJ|nonce/)
      for (const table of ['sso_identities', 'sso_exchanges', 'sso_sessions'] as const)
        expect(await service.storage.read.selectFrom(table).selectAll().execute(), table).toEqual([])
      const users = service.storage.read
        .selectFrom('users')
        .select('id')
        .where('email_key', '=', person.email)
      expect(await users.execute()).toEqual([])
      // Only once: the callback of the browser is then worthless.
      expect((await by.open(trial.loginUrl.replace('https://svc.example.com', service.url))).status).toBe(404)
      const params = { id, testId: trial.id }
      const stranger = service.client(world.tokens.garage).call(api.ssoTrials.show, { params })
      await expect(stranger).rejects.toMatchObject({ status: 404 })
    })
  })
})

describe('the misconfigurations of a provider', () => {
  it('can be told apart', () => {
    const all = [...cases, ...samlCases]
    expect(new Set(all.map(({ code }) => code)).size).toBeGreaterThan(40)
    expect(new Set(all.map(({ code, detail }) => `${code} ${detail}`)).size).toBe(all.length)
  })
})

import type { KeyObject } from 'node:crypto'
import type { Redirect } from '../../core/endpoint.ts'
import { Problem } from '../../core/errors.ts'
import { organizationScope } from '../../core/scope.ts'
import { addSeconds } from '../../core/time.ts'
import { type Call, type HandlersOf, inSteps } from '../../handler.ts'
import { findMembership } from '../../identity/memberships.ts'
import { emitLogin } from '../../identity/sessions/events.ts'
import { type GrantedSession, grantSession } from '../../identity/sessions/grant.ts'
import { loginFacts } from '../../identity/sessions/identity.ts'
import { recordLogin } from '../../identity/sessions/store.ts'
import { startSession } from '../../identity/sessions/tenants.ts'
import { newToken, tokenHash } from '../../identity/sessions/tokens.ts'
import { canManageAccount } from '../../identity/sso-only.ts'
import { findUser, type User } from '../../identity/store.ts'
import { assertHasKey } from '../../storage/key-check.ts'
import { SsoFailure } from '../failures.ts'
import { pkceChallenge } from '../oidc/flow.ts'
import { isComplete } from '../readiness.ts'
import type { ProviderRecord } from '../rules.ts'
import { serviceMetadata } from '../saml/metadata.ts'
import { findSigningKey } from '../saml/signing-key.ts'
import { findActiveProvider, getProvider, lockProvider, undefinedIfMissing } from '../store.ts'
import { findTrial, saveTrial, type Trial } from '../trials/store.ts'
import { admit } from './accounts.ts'
import { type CallbackResult, checkUnchanged, createCallbacks } from './callback.ts'
import type { ssoSignIn } from './contract.ts'
import type { SignInDependencies } from './dependencies.ts'
import { identifyByOidc, identifyBySaml, startSignIn } from './protocols.ts'
import { exchangeSeconds, newState, newVerifier, redirectTarget, signInSeconds } from './rules.ts'
import * as store from './store.ts'
import {
  acsUrl,
  browserSecretFor,
  browserSecrets,
  codeRedirect,
  cookieFor,
  entityIdOf,
  isServicePage,
  trialRedirect,
  type WebConfig,
} from './web.ts'

type Entries = typeof ssoSignIn

type CallbackCall = Pick<Call<Entries['callback']>, 'db' | 'now' | 'note' | 'quota'>
type StartedSignIn = {
  provider: ProviderRecord
  trial: Trial | undefined
  target: string
  base: string
  key: KeyObject | undefined
}

const unreadableKey =
  'The key that signs requests cannot be decrypted: a system administrator has to set signRequests of a provider again, and identity providers need the new metadata'

export function signInHandlers(on: SignInDependencies): HandlersOf<Entries> {
  const { cipher, access, web } = on
  const { receiveCallback, withRefusal, toRefusal } = createCallbacks(on)

  /** @throws sso_not_configured */
  function base(): string {
    const url = web.url()
    if (url === undefined) throw new Problem('sso_not_configured')
    return url
  }

  /** Admits the user of a callback; for a trial it only records who would have been admitted. */
  async function completeSignIn(
    { db, now, note, quota }: CallbackCall,
    arrival: CallbackResult,
  ): Promise<Redirect> {
    const { signIn, provider, asserted, trace } = arrival
    if (signIn.testId !== null) {
      await saveTrial(db, { id: signIn.testId, status: 'passed', steps: trace.steps })
      const { id: resourceId, name: resourceName, orgId } = provider
      note({
        action: 'sso.provider.test_login',
        orgId,
        resourceId,
        resourceName,
        details: { signIn: 'passed' },
      })
      return { location: trialRedirect(web, signIn.redirectPath, 'passed') }
    }
    const admitted = await withRefusal(arrival, async () => {
      // Locked until the end, so that two concurrent first sign-ins of a person do not create two accounts.
      const held = await undefinedIfMissing(
        lockProvider(db, cipher, organizationScope(provider.orgId), provider.id),
      )
      checkUnchanged(held, signIn)
      return admit(db, cipher, { provider, asserted, now, quota })
    })
    if (admitted.made === 'invitation') {
      const { extras } = await toRefusal(new SsoFailure('invitation_pending', admitted.email), arrival)
      const { id: providerId, name, orgId } = provider
      note({ action: 'user.invite', orgId, resourceId: admitted.userId, resourceName: admitted.email })
      note({ details: { method: 'sso', providerId, provider: name, roleName: admitted.roleName } })
      return { location: extras.location! }
    }
    const { user, made } = admitted
    const code = newToken()
    // Otherwise a code sent by an attacker would sign the victim in as the attacker.
    const staysHere = signIn.challenge === null && isServicePage(web, signIn.redirectPath)
    const challenge = staysHere ? challengeFrom(signIn.browserHash ?? '') : signIn.challenge
    await store.insertExchange(db, {
      codeHash: tokenHash(code),
      providerId: provider.id,
      userId: user.id,
      mfa: asserted.mfa,
      challenge,
      createdAt: now,
      expiresAt: addSeconds(now, exchangeSeconds),
    })
    const { id: providerId, name, orgId } = provider
    note({ orgId, actor: { kind: 'user', id: user.id, email: user.email } })
    note({ resourceId: user.id, resourceName: user.email, details: { providerId, provider: name, made } })
    const location = codeRedirect(web, signIn.redirectPath, code)
    return { location, cookies: staysHere ? [] : [cookieFor(signIn.stateHash, null, base())] }
  }

  return {
    login: inSteps<Entries['login'], StartedSignIn>({
      async prepare({ storage, params: { orgId }, query, ip, now, limit }) {
        await limit('SSO_ORG', `${ip} ${orgId}`)
        const url = base()
        const trial = query.test === undefined ? undefined : await findTrial(storage.read, query.test, now)
        const target = trial?.redirectPath ?? redirectTarget(query.redirect, query.challenge)
        const found = trial
          ? { id: trial.providerId }
          : await findActiveProvider(storage.read, organizationScope(orgId))
        if (!found || (query.test !== undefined && !trial)) {
          throw new Problem('not_found', 'No active SSO provider for this organization')
        }
        const provider = await getProvider(storage.read, cipher, organizationScope(orgId), found.id)
        const signs = provider.type === 'saml' && provider.signRequests
        await store.requireSecret(storage.read, cipher, provider)
        const own = signs ? await findSigningKey(storage.read, cipher) : undefined
        const key = own?.key
        if (own && !key) await assertHasKey(storage.read, cipher, own.encrypted)
        if (own && !key) throw new Problem('invalid_request', unreadableKey)
        if (!isComplete(provider) || (signs && !key)) {
          throw new Problem('invalid_request', 'SSO provider configuration is invalid')
        }
        return { provider, trial, target, base: url, key }
      },
      async run({ db, query, now }, { provider, trial, target, base, key }) {
        const [state, browser] = [newState(), browserSecretFor(newState(), provider.id)]
        const on = { state, verifier: newVerifier(), now, key, ...addresses(web, base) }
        const begun = await startSignIn(provider, on)
        const stateHash = tokenHash(state)
        await store.insertSignIn(db, cipher, {
          stateHash,
          providerId: provider.id,
          nonce: begun.nonce,
          codeVerifier: begun.verifier,
          redirectPath: target,
          browserHash: tokenHash(browser),
          challenge: query.challenge ?? null,
          providerVersion: provider.updatedAt,
          testId: trial?.id ?? null,
          createdAt: now,
          expiresAt: addSeconds(now, signInSeconds),
        })
        return { location: begun.location, cookies: [cookieFor(stateHash, browser, base)] }
      },
    }),

    callback: inSteps<Entries['callback'], CallbackResult>({
      prepare: (call) => receiveCallback(call, call.query.state, identifyByOidc(call.query, on)),
      run: completeSignIn,
    }),

    acs: inSteps<Entries['acs'], CallbackResult>({
      prepare: (call) =>
        receiveCallback(call, call.body.RelayState, identifyBySaml(call.body.SAMLResponse, call.storage)),
      run: completeSignIn,
    }),

    async metadata({ db, query }) {
      const url = base()
      const certificate = (await findSigningKey(db, cipher))?.certificate
      const about = { entityId: entityIdOf(web, url), acsUrl: acsUrl(url), certificate }
      const xml = serviceMetadata({ ...about, signed: query.signed === 'true' })
      const headers = { 'content-disposition': 'inline; filename="svc-metadata.xml"' }
      return { type: 'application/samlmetadata+xml', headers, pieces: once(xml) }
    },

    exchange: inSteps<Entries['exchange'], { user: User; provider: ProviderRecord; granted: GrantedSession }>(
      {
        async prepare({ storage, body: { code, verifier, sameBrowser }, cookies, now }) {
          const refused = new Problem('invalid_exchange_code')
          const exchange = await store.findExchange(storage.read, tokenHash(code))
          if (!exchange || exchange.expiresAt <= now) throw refused
          const { challenge, mfa, providerId: ssoProviderId } = exchange
          const proofs = [...(verifier === undefined ? [] : [verifier]), ...browserSecrets(cookies)]
          if (challenge !== null && !proofs.map(pkceChallenge).includes(challenge)) throw refused
          // A code of an attacker, in an address of ours, would sign the victim in as the attacker.
          if (sameBrowser && challenge === null) throw refused
          const provider = await store.findProvider(storage.read, cipher, ssoProviderId)
          const user = await findUser(storage.read, exchange.userId)
          if (provider?.status !== 'active' || user?.status !== 'active') throw refused
          const context = { kind: 'organization', orgId: provider.orgId } as const
          if (!(await findMembership(storage.read, user.id, context))?.usable) throw refused
          const session = { context, mfa, ssoProviderId }
          return { user, provider, granted: await grantSession(access, user, session, now) }
        },
        async run({ db, body, ip, now, note }, { user, provider: { orgId, name: provider }, granted }) {
          if (!(await store.consumeExchange(db, tokenHash(body.code))))
            throw new Problem('invalid_exchange_code')
          await startSession(db, granted.session, now)
          // A provider that is not the person's only one does not lift the lockout of their password.
          const session = { ssoProviderId: granted.session.ssoProviderId, scope: organizationScope(orgId) }
          if (await canManageAccount(db, user, session)) await recordLogin(db, user.id, now)
          const how = { method: 'sso', mfa: granted.session.mfa }
          await emitLogin(db, user, orgId, { ...how, ip, now })
          note({ orgId, ...loginFacts(user), details: { ...how, provider } })
          return granted.tokens
        },
      },
    ),
  }
}

/** The stored hash of a browser's secret, in the form that `pkceChallenge` gives. */
const challengeFrom = (browserHash: string): string => Buffer.from(browserHash, 'hex').toString('base64url')

const addresses = (web: WebConfig, base: string) => ({ base, entityId: entityIdOf(web, base) })

async function* once(text: string): AsyncIterable<string> {
  yield text
}

import { hash, type KeyObject } from 'node:crypto'
import type { Instant } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import type { AssertedIdentity } from '../asserted-identity.ts'
import { SsoFailure } from '../failures.ts'
import { authorizationUrl, type CallbackParams, identityFromCode } from '../oidc/flow.ts'
import type { ProviderRecord } from '../rules.ts'
import { identityFromAssertion } from '../saml/attributes.ts'
import { nameIdFormats } from '../saml/names.ts'
import { authnRequestUrl, newRequestId } from '../saml/request.ts'
import { verifyResponse } from '../saml/response.ts'
import type { CallbackInput, SignInDependencies } from './dependencies.ts'
import { newState } from './rules.ts'
import { recordAssertion } from './store.ts'
import { acsUrl, redirectUri } from './web.ts'

/*
 * The two steps of a sign-in in each protocol: begin it at the provider, and read the identity from the
 * callback.
 */

/** The address for the browser, and the value that has to come back: a nonce, or the id of the request. */
export async function startSignIn(
  provider: ProviderRecord,
  on: {
    state: string
    verifier: string
    now: Instant
    base: string
    entityId: string
    key?: KeyObject | undefined
  },
): Promise<{ location: string; nonce: string; verifier: string }> {
  const { state, verifier, now, base, entityId } = on
  if (provider.type === 'oidc') {
    const nonce = newState()
    const location = authorizationUrl(provider, { state, nonce, verifier, redirectUri: redirectUri(base) })
    return { location, nonce, verifier }
  }
  const id = newRequestId()
  const { forceAuthn, nameIdFormat } = provider
  const request = {
    ssoUrl: provider.ssoUrl!,
    id,
    now,
    acsUrl: acsUrl(base),
    entityId,
    relayState: state,
    forceAuthn,
    key: on.key,
    nameIdFormat: nameIdFormat === null ? undefined : nameIdFormats[nameIdFormat],
  }
  return { location: authnRequestUrl(request), nonce: id, verifier: '' }
}

export const identifyByOidc =
  (answer: CallbackParams, { outbound, keys }: SignInDependencies) =>
  async ({ provider, signIn, now, trace, base }: CallbackInput): Promise<AssertedIdentity> => {
    if (provider.type !== 'oidc') throw new SsoFailure('invalid_callback', 'the provider is one of SAML')
    const { nonce, codeVerifier: verifier } = signIn
    const begun = { provider, nonce, verifier, redirectUri: redirectUri(base) }
    return identityFromCode(answer, begun, { outbound, keys, now, trace })
  }

export const identifyBySaml =
  (response: string, storage: Storage) =>
  async ({ provider, signIn, now, trace, base, entityId }: CallbackInput): Promise<AssertedIdentity> => {
    if (provider.type !== 'saml')
      throw new SsoFailure('invalid_callback', 'the provider is one of OpenID Connect')
    const { certificate, entityId: issuer } = provider
    const expected = {
      certificate: certificate!,
      issuer: issuer!,
      entityId,
      acsUrl: acsUrl(base),
      now,
      // The browser could have removed ForceAuthn from the request.
      signedInSince: provider.forceAuthn ? signIn.createdAt : undefined,
    }
    const assertion = await verifyResponse(response, { ...expected, requestId: signIn.nonce })
    trace.passed(
      'The assertion is right',
      trace.redactClaims({ nameId: assertion.nameId, ...assertion.attributes }),
    )
    const idHash = hash('sha256', JSON.stringify([issuer, assertion.id]))
    const isNew = await storage.write((tx) => recordAssertion(tx, idHash, assertion.notOnOrAfter))
    if (!isNew) throw new SsoFailure('saml_replayed', assertion.id)
    return identityFromAssertion(assertion, provider.attributeMapping)
  }

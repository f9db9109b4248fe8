import { hash, type KeyObject } from 'node:crypto'
import type { Instant } from '../../core/time.ts'
import type { Storage } from '../../storage/open.ts'
import { SsoFailure } from '../failures.ts'
import { type Answer, authorizationUrl, vouchedBy as vouchedByCode } from '../oidc/flow.ts'
import type { Held } from '../rules.ts'
import { vouchedBy as vouchedByAssertion } from '../saml/attributes.ts'
import { nameIdFormats } from '../saml/names.ts'
import { authnRequestUrl, newRequestId } from '../saml/request.ts'
import { verifyResponse } from '../saml/response.ts'
import type { Vouched } from '../vouched.ts'
import type { Brought, SigningIn } from './parts.ts'
import { newState } from './rules.ts'
import { useAssertion } from './store.ts'
import { acsUrl, redirectUri } from './web.ts'

/* What the two protocols do with a sign-in: begin it at the provider, and tell who came back. */

/** Where the browser is sent, and what has to come back: a nonce, or the id of the request. */
export async function begin(
  provider: Held,
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
    ...{ ssoUrl: provider.ssoUrl!, id, now, acsUrl: acsUrl(base), entityId, relayState: state, forceAuthn },
    ...{ key: on.key, nameIdFormat: nameIdFormat === null ? undefined : nameIdFormats[nameIdFormat] },
  }
  return { location: authnRequestUrl(request), nonce: id, verifier: '' }
}

export const ofOidc =
  (answer: Answer, { outbound, keys }: SigningIn) =>
  async ({ provider, signIn, now, trace, base }: Brought): Promise<Vouched> => {
    if (provider.type !== 'oidc') throw new SsoFailure('invalid_callback', 'the provider is one of SAML')
    const { nonce, codeVerifier: verifier } = signIn
    const begun = { provider, nonce, verifier, redirectUri: redirectUri(base) }
    return vouchedByCode(answer, begun, { outbound, keys, now, trace })
  }

export const ofSaml =
  (response: string, storage: Storage) =>
  async ({ provider, signIn, now, trace, base, entityId }: Brought): Promise<Vouched> => {
    if (provider.type !== 'saml')
      throw new SsoFailure('invalid_callback', 'the provider is one of OpenID Connect')
    const { certificate, entityId: issuer } = provider
    const expected = {
      ...{ certificate: certificate!, issuer: issuer!, entityId, acsUrl: acsUrl(base), now },
      // A browser could have taken out that it was asked for.
      signedInSince: provider.forceAuthn ? signIn.createdAt : undefined,
    }
    const assertion = await verifyResponse(response, { ...expected, requestId: signIn.nonce })
    trace.passed(
      'The assertion is right',
      trace.redacted({ nameId: assertion.nameId, ...assertion.attributes }),
    )
    const idHash = hash('sha256', JSON.stringify([issuer, assertion.id]))
    const isNew = await storage.write((tx) => useAssertion(tx, idHash, assertion.notOnOrAfter))
    if (!isNew) throw new SsoFailure('saml_replayed', assertion.id)
    return vouchedByAssertion(assertion, provider.attributeMapping)
  }

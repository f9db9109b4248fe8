import { type KeyObject, randomBytes, sign } from 'node:crypto'
import { deflateRawSync } from 'node:zlib'
import type { Instant } from '../../core/time.ts'
import { namespaces, postBinding, requestSignature } from './names.ts'
import { escapeXml } from './xml.ts'

/** An XML name cannot begin with a digit; 128 random bits, as SAML core 1.3.4 requires. */
export const newRequestId = (): string => `_${randomBytes(16).toString('hex')}`

export type AuthnRequest = {
  /** The provider's sign-in address. */
  ssoUrl: string
  id: string
  now: Instant
  acsUrl: string
  entityId: string
  /** Returned with the response; at most 80 bytes (SAML bindings 3.4.3). */
  relayState: string
  /** A person with a session at the provider has to authenticate again. */
  forceAuthn?: boolean | undefined
  /**
   * Requested format of the identifier; omitted by default, since some providers refuse a format that they are
   * not configured for.
   */
  nameIdFormat?: string | undefined
  /** Key that signs it; unsigned by default. */
  key?: KeyObject | undefined
}

/**
 * The address that a browser is sent to for the sign-in: a request by HTTP-Redirect (SAML core 3.4.1, bindings
 * 3.4.4.1).
 */
export function authnRequestUrl(request: AuthnRequest): string {
  const query = new URLSearchParams({
    SAMLRequest: deflateRawSync(requestXml(request)).toString('base64'),
    RelayState: request.relayState,
    ...(request.key && { SigAlg: requestSignature }),
  })
  // The signature covers the exact octets that are sent (SAML bindings 3.4.4.1).
  if (request.key) {
    query.set('Signature', sign('sha256', Buffer.from(`${query}`), request.key).toString('base64'))
  }
  const url = new URL(request.ssoUrl)
  // The existing query is kept: Google identifies the customer by it.
  url.search = url.search === '' ? `${query}` : `${url.search}&${query}`
  return url.href
}

function requestXml({ ssoUrl, id, now, acsUrl, entityId, forceAuthn, nameIdFormat }: AuthnRequest): string {
  const attributes = {
    ID: id,
    Version: '2.0',
    IssueInstant: now,
    Destination: ssoUrl,
    AssertionConsumerServiceURL: acsUrl,
    ProtocolBinding: postBinding,
    ...(forceAuthn && { ForceAuthn: 'true' }),
  }
  const policy = { ...(nameIdFormat && { Format: nameIdFormat }), AllowCreate: 'true' }
  return [
    `<samlp:AuthnRequest xmlns:samlp="${namespaces.protocol}"${listed(attributes)}>`,
    `<saml:Issuer xmlns:saml="${namespaces.assertion}">${escapeXml(entityId)}</saml:Issuer>`,
    `<samlp:NameIDPolicy${listed(policy)}/>`,
    '</samlp:AuthnRequest>',
  ].join('')
}

const listed = (attributes: Record<string, string>): string =>
  Object.entries(attributes)
    .map(([name, value]) => ` ${name}="${escapeXml(value)}"`)
    .join('')

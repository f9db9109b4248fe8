import { type KeyObject, randomBytes, sign } from 'node:crypto'
import { deflateRawSync } from 'node:zlib'
import type { Instant } from '../../core/time.ts'
import { namespaces, postBinding, requestSignature } from './names.ts'
import { escapeXml } from './xml.ts'

/** A name of XML cannot begin with a digit; 128 random bits, as SAML core 1.3.4 wants. */
export const newRequestId = (): string => `_${randomBytes(16).toString('hex')}`

export type AuthnRequest = {
  /** Where the provider takes sign-ins. */
  ssoUrl: string
  id: string
  now: Instant
  acsUrl: string
  entityId: string
  /** Comes back with the response; at most 80 bytes (SAML bindings 3.4.3). */
  relayState: string
  /** Whoever is signed in at the provider has to sign in again. */
  forceAuthn?: boolean | undefined
  /** How the provider shall name people; unless told, as it is set there: some refuse a format that is not. */
  nameIdFormat?: string | undefined
  /** What it is signed with; unless told, it is not. */
  key?: KeyObject | undefined
}

/** Where a browser is sent to sign in: a request by HTTP-Redirect (SAML core 3.4.1, bindings 3.4.4.1). */
export function authnRequestUrl(request: AuthnRequest): string {
  const query = new URLSearchParams({
    SAMLRequest: deflateRawSync(requestXml(request)).toString('base64'),
    RelayState: request.relayState,
    ...(request.key && { SigAlg: requestSignature }),
  })
  // Over the very octets that are sent (SAML bindings 3.4.4.1).
  if (request.key) {
    query.set('Signature', sign('sha256', Buffer.from(`${query}`), request.key).toString('base64'))
  }
  const url = new URL(request.ssoUrl)
  // As it is: Google tells its customers apart by the query.
  url.search = url.search === '' ? `${query}` : `${url.search}&${query}`
  return url.href
}

function requestXml({ ssoUrl, id, now, acsUrl, entityId, forceAuthn, nameIdFormat }: AuthnRequest): string {
  const attributes = {
    ...{ ID: id, Version: '2.0', IssueInstant: now, Destination: ssoUrl },
    ...{ AssertionConsumerServiceURL: acsUrl, ProtocolBinding: postBinding },
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

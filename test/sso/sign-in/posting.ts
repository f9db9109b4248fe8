import { inflateRawSync } from 'node:zlib'
import { addSeconds, type Instant } from '../../../src/core/time.ts'
import { parseXml } from '../../../src/sso/saml/xml.ts'
import type { TestService } from '../../harness.ts'
import {
  certificate,
  expected,
  posted,
  responseXml,
  type Said,
  signedAssertion,
} from '../saml/identity-provider.ts'
import type { Browser } from './sign-in-stage.ts'

/** What a provider of SAML is known by here, and what the service calls itself there. */
export const saml = {
  ...{ name: 'AD FS', type: 'saml' as const, issuer: null, clientId: null, clientSecret: null },
  ...{ entityId: expected.issuer, ssoUrl: 'https://idp.example.com/sso?idpid=1' },
  certificate: certificate.toString(),
}
export const samlEnv = { SAML_SP_ENTITY_ID: expected.entityId }

/** What a browser is sent to a provider with. */
export function requestIn(location: string) {
  const { searchParams } = new URL(location)
  const xml = inflateRawSync(Buffer.from(searchParams.get('SAMLRequest') ?? '', 'base64')).toString()
  return { request: parseXml(xml), relayState: searchParams.get('RelayState') ?? '' }
}

/** What the provider lets the browser post: the usual response to that request, signed, with what is said of it. */
export function responseTo(
  location: string,
  now: Instant,
  { said = {}, sign = signedAssertion }: { said?: Partial<Said>; sign?: (xml: string) => string } = {},
): Record<string, string> {
  const { request, relayState } = requestIn(location)
  const id = request.attributes.get('ID') ?? ''
  const xml = responseXml({
    ...{ inResponseTo: id, confirmedInResponseTo: id, assertionId: `_of${id}` },
    ...{
      notBefore: addSeconds(now, -30),
      notOnOrAfter: addSeconds(now, 300),
      confirmedNotOnOrAfter: addSeconds(now, 300),
    },
    ...said,
  })
  return { SAMLResponse: posted(sign(xml)), RelayState: relayState }
}

/** The form that a page of the provider makes the browser send. */
export const post = (by: Browser, service: TestService, form: Record<string, string>) =>
  by.open(`${service.url}/api/v1/sso/saml/acs`, { method: 'POST', body: new URLSearchParams(form) })

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
import type { Browser } from './sign-in-fixture.ts'

/** The settings of a SAML provider in the service, and the name of the service there. */
export const saml = {
  name: 'AD FS',
  type: 'saml' as const,
  issuer: null,
  clientId: null,
  clientSecret: null,
  entityId: expected.issuer,
  ssoUrl: 'https://idp.example.com/sso?idpid=1',
  certificate: certificate.toString(),
}
export const samlEnv = { SAML_SP_ENTITY_ID: expected.entityId }

/** The request and the relay state in a redirect to the provider. */
export function requestIn(location: string) {
  const { searchParams } = new URL(location)
  const xml = inflateRawSync(Buffer.from(searchParams.get('SAMLRequest') ?? '', 'base64')).toString()
  return { request: parseXml(xml), relayState: searchParams.get('RelayState') ?? '' }
}

/** The form that the browser posts: the usual signed response to that request, with the given changes. */
export function responseTo(
  location: string,
  now: Instant,
  { said = {}, sign = signedAssertion }: { said?: Partial<Said>; sign?: (xml: string) => string } = {},
): Record<string, string> {
  const { request, relayState } = requestIn(location)
  const id = request.attributes.get('ID') ?? ''
  const xml = responseXml({
    inResponseTo: id,
    confirmedInResponseTo: id,
    assertionId: `_of${id}`,
    notBefore: addSeconds(now, -30),
    notOnOrAfter: addSeconds(now, 300),
    confirmedNotOnOrAfter: addSeconds(now, 300),
    ...said,
  })
  return { SAMLResponse: posted(sign(xml)), RelayState: relayState }
}

/** Posts the form of the provider from the browser. */
export const post = (by: Browser, service: TestService, form: Record<string, string>) =>
  by.open(`${service.url}/api/v1/sso/saml/acs`, { method: 'POST', body: new URLSearchParams(form) })

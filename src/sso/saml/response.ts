import { X509Certificate } from 'node:crypto'
import { SsoFailure } from '../failures.ts'
import { type Assertion, checkIssuer, parseAssertion } from './assertion.ts'
import type { ExpectedResponse } from './expected.ts'
import { namespaces, statusPrefix } from './names.ts'
import { ambiguousSignature, checkIds, verifySignedElement } from './signature.ts'
import {
  childrenOf,
  descendantsOf,
  type Element,
  isNamed,
  malformedXml,
  parseXml,
  quoteForDetail,
} from './xml.ts'

const maxBytes = 256 * 1024

/**
 * The assertion in a response by HTTP-POST, after every check of the web browser SSO profile (SAML profiles
 * 4.1.4.3). Either the assertion or the whole response, which covers it, has to be signed; where both are, both
 * have to be valid.
 * @param encoded the form field SAMLResponse
 * @throws SsoFailure, of the first check that fails
 */
export async function verifyResponse(encoded: string, expected: ExpectedResponse): Promise<Assertion> {
  const text = decodeResponse(encoded)
  const document = parseXml(text)
  checkIsResponse(document)
  checkStatus(document)
  checkNotEncrypted(document)
  const { response, assertion, isResponseSigned } = await verifySignedParts(document, text, expected)
  checkDestination(response, isResponseSigned, expected)
  checkInResponseTo(response, expected)
  for (const issuer of childrenOf(response, namespaces.assertion, 'Issuer')) checkIssuer(issuer, expected)
  return parseAssertion(assertion, expected)
}

/** SAML bindings 3.5.4: base64 of XML in UTF-8. */
function decodeResponse(encoded: string): string {
  const tooLarge = malformedXml('it is larger than 256 KiB')
  if (encoded.length > 2 * maxBytes) throw tooLarge
  const base64 = encoded.replace(/\s+/g, '')
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64) || base64.length % 4 !== 0) throw malformedXml('it is no base64')
  const bytes = Buffer.from(base64, 'base64')
  if (bytes.length > maxBytes) throw tooLarge
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    // A TypeError for bytes that are not UTF-8.
    throw malformedXml('it is not UTF-8')
  }
}

/** SAML core 3.2.2, 3.3.3. */
function checkIsResponse(document: Element): void {
  if (!isNamed(document, namespaces.protocol, 'Response'))
    throw malformedXml(`it is a ${quoteForDetail(document.name)}`)
  if (document.attributes.get('Version') !== '2.0') throw malformedXml('it is not of SAML 2.0')
}

/** SAML core 3.2.2.1: a refusal has no assertion, and mostly no signature. */
function checkStatus(response: Element): void {
  const [status] = childrenOf(response, namespaces.protocol, 'Status')
  if (status === undefined) throw malformedXml('it has no status')
  const codes = [...descendantsOf(status)]
    .filter((element) => isNamed(element, namespaces.protocol, 'StatusCode'))
    .map((element) => element.attributes.get('Value') ?? '')
  if (codes[0] === `${statusPrefix}Success`) return
  const stated = codes.map((code) => (code.startsWith(statusPrefix) ? code.slice(statusPrefix.length) : code))
  const message = childrenOf(status, namespaces.protocol, 'StatusMessage')[0]?.text.trim()
  throw new SsoFailure('saml_status', `${stated.join(', ')}${message ? `: ${message}` : ''}`.slice(0, 500))
}

function checkNotEncrypted(document: Element): void {
  for (const { namespace, name } of descendantsOf(document)) {
    if (namespace === namespaces.assertion && /^Encrypted(Assertion|ID|Attribute)$/.test(name)) {
      throw new SsoFailure('saml_encrypted', name)
    }
  }
}

type Parts = { response: Element; assertion: Element; isResponseSigned: boolean }

/**
 * The response and its only assertion, as they were signed. An unsigned response is trusted only where it fails
 * the sign-in.
 */
async function verifySignedParts(
  document: Element,
  text: string,
  expected: ExpectedResponse,
): Promise<Parts> {
  const outer = onlyAssertion(document)
  const signatureIn = (element: Element) => childrenOf(element, namespaces.signature, 'Signature')
  const [ofResponse, ofAssertion] = [signatureIn(document), signatureIn(outer)]
  const all = [...descendantsOf(document)].filter((it) => isNamed(it, namespaces.signature, 'Signature'))
  const isEachInPlace = all.length === ofResponse.length + ofAssertion.length
  if (!isEachInPlace || ofResponse.length > 1 || ofAssertion.length > 1) {
    throw ambiguousSignature(`it has ${all.length} signatures, not all where they belong`)
  }
  if (all.length === 0) throw new SsoFailure('saml_unsigned')
  checkIds(document)
  const certificate = readCertificate(expected)
  const signed = async ([signature]: Element[], element: Element) =>
    signature && (await verifySignedElement(signature, { element, text, certificate }))
  const response = await signed(ofResponse, document)
  const assertion = await signed(ofAssertion, outer)
  return {
    response: response ?? document,
    assertion: assertion ?? onlyAssertion(response!),
    isResponseSigned: response !== undefined,
  }
}

/** SAML allows several assertions; only an attacker sends them, hoping that one is checked and another is used. */
function onlyAssertion(response: Element): Element {
  const all = [...descendantsOf(response)]
  const [first, ...more] = all.filter((it) => isNamed(it, namespaces.assertion, 'Assertion'))
  if (first === undefined) throw malformedXml('it holds no assertion')
  const responses = all.filter((it) => isNamed(it, namespaces.protocol, 'Response'))
  if (more.length > 0 || responses.length > 1 || !response.children.includes(first)) {
    throw ambiguousSignature('it holds more than one assertion, or one inside something else')
  }
  return first
}

function readCertificate({ certificate: pem, now }: ExpectedResponse): X509Certificate {
  const certificate = new X509Certificate(pem)
  const [from, to] = [certificate.validFromDate.toISOString(), certificate.validToDate.toISOString()]
  if (to <= now) throw new SsoFailure('saml_certificate_expired', `at ${to}; here it is ${now}`)
  if (from > now) {
    throw new SsoFailure('saml_not_yet_valid', `the certificate, before ${from}; here it is ${now}`)
  }
  return certificate
}

/** SAML bindings 3.5.5.2: a signed response has to name the address it was sent to. */
function checkDestination(response: Element, isSigned: boolean, { acsUrl }: ExpectedResponse): void {
  const destination = response.attributes.get('Destination')
  if (destination === acsUrl || (destination === undefined && !isSigned)) return
  throw new SsoFailure(
    'saml_recipient_mismatch',
    `its destination is ${quoteForDetail(destination)}, not "${acsUrl}"`,
  )
}

/** SAML core 3.2.2. */
function checkInResponseTo(response: Element, { requestId }: ExpectedResponse): void {
  const stated = response.attributes.get('InResponseTo')
  if (stated === requestId) return
  throw new SsoFailure('saml_request_mismatch', `the response is to ${quoteForDetail(stated)}`)
}

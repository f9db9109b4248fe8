import { createHash, createHmac, sign, type X509Certificate } from 'node:crypto'
import { SignedXml } from 'xml-crypto'
import { addSeconds } from '../../../src/core/time.ts'
import type { ExpectedResponse } from '../../../src/sso/saml/expected.ts'
import { bearer, enveloped, exclusiveC14n, nameIdFormats, namespaces } from '../../../src/sso/saml/names.ts'
import { ecKeys, type KeyPair, rsaKeys, selfSigned } from './certificate.ts'

/** Generated once, as generating an RSA key is slow. */
export const keys = rsaKeys()
export const certificate = selfSigned(keys)
export const otherKeys = rsaKeys()
export const ellipticKeys = ecKeys()

const now = '2026-11-22T12:00:00.000Z'

export const expected: ExpectedResponse = {
  certificate: certificate.toString(),
  issuer: 'https://idp.example.com/metadata',
  entityId: 'https://svc.example.com/saml',
  acsUrl: 'https://svc.example.com/api/v1/sso/saml/acs',
  requestId: `_${'0123456789abcdef'.repeat(2)}`,
  now,
}

/** Email address of the user who signs in. */
export const jo = 'jo@bakery.example.com'
/** The user an attacker wants to impersonate. */
export const admin = 'admin@bakery.example.com'

/** An attribute or an element that is left out. */
type Left = null

export type Said = {
  status: string
  destination: string | Left
  inResponseTo: string | Left
  responseIssuer: string | Left
  issuer: string
  /** XML inside the NameID. */
  nameId: string
  nameIdFormat: string | Left
  recipient: string | Left
  confirmedInResponseTo: string | Left
  confirmedNotBefore: string | Left
  confirmedNotOnOrAfter: string | Left
  method: string
  notBefore: string | Left
  notOnOrAfter: string | Left
  /** XML inside the conditions. */
  audience: string
  authnContext: string
  sessionNotOnOrAfter: string | Left
  /** XML of the statements. */
  statements: string | undefined
  attributes: Record<string, string[]>
  /** XML after the assertion, and inside it at its end. */
  after: string
  inside: string
  responseId: string
  assertionId: string
}

export const restrictedTo = (...audiences: string[]): string =>
  `<saml:AudienceRestriction>${audiences
    .map((audience) => `<saml:Audience>${audience}</saml:Audience>`)
    .join('')}</saml:AudienceRestriction>`

const usual: Said = {
  status: '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/>',
  destination: expected.acsUrl,
  inResponseTo: expected.requestId,
  responseIssuer: expected.issuer,
  issuer: expected.issuer,
  nameId: jo,
  nameIdFormat: nameIdFormats.email,
  recipient: expected.acsUrl,
  confirmedInResponseTo: expected.requestId,
  confirmedNotBefore: null,
  confirmedNotOnOrAfter: addSeconds(now, 300),
  method: bearer,
  notBefore: addSeconds(now, -30),
  notOnOrAfter: addSeconds(now, 300),
  audience: restrictedTo(expected.entityId),
  authnContext: 'urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport',
  sessionNotOnOrAfter: null,
  statements: undefined,
  attributes: { email: [jo], groups: ['bakers', 'early birds'] },
  after: '',
  inside: '',
  responseId: '_response1',
  assertionId: '_assertion1',
}

const listed = (attributes: Record<string, string | Left>): string =>
  Object.entries(attributes)
    .map(([name, value]) => (value === null ? '' : ` ${name}="${value}"`))
    .join('')

/** A typical assertion, unsigned. */
export function assertionXml(change: Partial<Said> = {}): string {
  const said = { ...usual, ...change }
  const attributes = Object.entries(said.attributes).map(([name, values]) => {
    const inner = values.map(
      (value) =>
        `<saml:AttributeValue xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="xs:string">${value}</saml:AttributeValue>`,
    )
    return `<saml:Attribute Name="${name}">${inner.join('')}</saml:Attribute>`
  })
  const confirmation = listed({
    NotBefore: said.confirmedNotBefore,
    NotOnOrAfter: said.confirmedNotOnOrAfter,
    Recipient: said.recipient,
    InResponseTo: said.confirmedInResponseTo,
  })
  const session = listed({ SessionIndex: '_session1', SessionNotOnOrAfter: said.sessionNotOnOrAfter })
  return [
    `<saml:Assertion xmlns:saml="${namespaces.assertion}" ID="${said.assertionId}" Version="2.0" IssueInstant="${now}">`,
    `<saml:Issuer>${said.issuer}</saml:Issuer>`,
    `<saml:Subject><saml:NameID${listed({ Format: said.nameIdFormat })}>${said.nameId}</saml:NameID>`,
    `<saml:SubjectConfirmation Method="${said.method}"><saml:SubjectConfirmationData${confirmation}/></saml:SubjectConfirmation></saml:Subject>`,
    `<saml:Conditions${listed({ NotBefore: said.notBefore, NotOnOrAfter: said.notOnOrAfter })}>${said.audience}</saml:Conditions>`,
    said.statements ??
      `<saml:AuthnStatement AuthnInstant="${now}"${session}><saml:AuthnContext><saml:AuthnContextClassRef>${said.authnContext}</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>`,
    attributes.length === 0
      ? ''
      : `<saml:AttributeStatement>${attributes.join('')}</saml:AttributeStatement>`,
    `${said.inside}</saml:Assertion>`,
  ].join('')
}

/** A response around an assertion, unsigned. */
export function responseXml(change: Partial<Said> = {}, assertion = assertionXml(change)): string {
  const said = { ...usual, ...change }
  const issuer =
    said.responseIssuer === null
      ? ''
      : `<saml:Issuer xmlns:saml="${namespaces.assertion}">${said.responseIssuer}</saml:Issuer>`
  const attributes = {
    ID: said.responseId,
    Version: '2.0',
    IssueInstant: now,
    Destination: said.destination,
    InResponseTo: said.inResponseTo,
  }
  return [
    `<samlp:Response xmlns:samlp="${namespaces.protocol}"${listed(attributes)}>${issuer}`,
    `<samlp:Status>${said.status}</samlp:Status>${assertion}${said.after}</samlp:Response>`,
  ].join('')
}

export const rsaSha256 = 'http://www.w3.org/2001/04/xmldsig-more#rsa-sha256'
export const sha256 = 'http://www.w3.org/2001/04/xmlenc#sha256'

type Signing = {
  keys: KeyPair
  /** The certificate in KeyInfo, which a verifier must ignore. */
  shows: X509Certificate
  method: string
  digest: string
  transforms: string[]
  c14n: string
  /** PrefixList of exclusive C14N. */
  prefixes: string[]
  /** The XPath of the signed element, and of the element before the signature. */
  over: string
  behind: string
  isEmptyUri: boolean
}

const local = (name: string) => `*[local-name(.)='${name}']`

const onAssertion = { over: `//${local('Assertion')}`, behind: `//${local('Assertion')}/${local('Issuer')}` }
const onResponse = { over: `/${local('Response')}`, behind: `/${local('Response')}/*[1]` }

/** Signs the XML, optionally with the faults that the service has to detect. */
export function signed(xml: string, change: Partial<Signing> = {}): string {
  const how = {
    keys,
    shows: certificate,
    method: rsaSha256,
    digest: sha256,
    c14n: exclusiveC14n,
    prefixes: [],
    transforms: [enveloped, exclusiveC14n],
    isEmptyUri: false,
    ...onAssertion,
    ...change,
  }
  const { method, c14n, transforms, digest: digestAlgorithm } = how
  const signer = new SignedXml({
    privateKey: how.keys.privateKey,
    publicCert: how.shows.toString(),
    signatureAlgorithm: method,
    canonicalizationAlgorithm: c14n,
  })
  signer.SignatureAlgorithms[method] = signingWith(method)
  signer.HashAlgorithms[digestAlgorithm] = digesting(digestAlgorithm)
  for (const name of transforms) signer.CanonicalizationAlgorithms[name] ??= unchanged(name)
  const { over: xpath, prefixes: inclusiveNamespacesPrefixList, isEmptyUri } = how
  signer.addReference({ xpath, transforms, digestAlgorithm, inclusiveNamespacesPrefixList, isEmptyUri })
  signer.computeSignature(xml, { prefix: 'ds', location: { reference: how.behind, action: 'after' } })
  return signer.getSignedXml()
}

export const signedAssertion = (xml = responseXml(), change: Partial<Signing> = {}): string =>
  signed(xml, { ...onAssertion, ...change })

export const signedResponse = (xml = responseXml(), change: Partial<Signing> = {}): string =>
  signed(xml, { ...onResponse, ...change })

/** The response as the value of the form field. */
export const posted = (xml: string): string => Buffer.from(xml).toString('base64')

/** RSA, ECDSA, and HMAC with the public certificate as the secret. */
function signingWith(method: string) {
  const hashName = /sha\d+$/.exec(method)![0]
  return class {
    getAlgorithmName = () => method
    getSignature = (text: unknown, key: unknown) =>
      method.includes('#hmac-')
        ? createHmac(hashName, expected.certificate).update(String(text)).digest('base64')
        : sign(hashName, Buffer.from(String(text)), {
            key: key as KeyPair['privateKey'],
            dsaEncoding: 'ieee-p1363',
          }).toString('base64')
    verifySignature = () => false
  }
}

function digesting(name: string) {
  const hashName = /sha\d+$/.exec(name)![0]
  return class {
    getAlgorithmName = () => name
    getHash = (text: string) => createHash(hashName).update(text).digest('base64')
  }
}

/** A transform that changes nothing. */
function unchanged(name: string) {
  return class {
    getAlgorithmName = () => name
    process = (node: object) => node as never
  }
}

import { describe, expect, it } from 'vitest'
import { SignedXml } from 'xml-crypto'
import { enveloped, exclusiveC14n, namespaces } from '../../../src/sso/saml/names.ts'
import { verifyResponse } from '../../../src/sso/saml/response.ts'
import { descendantsOf, parseXml } from '../../../src/sso/saml/xml.ts'
import { rsaKeys, selfSigned } from './certificate.ts'
import {
  admin,
  assertionXml,
  ellipticKeys,
  expected,
  jo,
  otherKeys,
  posted,
  responseXml,
  rsaSha256,
  sha256,
  signed,
  signedAssertion,
  signedResponse,
} from './identity-provider.ts'
import { expectRefused, type Refused } from './refused.ts'

const signatureForm = /<ds:Signature .*?<\/ds:Signature>/s
const assertionForm = /<saml:Assertion .*<\/saml:Assertion>/s
const partOf = (xml: string, form: RegExp): string => form.exec(xml)![0]
const withoutSignature = (xml: string): string => xml.replace(signatureForm, '')

/** The same for an administrator, under other IDs. */
const evil = (xml: string): string =>
  xml
    .replaceAll(jo, admin)
    .replaceAll(' ID="_assertion1"', ' ID="_evil1"')
    .replaceAll(' ID="_response1"', ' ID="_evil2"')

/** A naive reader: it verifies only the first signature, whatever that covers, and collects all names. */
function naively(xml: string) {
  const all = [...descendantsOf(parseXml(xml))]
  const [signature] = all.filter(
    ({ namespace, name }) => namespace === namespaces.signature && name === 'Signature',
  )
  const check = new SignedXml({ publicCert: expected.certificate })
  check.loadSignature(signature!.node as never)
  const names = all.filter(({ name }) => name === 'NameID').map(({ text }) => text)
  return { isRight: check.checkSignature(xml), names: names.sort() }
}

const response = signedResponse()
const assertion = signedAssertion()
const original = partOf(assertion, assertionForm)
const signature = partOf(assertion, signatureForm)
const intoSignature = (xml: string, what: string) =>
  xml.replace('</ds:Signature>', () => `${what}</ds:Signature>`)

/** The eight of Somorovsky et al., "On Breaking SAML: Be Whoever You Want to Be" (2012), as SAML Raider numbers them. */
const wrapped: [what: string, xml: string, detail: string][] = [
  [
    '1: the signed response inside its signature',
    intoSignature(evil(response), withoutSignature(response)),
    'more than one assertion',
  ],
  [
    '2: the signed response before its signature',
    evil(response).replace('<ds:Signature ', () => `${withoutSignature(response)}<ds:Signature `),
    'more than one assertion',
  ],
  [
    '3: another assertion before the signed one',
    assertion.replace(original, () => withoutSignature(evil(original)) + original),
    'more than one assertion',
  ],
  [
    '4: the signed assertion inside another',
    assertion.replace(original, () =>
      withoutSignature(evil(original)).replace('</saml:Assertion>', () => `${original}</saml:Assertion>`),
    ),
    'more than one assertion',
  ],
  [
    '5: the signed assertion after another that has its signature',
    assertion.replace(original, () => evil(original) + withoutSignature(original)),
    'more than one assertion',
  ],
  [
    '6: the signed assertion inside its signature in another',
    assertion.replace(original, () => intoSignature(evil(original), withoutSignature(original))),
    'more than one assertion',
  ],
  [
    '7: another assertion in the extensions',
    assertion.replace(
      original,
      () => `<samlp:Extensions>${withoutSignature(evil(original))}</samlp:Extensions>${original}`,
    ),
    'more than one assertion',
  ],
  [
    '8: the signed assertion in an object of its signature',
    assertion.replace(original, () =>
      intoSignature(evil(original), `<ds:Object>${withoutSignature(original)}</ds:Object>`),
    ),
    'more than one assertion',
  ],
]

describe('signature wrapping', () => {
  it.each(wrapped)('%s', async (what, xml, detail) => {
    expect(naively(xml)).toEqual({ isRight: true, names: [admin, jo] })
    await expectRefused([what, () => xml, 'saml_signature_ambiguous', detail])
  })

  it.each<[string, string, string]>([
    [
      'with the signature of a part of the assertion',
      signedAssertion(responseXml().replace('<saml:Subject>', '<saml:Subject ID="_s">'), {
        over: "//*[@ID='_s']",
      }),
      'the signature in Assertion "_assertion1" is over "#_s"',
    ],
    [
      'with the signature of an empty element',
      signedAssertion(responseXml({ after: '<a xmlns="urn:a" ID="_a"/>' }), { over: "//*[@ID='_a']" }),
      'is over "#_a"',
    ],
    [
      'with the signature of the assertion in the response',
      signedResponse(responseXml(), { over: "//*[@ID='_assertion1']" }),
      'the signature in Response "_response1" is over "#_assertion1"',
    ],
    [
      'with the signature of the response in the assertion',
      signedAssertion(responseXml(), { over: '/*' }),
      'the signature in Assertion "_assertion1" is over "#_response1"',
    ],
    ['with a signature of the whole document', signedResponse(undefined, { isEmptyUri: true }), 'is over ""'],
    [
      'with an assertion signed as the whole document',
      signedAssertion(undefined, { isEmptyUri: true }),
      'is over ""',
    ],
    [
      'with two assertions, both signed',
      signed(responseXml({}, original + assertionXml({ assertionId: '_b' })), {
        over: "//*[@ID='_b']",
        behind: "//*[@ID='_b']/*[1]",
      }),
      'more than one assertion',
    ],
    [
      'with two assertions in a signed response',
      signedResponse(responseXml({}, assertionXml() + assertionXml({ assertionId: '_b' }))),
      'more than one assertion',
    ],
    [
      'with the assertion in something else',
      signedResponse(responseXml({}, `<a xmlns="urn:a">${assertionXml()}</a>`)),
      'one inside something else',
    ],
    [
      'with a response in the response',
      signedAssertion(responseXml({ after: responseXml({ responseId: '_b' }, '') })),
      'more than one assertion',
    ],
    ['with two signatures', signedAssertion(assertion, { keys: otherKeys }), 'it has 2 signatures'],
    [
      'with a signature elsewhere',
      assertion.replace(signature, '').replace('</samlp:Status>', () => `${signature}</samlp:Status>`),
      'it has 1 signatures, not all where they belong',
    ],
    [
      'with an ID twice',
      signedAssertion(responseXml({ after: '<a xmlns="urn:a" ID="_a"/><b xmlns="urn:a" ID="_a"/>' })),
      'two elements have the ID "_a"',
    ],
    [
      'with an ID twice, spelled otherwise',
      signedAssertion(
        responseXml({ after: '<a xmlns="urn:a" x:id="_a" xmlns:x="urn:x"/><b xmlns="urn:a" Id="_a"/>' }),
      ),
      'two elements have the ID "_a"',
    ],
    [
      'with the ID of the assertion elsewhere',
      assertion.replace('</samlp:Response>', '<a xmlns="urn:a" xml:id="_assertion1"/></samlp:Response>'),
      'two elements have the ID "_assertion1"',
    ],
    [
      'with an object in the signature',
      intoSignature(assertion, '<ds:Object/>'),
      'the signature has other parts',
    ],
    [
      'with two keys in the signature',
      intoSignature(assertion, '<ds:KeyInfo/>'),
      'the signature has other parts',
    ],
    [
      'with something before what is signed',
      assertion.replace('<ds:SignedInfo>', '<ds:KeyInfo/><ds:SignedInfo>'),
      'the signature has other parts',
    ],
    // CVE-2025-29774
    [
      'with two SignedInfo',
      assertion.replace(/<ds:SignedInfo>.*<\/ds:SignedInfo>/, '$&$&'),
      'the signature has other parts',
    ],
    [
      'with two references',
      assertion.replace(/<ds:Reference .*<\/ds:Reference>/, '$&$&'),
      'SignedInfo has other parts',
    ],
    [
      'with two digests',
      assertion.replace(/<ds:DigestValue>.*<\/ds:DigestValue>/, '$&$&'),
      'Reference has other parts',
    ],
    [
      'with no transforms',
      assertion.replace(/<ds:Transforms>.*<\/ds:Transforms>/, ''),
      'Reference has other parts',
    ],
    [
      'with an empty signature',
      assertion.replace(signatureForm, `<ds:Signature xmlns:ds="${namespaces.signature}"/>`),
      'the signature has other parts',
    ],
  ])('%s', async (what, xml, detail) => {
    await expectRefused([what, () => xml, 'saml_signature_ambiguous', detail])
  })
})

describe('a forged response', () => {
  const other = selfSigned(otherKeys)
  const sha1 = {
    method: 'http://www.w3.org/2000/09/xmldsig#rsa-sha1',
    digest: 'http://www.w3.org/2000/09/xmldsig#sha1',
  }
  const hmac = (hash: string) => ({
    method: `http://www.w3.org/${hash === 'sha1' ? '2000/09/xmldsig' : '2001/04/xmldsig-more'}#hmac-${hash}`,
  })
  const signedBy = (change: Parameters<typeof signedAssertion>[1]) => () => signedAssertion(undefined, change)
  const transformed = (...transforms: string[]) => signedBy({ transforms })
  const c14n = 'http://www.w3.org/TR/2001/REC-xml-c14n-20010315'
  const small = rsaKeys(1024)
  const changed = 'what was signed is not what is there'
  const cases: Refused[] = [
    ['that is not signed', () => responseXml(), 'saml_unsigned', undefined],
    ['that lost its signature', () => withoutSignature(assertion), 'saml_unsigned', undefined],
    [
      'that lost one of its signatures',
      () => withoutSignature(evil(signedResponse(assertion))),
      'saml_signature_ambiguous',
      'is over',
    ],
    [
      'with a signature in another namespace',
      () => assertion.replace(namespaces.signature, 'urn:a'),
      'saml_unsigned',
      undefined,
    ],
    [
      'signed with another key',
      signedBy({ keys: otherKeys }),
      'saml_signature_invalid',
      'known is the certificate with SHA-256',
    ],
    [
      'with its own certificate in the signature',
      signedBy({ keys: otherKeys, shows: other }),
      'saml_signature_invalid',
      `it says that it was made with ${other.fingerprint256}`,
    ],
    [
      'signed with another kind of key',
      signedBy({ keys: ellipticKeys, method: rsaSha256.replace('rsa', 'ecdsa') }),
      'saml_signature_invalid',
      'the certificate is of another kind (rsa)',
    ],
    ['with another name', () => assertion.replaceAll(jo, admin), 'saml_signature_invalid', changed],
    [
      'with another name, the response signed',
      () => response.replaceAll(jo, admin),
      'saml_signature_invalid',
      changed,
    ],
    [
      'with another address, both signed',
      () => signedResponse(assertion).replace('Destination="', '$&a'),
      'saml_signature_invalid',
      changed,
    ],
    [
      'with one of two signatures right',
      () => signedResponse(signedBy({ keys: otherKeys })()),
      'saml_signature_invalid',
      'known is',
    ],
    [
      'with another digest',
      () => assertion.replace('<ds:DigestValue>', '$&A'),
      'saml_signature_invalid',
      changed,
    ],
    // CVE-2025-29775
    [
      'with a comment in its digest',
      () => assertion.replace('<ds:DigestValue>', '$&<!--A-->B'),
      'saml_signature_invalid',
      changed,
    ],
    ['with the digest of something else', forgedDigest, 'saml_signature_invalid', 'known is'],
    [
      'with another signature',
      () => assertion.replace('<ds:SignatureValue>', '$&AAAA'),
      'saml_signature_invalid',
      'known is',
    ],
    [
      'with an empty signature value',
      () => assertion.replace(/(<ds:SignatureValue>).*(<\/ds:SignatureValue>)/, '$1$2'),
      'saml_signature_invalid',
      changed,
    ],
    [
      'with an added attribute',
      () => assertion.replace('ID="_assertion1"', 'a="" $&'),
      'saml_signature_invalid',
      changed,
    ],
    ['with SHA-1', signedBy(sha1), 'saml_algorithm_refused', 'rsa-sha1'],
    ['with a digest of SHA-1', signedBy({ digest: sha1.digest }), 'saml_algorithm_refused', '#sha1'],
    [
      'with HMAC-SHA1 and the certificate as its secret',
      signedBy(hmac('sha1')),
      'saml_algorithm_refused',
      'hmac-sha1',
    ],
    [
      'with HMAC-SHA256 and the certificate as its secret',
      signedBy(hmac('sha256')),
      'saml_algorithm_refused',
      'hmac-sha256',
    ],
    [
      'with an algorithm that is a property of all objects',
      () => assertion.replace(rsaSha256, 'constructor'),
      'saml_algorithm_refused',
      '"constructor"',
    ],
    [
      'with no algorithm',
      () => assertion.replace(` Algorithm="${sha256}"`, ''),
      'saml_algorithm_refused',
      '""',
    ],
    [
      'with a key that is too short',
      () => signedAssertion(undefined, { keys: small }),
      'saml_algorithm_refused',
      'has 1024 bits',
      { certificate: selfSigned(small).toString() },
    ],
    ['canonicalized inclusively', signedBy({ c14n }), 'saml_algorithm_refused', c14n],
    [
      'canonicalized with comments',
      signedBy({ c14n: `${exclusiveC14n}WithComments` }),
      'saml_algorithm_refused',
      'WithComments',
    ],
    ['transformed inclusively', transformed(enveloped, c14n), 'saml_algorithm_refused', c14n],
    [
      'transformed by XSLT',
      transformed(enveloped, 'http://www.w3.org/TR/1999/REC-xslt-19991116', exclusiveC14n),
      'saml_algorithm_refused',
      'REC-xslt',
    ],
    [
      'transformed by XPath',
      transformed(enveloped, 'http://www.w3.org/TR/1999/REC-xpath-19991116', exclusiveC14n),
      'saml_algorithm_refused',
      'REC-xpath',
    ],
    [
      'transformed by an XPath filter',
      transformed(enveloped, exclusiveC14n, 'http://www.w3.org/2002/06/xmldsig-filter2'),
      'saml_algorithm_refused',
      'filter2',
    ],
    [
      'transformed from base64',
      () =>
        assertion.replace(
          `Transform Algorithm="${enveloped}"`,
          'Transform Algorithm="http://www.w3.org/2000/09/xmldsig#base64"',
        ),
      'saml_algorithm_refused',
      'base64',
    ],
    [
      'not canonicalized',
      () => assertion.replace(`<ds:Transform Algorithm="${exclusiveC14n}"/>`, ''),
      'saml_algorithm_refused',
      'the transforms are not',
    ],
    [
      'transformed in reverse order',
      () => assertion.replace(/(<ds:Transform [^>]*>)(<ds:Transform [^>]*>)/, '$2$1'),
      'saml_algorithm_refused',
      'the transforms are not',
    ],
    [
      'with an ID that is invalid',
      () => signedAssertion(responseXml({ assertionId: "1' or '1" })),
      'saml_malformed',
      'is no ID',
    ],
  ]
  it.each(cases)('%s is refused', async (...refused) => {
    await expectRefused(refused)
  })

  /** Everything is right except the signature value. */
  function forgedDigest(): string {
    const forged = signedAssertion(responseXml({ nameId: admin }), { keys: otherKeys })
    const value = partOf(assertion, /<ds:SignatureValue>.*<\/ds:SignatureValue>/)
    return forged.replace(/<ds:SignatureValue>.*<\/ds:SignatureValue>/, () => value)
  }

  it('is not verified with the certificate it contains', async () => {
    const how = { keys: otherKeys, shows: other }
    const wanted = { ...expected, certificate: other.toString() }
    const xml = signedAssertion(undefined, how)
    expect(await verifyResponse(posted(xml), wanted)).toMatchObject({ nameId: jo })
  })
})

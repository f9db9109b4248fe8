import { describe, expect, it } from 'vitest'
import { addSeconds } from '../../../src/core/time.ts'
import { namespaces } from '../../../src/sso/saml/names.ts'
import { verifyResponse } from '../../../src/sso/saml/response.ts'
import { ecKeys, selfSigned } from './certificate.ts'
import {
  expected,
  jo,
  otherKeys,
  posted,
  responseXml,
  restrictedTo,
  type Said,
  signedAssertion,
  signedResponse,
} from './identity-provider.ts'
import { expectRefused, type Refused } from './refused.ts'

const { now, acsUrl, entityId, issuer } = expected

/** A response with the given changes and a signed assertion. */
const saying = (change: Partial<Said>) => () => signedAssertion(responseXml(change))
const at = (seconds: number) => addSeconds(now, seconds)

const said = {
  id: '_assertion1',
  nameId: jo,
  nameIdFormat: 'urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress',
  sessionIndex: '_session1',
  authnContext: 'urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport',
  attributes: { email: [jo], groups: ['bakers', 'early birds'] },
  notOnOrAfter: at(360),
}

describe('a response', () => {
  it.each<[string, () => string]>([
    ['a signed assertion', () => signedAssertion()],
    ['a signature of the response', () => signedResponse()],
    ['both signatures', () => signedResponse(signedAssertion())],
    [
      'neither destination nor issuer, which only a signed response needs',
      saying({ destination: null, responseIssuer: null }),
    ],
    [
      'the prefixes of types in the canonicalization',
      () => signedAssertion(undefined, { prefixes: ['xs', 'xsi'] }),
    ],
    ['an XML declaration', () => `<?xml version="1.0" encoding="UTF-8"?>\n${signedAssertion()}\n`],
    ['a byte order mark', () => `\uFEFF${signedAssertion()}`],
    ['a comment in the name', () => signedAssertion().replace(jo, jo.replace('@', '@<!-- x -->'))],
    ['CDATA for the name', () => signedAssertion().replace(jo, `<![CDATA[${jo}]]>`)],
    ['a character reference', () => signedAssertion().replace(jo, jo.replace('@', '&#x40;'))],
    [
      'single quotes around its attributes',
      () => signedAssertion().replaceAll(/ (\w+)="([^"<]*)"/g, " $1 = '$2'"),
    ],
    ['one of two audiences', saying({ audience: restrictedTo('https://other.example.com', entityId) })],
    [
      'two restrictions that both name us',
      saying({ audience: restrictedTo(entityId) + restrictedTo('b', entityId) }),
    ],
    ['the condition OneTimeUse', saying({ audience: `${restrictedTo(entityId)}<saml:OneTimeUse/>` })],
    [
      'times without fractions',
      saying({ notBefore: '2026-11-22T12:00:00Z', notOnOrAfter: '2026-11-22T13:06:00+01:00' }),
    ],
    ['times of a clock that is a minute fast', saying({ notBefore: at(60), confirmedNotBefore: at(60) })],
    ['no times in its conditions', saying({ notBefore: null, notOnOrAfter: null })],
    ['a session that has not ended', saying({ sessionNotOnOrAfter: at(1) })],
  ])('with %s is accepted', async (_, xml) => {
    expect(await verifyResponse(posted(xml()), expected)).toEqual(said)
  })

  it('from a clock that is a minute slow is accepted', async () => {
    const change = { notOnOrAfter: at(-59), confirmedNotOnOrAfter: at(-59), sessionNotOnOrAfter: at(-59) }
    const assertion = await verifyResponse(posted(saying(change)()), expected)
    expect(assertion.notOnOrAfter).toBe(at(1))
  })

  it('is remembered until it cannot be replayed any more', async () => {
    const assertion = await verifyResponse(posted(saying({ notOnOrAfter: at(30) })()), expected)
    expect(assertion.notOnOrAfter).toBe(at(90))
  })

  it('may contain line breaks in its base64', async () => {
    const encoded = posted(signedAssertion()).replaceAll(/.{76}/g, '$&\r\n')
    expect(await verifyResponse(encoded, expected)).toEqual(said)
  })

  it.each(['rsa-sha256', 'rsa-sha384', 'rsa-sha512'])('may be signed with %s', async (method) => {
    const digest = {
      'rsa-sha256': 'xmlenc#sha256',
      'rsa-sha384': 'xmldsig-more#sha384',
      'rsa-sha512': 'xmlenc#sha512',
    }[method]
    const how = {
      method: `http://www.w3.org/2001/04/xmldsig-more#${method}`,
      digest: `http://www.w3.org/2001/04/${digest}`,
    }
    expect(await verifyResponse(posted(signedAssertion(undefined, how)), expected)).toEqual(said)
  })

  it.each([
    ['ecdsa-sha256', 'P-256'],
    ['ecdsa-sha384', 'P-384'],
    ['ecdsa-sha512', 'P-521'],
  ])('may be signed with %s', async (method, curve) => {
    const keys = ecKeys(curve)
    const its = selfSigned(keys)
    const how = { keys, shows: its, method: `http://www.w3.org/2001/04/xmldsig-more#${method}` }
    const wanted = { ...expected, certificate: its.toString() }
    expect(await verifyResponse(posted(signedAssertion(undefined, how)), wanted)).toEqual(said)
  })

  it('has the attributes of all its statements', async () => {
    const value = (text: string) => `<saml:AttributeValue>${text}</saml:AttributeValue>`
    const attribute = (name: string, ...values: string[]) =>
      `<saml:Attribute Name="${name}">${values.map(value).join('')}</saml:Attribute>`
    const inside = [
      attribute('groups', 'a &amp; b', '<b xmlns="urn:b">c</b>d'),
      attribute('__proto__', 'e'),
      attribute('none'),
    ].join('')
    const xml = saying({ inside: `<saml:AttributeStatement>${inside}</saml:AttributeStatement>` })()
    const { attributes } = await verifyResponse(posted(xml), expected)
    expect(Object.entries(attributes)).toEqual([
      ['email', [jo]],
      ['groups', ['bakers', 'early birds', 'a & b', 'cd']],
      ['__proto__', ['e']],
      ['none', []],
    ])
  })

  it('may confirm the subject in several ways, if one of them is valid', async () => {
    const other = `<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData NotOnOrAfter="${at(9)}" Recipient="https://other.example.com"/></saml:SubjectConfirmation>`
    const held = `<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:holder-of-key"/>`
    for (const [before, after] of [
      [held + other, ''],
      ['', other + held],
    ]) {
      const xml = responseXml()
        .replace('<saml:SubjectConfirmation ', `${before}$&`)
        .replace('</saml:Subject>', `${after}$&`)
      expect(await verifyResponse(posted(signedAssertion(xml)), expected)).toEqual(said)
    }
  })
})

describe('the content of a response', () => {
  const wrong = 'https://other.example.com'
  const confirmed = { confirmedInResponseTo: null, inResponseTo: null }
  const parties: Refused[] = [
    [
      'is of another issuer',
      saying({ issuer: wrong }),
      'saml_issuer_mismatch',
      `it says "${wrong}", not "${issuer}"`,
    ],
    ['is of no issuer', saying({ issuer: '' }), 'saml_issuer_mismatch', 'it says "", not'],
    [
      'is of an issuer with an additional slash',
      saying({ issuer: `${issuer}/` }),
      'saml_issuer_mismatch',
      expected.issuer,
    ],
    ['is of an issuer in capitals', saying({ issuer: issuer.toUpperCase() }), 'saml_issuer_mismatch', /IDP/],
    [
      'is of an issuer with space around it',
      saying({ issuer: `${issuer}\n` }),
      'saml_issuer_mismatch',
      /\\n/,
    ],
    [
      'is sent by another issuer',
      saying({ responseIssuer: wrong }),
      'saml_issuer_mismatch',
      `it says "${wrong}"`,
    ],
    [
      'is sent by another issuer, signed',
      () => signedResponse(responseXml({ responseIssuer: wrong })),
      'saml_issuer_mismatch',
      wrong,
    ],
    [
      'is of an issuer of another format',
      () => signedAssertion(responseXml().replace('<saml:Issuer>', '<saml:Issuer Format="urn:a">')),
      'saml_issuer_mismatch',
      issuer,
    ],
    [
      'is for another service',
      saying({ audience: restrictedTo(wrong) }),
      'saml_audience_mismatch',
      `it is for "${wrong}", not "${entityId}"`,
    ],
    ['has no audience restriction', saying({ audience: '' }), 'saml_audience_mismatch', 'it is for nobody'],
    [
      'has an empty audience restriction',
      saying({ audience: restrictedTo() }),
      'saml_audience_mismatch',
      'it is for nobody',
    ],
    [
      'is restricted to this service and also to another',
      saying({ audience: restrictedTo(entityId) + restrictedTo(wrong) }),
      'saml_audience_mismatch',
      wrong,
    ],
    [
      'is for a service whose name begins with ours',
      saying({ audience: restrictedTo(`${entityId}<!-- -->.evil.example.com`) }),
      'saml_audience_mismatch',
      '.evil.example.com"',
    ],
    [
      'is for another address',
      saying({ recipient: wrong }),
      'saml_recipient_mismatch',
      `its recipient is "${wrong}", not "${acsUrl}"`,
    ],
    ['is for no address', saying({ recipient: null }), 'saml_recipient_mismatch', 'its recipient is nothing'],
    [
      'is not for a bearer',
      saying({ method: 'urn:oasis:names:tc:SAML:2.0:cm:holder-of-key' }),
      'saml_recipient_mismatch',
      'no bearer',
    ],
    [
      'was sent to another address',
      saying({ destination: wrong }),
      'saml_recipient_mismatch',
      `its destination is "${wrong}"`,
    ],
    [
      'was sent to no address, signed',
      () => signedResponse(responseXml({ destination: null })),
      'saml_recipient_mismatch',
      'its destination is nothing',
    ],
    [
      'answers another sign-in',
      saying({ confirmedInResponseTo: '_b' }),
      'saml_request_mismatch',
      'the assertion is in reply to "_b"',
    ],
    [
      'answers no sign-in',
      saying({ confirmedInResponseTo: null }),
      'saml_request_mismatch',
      'the assertion is in reply to nothing',
    ],
    [
      'has the InResponseTo of another sign-in',
      saying({ inResponseTo: '_b' }),
      'saml_request_mismatch',
      'the response is to "_b"',
    ],
    ['is unsolicited', saying(confirmed), 'saml_request_mismatch', 'the response is to nothing'],
  ]
  const times: Refused[] = [
    [
      'has expired',
      saying({ notOnOrAfter: at(-60) }),
      'saml_expired',
      `Conditions: until ${at(-60)}; here it is ${now}`,
    ],
    [
      'was confirmed too long ago',
      saying({ confirmedNotOnOrAfter: at(-60) }),
      'saml_expired',
      'SubjectConfirmationData: until',
    ],
    [
      'has a confirmation without an end',
      saying({ confirmedNotOnOrAfter: null }),
      'saml_expired',
      'until when',
    ],
    [
      'is of a session that has ended',
      saying({ sessionNotOnOrAfter: at(-60) }),
      'saml_expired',
      'the session at the provider',
    ],
    [
      'is not valid yet',
      saying({ notBefore: at(61) }),
      'saml_not_yet_valid',
      `Conditions: from ${at(61)}; here it is ${now}`,
    ],
    [
      'has a confirmation that is not valid yet',
      saying({ confirmedNotBefore: at(61) }),
      'saml_not_yet_valid',
      'SubjectConfirmationData: from',
    ],
    [
      'has a word in place of a time',
      saying({ notOnOrAfter: 'tomorrow' }),
      'saml_malformed',
      'NotOnOrAfter is "tomorrow", which is no time',
    ],
    [
      'has a time without a zone',
      saying({ notOnOrAfter: '2126-11-22T12:00:00' }),
      'saml_malformed',
      'no time',
    ],
    [
      'has a time with an impossible month',
      saying({ notBefore: '2026-13-01T00:00:00Z' }),
      'saml_malformed',
      'no time',
    ],
  ]
  const expired = {
    certificate: selfSigned(otherKeys, { from: new Date('2020-01-01'), to: new Date(now) }).toString(),
  }
  const early = {
    certificate: selfSigned(otherKeys, { from: new Date(at(1)), to: new Date('2120-01-01') }).toString(),
  }
  const byOther = () => signedAssertion(undefined, { keys: otherKeys })
  const certificates: Refused[] = [
    [
      'is signed by a certificate that has expired',
      byOther,
      'saml_certificate_expired',
      `at ${now}; here it is ${now}`,
      expired,
    ],
    [
      'is signed by a certificate that is not valid yet',
      byOther,
      'saml_not_yet_valid',
      'the certificate, before',
      early,
    ],
  ]
  const subjects: Refused[] = [
    ['has a blank NameID', saying({ nameId: ' ' }), 'saml_no_subject', 'its NameID is " "'],
    [
      'has a NameID that is too long',
      saying({ nameId: 'x'.repeat(257) }),
      'saml_no_subject',
      'x'.repeat(257),
    ],
    [
      'has no NameID',
      () => signedAssertion(responseXml().replace(/<saml:NameID.*<\/saml:NameID>/, '')),
      'saml_no_subject',
      'its NameID is ""',
    ],
    [
      'has two NameIDs',
      () => signedAssertion(responseXml().replace(/<saml:NameID.*<\/saml:NameID>/, '$&$&')),
      'saml_no_subject',
      jo,
    ],
    [
      'has an element in the NameID',
      saying({ nameId: `<b xmlns="urn:b">${jo}</b>` }),
      'saml_malformed',
      'NameID holds more than text',
    ],
    ['has no AuthnStatement', saying({ statements: '' }), 'saml_no_subject', 'it has no AuthnStatement'],
  ]
  const parts: Refused[] = [
    [
      'has no conditions',
      () => signedAssertion(responseXml().replace(/<saml:Conditions.*<\/saml:Conditions>/, '')),
      'saml_malformed',
      'Assertion has no Conditions',
    ],
    [
      'has two subjects',
      () => signedAssertion(responseXml().replace(/<saml:Subject>.*<\/saml:Subject>/, '$&$&')),
      'saml_malformed',
      'Assertion has 2 Subject',
    ],
    [
      'has an unknown condition',
      saying({ audience: `${restrictedTo(entityId)}<a xmlns="urn:a"/>` }),
      'saml_malformed',
      'the condition a is not known',
    ],
    [
      'has an assertion of SAML 1',
      () => signedAssertion(responseXml().replaceAll(/(<saml:Assertion.*?Version=)"2.0"/g, '$1"1.1"')),
      'saml_malformed',
      'not of SAML 2.0',
    ],
  ]
  const encrypted = (name: string) => `<saml:${name} xmlns:saml="${namespaces.assertion}"/>`
  const bare = responseXml({}, '')
  const refusal = (status: string) => () => responseXml({ status }, '')
  const code = (name: string, inner = '') =>
    `<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:${name}">${inner}</samlp:StatusCode>`
  const statuses: Refused[] = [
    [
      'is a refusal',
      refusal(code('Responder', code('AuthnFailed'))),
      'saml_status',
      /^Responder, AuthnFailed$/,
    ],
    [
      'is a refusal with a reason',
      refusal(`${code('Requester')}<samlp:StatusMessage> Not assigned </samlp:StatusMessage>`),
      'saml_status',
      /^Requester: Not assigned$/,
    ],
    [
      'is a refusal with a custom status',
      refusal('<samlp:StatusCode Value="urn:no"/>'),
      'saml_status',
      /^urn:no$/,
    ],
    [
      'is a refusal in spite of an assertion',
      saying({ status: code('Responder', code('Success')) }),
      'saml_status',
      'Responder, Success',
    ],
    [
      'has no status',
      () => bare.replace(/<samlp:Status>.*<\/samlp:Status>/, ''),
      'saml_malformed',
      'it has no status',
    ],
    [
      'is encrypted',
      () => responseXml({}, encrypted('EncryptedAssertion')),
      'saml_encrypted',
      'EncryptedAssertion',
    ],
    [
      'is encrypted, beside one that is not',
      saying({ after: encrypted('EncryptedAssertion') }),
      'saml_encrypted',
      'EncryptedAssertion',
    ],
    ['has an encrypted name', saying({ inside: encrypted('EncryptedID') }), 'saml_encrypted', 'EncryptedID'],
    [
      'has an encrypted attribute',
      saying({ inside: encrypted('EncryptedAttribute') }),
      'saml_encrypted',
      'EncryptedAttribute',
    ],
    ['has no assertion', () => bare, 'saml_malformed', 'it holds no assertion'],
    [
      'is another message',
      () => bare.replaceAll('samlp:Response', 'samlp:LogoutResponse'),
      'saml_malformed',
      'it is a "LogoutResponse"',
    ],
    [
      'is in another namespace',
      () => signedAssertion().replace(namespaces.protocol, 'urn:b'),
      'saml_malformed',
      'it is a "Response"',
    ],
    [
      'is of SAML 3',
      () => signedAssertion().replace('Version="2.0"', 'Version="3.0"'),
      'saml_malformed',
      'it is not of SAML 2.0',
    ],
  ]
  it.each([...parties, ...times, ...certificates, ...subjects, ...parts, ...statuses])(
    '%s, and is refused',
    async (...refused) => {
      await expectRefused(refused)
    },
  )

  it('with a comment in the NameID gives the whole name', async () => {
    const xml = saying({ nameId: `admin@x.com<!---->.evil.com` })()
    expect(await verifyResponse(posted(xml), expected)).toMatchObject({ nameId: 'admin@x.com.evil.com' })
    expect(xml).toContain('<!---->')
  })
})

describe('a malformed response', () => {
  const laughs = `<!DOCTYPE a [<!ENTITY a "haha">${'bcdefghi'.replaceAll(/./g, (name, index) => `<!ENTITY ${name} "${`&${'abcdefghi'[index]};`.repeat(10)}">`)}]>`
  const external = '<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
  const named = (entity: string) => signedAssertion().replace(jo, entity)
  const cases: Refused[] = [
    [
      'with exponential entity expansion (billion laughs)',
      () => laughs + named('&i;'),
      'saml_malformed',
      'it is no XML at "<!DOCTYPE',
    ],
    [
      'with an external entity',
      () => external + named('&a;'),
      'saml_malformed',
      'it is no XML at "<!DOCTYPE',
    ],
    [
      'with a document type elsewhere',
      () => signedAssertion() + external,
      'saml_malformed',
      'no XML at "<!DOCTYPE',
    ],
    ['with an entity', () => named('&nbsp;'), 'saml_malformed', 'it refers to an entity'],
    [
      'with an entity in an attribute',
      () => signedAssertion().replace('"2.0"', '"&a;"'),
      'saml_malformed',
      'entity',
    ],
    ['with a bare ampersand', () => named('a&b'), 'saml_malformed', 'entity'],
    // Canonicalization takes it for text: to the signature it would be the name.
    [
      'with a processing instruction as the name',
      () => named(`<?a ${jo}?>`),
      'saml_malformed',
      'it is no XML at "<?a',
    ],
    [
      'with a style sheet',
      () => `<?xml version="1.0"?><?xml-stylesheet href="a"?>${named(jo)}`,
      'saml_malformed',
      'no XML',
    ],
    [
      'with two documents',
      () => signedAssertion().repeat(2),
      'saml_malformed',
      'it has 2 elements at the top',
    ],
    ['with text behind it', () => `${signedAssertion()}a`, 'saml_malformed', 'text outside'],
    ['that is text', () => 'a', 'saml_malformed', 'text outside'],
    ['that is a comment', () => '<!-- a -->', 'saml_malformed', 'it has 0 elements at the top'],
    ['with mismatched tags', () => '<a><b></a></b>', 'saml_malformed', '</a> ends what has not begun'],
    [
      'with an end tag without a start tag',
      () => '<a></b></a>',
      'saml_malformed',
      '</b> ends what has not begun',
    ],
    ['that does not end', () => '<a><a></a>', 'saml_malformed', 'it ends inside <a>'],
    ['with an attribute twice', () => '<a b="1" b="2"/>', 'saml_malformed', 'b redefined'],
    ['with an attribute without quotes', () => '<a b=1/>', 'saml_malformed', 'it is no XML'],
    ['with an attribute without a value', () => '<a b/>', 'saml_malformed', 'it is no XML'],
    ['with a tag in an attribute', () => '<a b="<"/>', 'saml_malformed', 'it is no XML'],
    ['with a NUL character', () => '<a>\0</a>', 'saml_malformed', 'a character that XML does not allow'],
    ['that is too deep', () => '<a>'.repeat(65) + '</a>'.repeat(65), 'saml_malformed', 'too deep'],
    ['with too many elements', () => `<a>${'<b/>'.repeat(5000)}</a>`, 'saml_malformed', 'too many parts'],
    [
      'with too many attributes',
      () => `<a>${'<b c="" d="" e=""/>'.repeat(3400)}</a>`,
      'saml_malformed',
      'too many parts',
    ],
    ['with too many comments', () => `<a>${'b<!---->'.repeat(501)}</a>`, 'saml_malformed', 'too many parts'],
    ['that is too large', () => `<a>${'b'.repeat(256 * 1024)}</a>`, 'saml_malformed', 'larger than 256 KiB'],
  ]
  it.each(cases)('%s is refused', async (...refused) => {
    await expectRefused(refused)
  })

  it.each([
    ['', 'it is no base64'],
    ['%%%', 'it is no base64'],
    ['PGEv', 'it is no XML'],
    ['PGEvP', 'it is no base64'],
    ['====', 'it is no base64'],
    [encodeURIComponent(posted('<a/>>')), 'it is no base64'],
    [Buffer.from('<a>\xff</a>', 'latin1').toString('base64'), 'it is not UTF-8'],
    [Buffer.from(`\uFEFF<a/>`, 'utf16le').toString('base64'), 'it is not UTF-8'],
    ['A'.repeat(600_000), 'it is larger than 256 KiB'],
    [' '.repeat(600_000), 'it is larger than 256 KiB'],
  ])('as %.20s is refused', async (encoded, detail) => {
    await expect(verifyResponse(encoded, expected)).rejects.toMatchObject({
      code: 'saml_malformed',
      detail: expect.stringContaining(detail),
    })
  })

  it('that is truncated is refused', async () => {
    const xml = signedAssertion()
    for (let length = 1; length < xml.length; length += 97) {
      await expectRefused(['', () => xml.slice(0, length), 'saml_malformed', /./])
    }
  })
})

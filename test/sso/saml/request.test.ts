import { generateKeyPairSync, randomBytes, verify, X509Certificate } from 'node:crypto'
import { inflateRawSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { createSelfSigned } from '../../../src/sso/saml/certificate.ts'
import { serviceMetadata } from '../../../src/sso/saml/metadata.ts'
import { authnRequestUrl, newRequestId } from '../../../src/sso/saml/request.ts'
import { parseXml } from '../../../src/sso/saml/xml.ts'

const request = {
  ssoUrl: 'https://idp.example.com/sso',
  id: newRequestId(),
  now: '2026-11-22T12:00:00.000Z',
  acsUrl: 'https://svc.example.com/api/v1/sso/saml/acs',
  entityId: 'https://svc.example.com/saml',
  relayState: 'a&b=c d',
}

function read(url: string) {
  const { searchParams } = new URL(url)
  const xml = inflateRawSync(Buffer.from(searchParams.get('SAMLRequest')!, 'base64')).toString()
  return { xml, root: parseXml(xml), searchParams }
}

const pair = generateKeyPairSync('rsa', { modulusLength: 2048 })
const own = createSelfSigned(pair, {
  name: 'svc',
  serial: randomBytes(15),
  from: new Date('2026-11-22T12:00:00Z'),
})

describe('an authentication request', () => {
  it('is signed over its query string, with the key of the certificate in the metadata', () => {
    const url = authnRequestUrl({
      ...request,
      ssoUrl: 'https://idp.example.com/sso?idpid=1',
      key: pair.privateKey,
    })
    const { search, searchParams } = new URL(url)
    const [, signed = ''] = /(SAMLRequest=.*)&Signature=/.exec(search) ?? []
    expect(signed.split('&').map((one) => one.split('=')[0])).toEqual(['SAMLRequest', 'RelayState', 'SigAlg'])
    expect(searchParams.get('SigAlg')).toBe('http://www.w3.org/2001/04/xmldsig-more#rsa-sha256')
    const certificate = new X509Certificate(own)
    const signature = Buffer.from(searchParams.get('Signature')!, 'base64')
    const isRight = (text: string) => verify('sha256', Buffer.from(text), certificate.publicKey, signature)
    expect([isRight(signed), isRight(signed.replace('RelayState=a', 'RelayState=b'))]).toEqual([true, false])
    expect(certificate.verify(certificate.publicKey)).toBe(true)
    expect([
      certificate.subject,
      certificate.validFromDate.toISOString(),
      certificate.validToDate.getUTCFullYear(),
    ]).toEqual(['CN=svc', '2026-11-22T12:00:00.000Z', 9999])
  })

  it('uses the HTTP-Redirect binding', () => {
    const url = authnRequestUrl(request)
    const { root, searchParams } = read(url)
    expect(url).toMatch(/^https:\/\/idp\.example\.com\/sso\?SAMLRequest=[^&+ ]+&RelayState=a%26b%3Dc\+d$/)
    expect(searchParams.get('RelayState')).toBe(request.relayState)
    expect([root.namespace, root.name]).toEqual(['urn:oasis:names:tc:SAML:2.0:protocol', 'AuthnRequest'])
    expect(Object.fromEntries(root.attributes)).toEqual({
      'xmlns:samlp': 'urn:oasis:names:tc:SAML:2.0:protocol',
      ID: request.id,
      Version: '2.0',
      IssueInstant: request.now,
      Destination: request.ssoUrl,
      AssertionConsumerServiceURL: request.acsUrl,
      ProtocolBinding: 'urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST',
    })
    const [issuer, policy, ...rest] = root.children
    expect(rest).toEqual([])
    expect(issuer).toMatchObject({
      name: 'Issuer',
      namespace: 'urn:oasis:names:tc:SAML:2.0:assertion',
      text: request.entityId,
    })
    expect([policy!.name, Object.fromEntries(policy!.attributes)]).toEqual([
      'NameIDPolicy',
      { AllowCreate: 'true' },
    ])
  })

  it('can demand a new authentication and a NameID format', () => {
    const nameIdFormat = 'urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress'
    const { root } = read(authnRequestUrl({ ...request, forceAuthn: true, nameIdFormat }))
    expect(root.attributes.get('ForceAuthn')).toBe('true')
    expect(root.children[1]!.attributes.get('Format')).toBe(nameIdFormat)
  })

  it.each([
    [
      'https://accounts.google.com/o/saml2/idp?idpid=C01a',
      'https://accounts.google.com/o/saml2/idp?idpid=C01a&SAMLRequest=',
    ],
    ['https://idp.example.com/?a=b%20c;d&e', 'https://idp.example.com/?a=b%20c;d&e&SAMLRequest='],
    ['https://idp.example.com/?', 'https://idp.example.com/?SAMLRequest='],
  ])('keeps the query of %s', (ssoUrl, start) => {
    const url = authnRequestUrl({ ...request, ssoUrl })
    expect(url.startsWith(start)).toBe(true)
    expect(read(url).root.attributes.get('Destination')).toBe(ssoUrl)
  })

  it('is well-formed XML for any values', () => {
    const [entityId, acsUrl] = [`<a & "b" 'c'>\n]]>`, 'https://svc.example.com/?a=1&b="2"']
    const { root } = read(authnRequestUrl({ ...request, entityId, acsUrl }))
    expect(root.children[0]!.text).toBe(entityId)
    expect(root.attributes.get('AssertionConsumerServiceURL')).toBe(acsUrl)
  })

  it('has a unique ID that is a valid XML name', () => {
    const ids = Array.from({ length: 100 }, newRequestId)
    expect(new Set(ids).size).toBe(100)
    for (const id of ids) expect(id).toMatch(/^_[0-9a-f]{32}$/)
  })
})

describe('the metadata of the service', () => {
  it('give the ACS address, and demand signed assertions', () => {
    const about = { entityId: 'https://svc.example.com/?a&b', acsUrl: request.acsUrl, certificate: own }
    const xml = serviceMetadata({ ...about, signed: false })
    expect(serviceMetadata({ ...about, signed: true })).toContain('AuthnRequestsSigned="true"')
    expect(xml).toBe(`<?xml version="1.0" encoding="UTF-8"?>
<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="https://svc.example.com/?a&amp;b">
  <md:SPSSODescriptor AuthnRequestsSigned="false" WantAssertionsSigned="true" protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
    <md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>${own.toString('base64')}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>
    <md:NameIDFormat>urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress</md:NameIDFormat>
    <md:AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST" Location="https://svc.example.com/api/v1/sso/saml/acs" index="0" isDefault="true"/>
  </md:SPSSODescriptor>
</md:EntityDescriptor>
`)
    expect(parseXml(xml).attributes.get('entityID')).toBe('https://svc.example.com/?a&b')
  })
})

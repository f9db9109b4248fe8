import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { identityFromAssertion } from '../../../src/sso/saml/attributes.ts'
import { serviceMetadata } from '../../../src/sso/saml/metadata.ts'
import { authnRequestUrl, newRequestId } from '../../../src/sso/saml/request.ts'
import { verifyResponse } from '../../../src/sso/saml/response.ts'
import { selfSigned } from './certificate.ts'
import { certificate, keys, otherKeys } from './identity-provider.ts'
import {
  hasSimplesamlphp,
  type OtherProvider,
  person,
  type Settings,
  startIdentityProvider,
} from './simplesamlphp.ts'

const service = {
  entityId: 'https://svc.example.com/saml?a=1&b=2',
  acsUrl: 'https://svc.example.com/api/v1/sso/saml/acs',
}
const mapping = { email: 'mail', name: 'displayName', groups: 'groups' }

describe.skipIf(!hasSimplesamlphp)('SimpleSAMLphp', () => {
  let idp: OtherProvider
  beforeAll(async () => {
    idp = await startIdentityProvider(service, keys)
  })
  afterAll(() => idp.stop())

  /** Sends a request to the provider and returns its response, like a browser. */
  async function trip(settings: Partial<Settings> = {}, altered = (url: string) => url) {
    idp.set({ ...service, ...settings })
    const now = new Date().toISOString()
    const id = newRequestId()
    const url = authnRequestUrl({ ...service, id, now, ssoUrl: idp.ssoUrl, relayState: 'state & more' })
    const { SAMLResponse, RelayState } = await idp.signIn(altered(url))
    expect(RelayState).toBe('state & more')
    const expected = { ...service, requestId: id, now, issuer: idp.entityId, certificate: idp.certificate }
    return { expected, verified: (change = {}) => verifyResponse(SAMLResponse, { ...expected, ...change }) }
  }

  it.each(['assertion', 'response', 'both'] as const)(
    'reads our metadata, and signs a user in; signed: %s',
    async (signs) => {
      const { verified } = await trip({
        signs,
        metadata: serviceMetadata({ ...service, certificate: certificate.raw, signed: false }),
      })
      const assertion = await verified()
      const { mail, displayName, groups } = person
      expect(assertion).toMatchObject({
        nameId: mail,
        nameIdFormat: 'urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress',
        attributes: { mail: [mail], displayName: [displayName], groups },
      })
      expect(identityFromAssertion(assertion, mapping)).toMatchObject({
        subject: mail,
        email: mail,
        name: displayName,
        groups,
        mfa: false,
      })
    },
  )

  it.each([
    'http://www.w3.org/2001/04/xmldsig-more#rsa-sha384',
    'http://www.w3.org/2001/04/xmldsig-more#rsa-sha512',
  ])('may sign with %s', async (algorithm) => {
    expect(await (await trip({ algorithm })).verified()).toMatchObject({ nameId: person.mail })
  })

  it('is refused with SHA-1', async () => {
    const { verified } = await trip({ algorithm: 'http://www.w3.org/2000/09/xmldsig#rsa-sha1' })
    await expect(verified()).rejects.toMatchObject({ code: 'saml_algorithm_refused' })
  })

  it('is refused when its response does not match the expectations', async () => {
    const { verified } = await trip()
    const another = { certificate: selfSigned(otherKeys).toString() }
    await expect(verified(another)).rejects.toMatchObject({
      code: 'saml_signature_invalid',
      detail: expect.stringContaining(`made with ${certificate.fingerprint256}`),
    })
    const wrong = [
      [{ issuer: `${idp.entityId}/` }, 'saml_issuer_mismatch'],
      [{ entityId: 'https://svc.example.com/saml' }, 'saml_audience_mismatch'],
      [{ acsUrl: `${service.acsUrl}/` }, 'saml_recipient_mismatch'],
      [{ requestId: newRequestId() }, 'saml_request_mismatch'],
      [{ now: new Date(Date.now() + 600_000).toISOString() }, 'saml_expired'],
      [{ now: new Date(Date.now() - 600_000).toISOString() }, 'saml_not_yet_valid'],
    ] as const
    for (const [change, code] of wrong) await expect(verified(change)).rejects.toMatchObject({ code })
  })

  it('is refused when it encrypts', async () => {
    const { verified } = await trip({ encryptsFor: certificate })
    await expect(verified()).rejects.toMatchObject({ code: 'saml_encrypted', detail: 'EncryptedAssertion' })
  })

  it('has its reason for a refusal reported', async () => {
    const passive = (url: string) => {
      const asked = new URL(url)
      const xml = inflateRawSync(Buffer.from(asked.searchParams.get('SAMLRequest')!, 'base64')).toString()
      const changed = deflateRawSync(xml.replace(' Version=', ' IsPassive="true" Version='))
      asked.searchParams.set('SAMLRequest', changed.toString('base64'))
      return asked.href
    }
    const { verified } = await trip({}, passive)
    await expect(verified()).rejects.toMatchObject({
      code: 'saml_status',
      detail: expect.stringMatching(/^Responder, NoPassive/),
    })
  })

  it('is refused when it sends transient NameIDs', async () => {
    const { verified } = await trip({ nameIdFormat: 'urn:oasis:names:tc:SAML:2.0:nameid-format:transient' })
    const assertion = await verified()
    expect(() => identityFromAssertion(assertion, mapping)).toThrow(
      expect.objectContaining({ code: 'saml_no_subject' }),
    )
  })
})

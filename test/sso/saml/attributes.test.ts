import { describe, expect, it } from 'vitest'
import { defaultMapping, findPreset } from '../../../src/sso/presets/rules.ts'
import type { Assertion } from '../../../src/sso/saml/assertion.ts'
import { identityFromAssertion } from '../../../src/sso/saml/attributes.ts'

const claims = 'http://schemas.xmlsoap.org/ws/2005/05/identity/claims'
const password = 'urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport'

const assertion = (attributes: Record<string, string[]>, change: Partial<Assertion> = {}): Assertion => ({
  id: '_a',
  nameId: 'jo',
  nameIdFormat: undefined,
  sessionIndex: '_s',
  authnContext: password,
  notOnOrAfter: '2026-11-22T12:05:00.000Z',
  attributes,
  ...change,
})
const vouched = (
  attributes: Record<string, string[]>,
  change?: Partial<Assertion>,
  mapping = defaultMapping,
) => identityFromAssertion(assertion(attributes, change), mapping)

describe('the identity in an assertion', () => {
  it.each<[string, Record<string, string[]>]>([
    [
      'the claims of Microsoft',
      {
        [`${claims}/emailaddress`]: ['jo@b.example'],
        [`${claims}/name`]: ['Jo Baker'],
        'http://schemas.microsoft.com/ws/2008/06/identity/claims/groups': ['a', 'b'],
      },
    ],
    [
      'the claims of ADFS',
      {
        [`${claims}/emailaddress`]: ['jo@b.example'],
        [`${claims}/givenname`]: ['Jo'],
        [`${claims}/surname`]: ['Baker'],
        'http://schemas.xmlsoap.org/claims/Group': ['a', 'b'],
      },
    ],
    [
      'object identifiers',
      {
        'urn:oid:0.9.2342.19200300.100.1.3': ['jo@b.example'],
        'urn:oid:2.5.4.42': ['Jo'],
        'urn:oid:2.5.4.4': ['Baker'],
        groups: ['a', 'b'],
      },
    ],
    [
      'an object identifier for the whole name',
      { email: ['jo@b.example'], 'urn:oid:2.16.840.1.113730.3.1.241': ['Jo Baker'], groups: ['a', 'b'] },
    ],
    ['plain names', { email: ['jo@b.example'], firstName: ['Jo'], lastName: ['Baker'], groups: ['a', 'b'] }],
    [
      'a plain name for the whole name',
      { email: ['jo@b.example'], displayName: ['Jo Baker'], groups: ['a', 'b'] },
    ],
    [
      "the provider's own URIs",
      {
        'https://idp.example.com/claims/email': ['jo@b.example'],
        'https://idp.example.com/claims/displayname/': ['Jo Baker'],
        'https://idp.example.com/groups': ['a', 'b'],
      },
    ],
  ])('is read from %s', (_, attributes) => {
    expect(vouched(attributes)).toEqual({
      subject: 'jo',
      email: 'jo@b.example',
      emailVerified: true,
      name: 'Jo Baker',
      groups: ['a', 'b'],
      mfa: false,
      profile: { ...attributes, nameId: 'jo', sessionIndex: '_s', authnContext: password },
    })
  })

  it.each(['azure-ad-saml', 'okta-saml', 'onelogin-saml', 'adfs-saml', 'google-saml'])(
    'is read with the preset %s',
    (preset) => {
      const mapping = findPreset(preset)!.attributeMapping
      const attributes = {
        [mapping.email]: ['jo@b.example'],
        [mapping.firstName!]: ['Jo'],
        [mapping.lastName!]: ['Baker'],
        ...(mapping.groups && { [mapping.groups]: ['a'] }),
      }
      expect(vouched(attributes, {}, mapping)).toMatchObject({
        email: 'jo@b.example',
        name: 'Jo Baker',
        groups: mapping.groups ? ['a'] : [],
      })
      expect(vouched({ ...attributes, [mapping.name]: ['Jo B.'] }, {}, mapping).name).toBe('Jo B.')
    },
  )

  it('follows the mapping first, and common attribute names only where that gives nothing', () => {
    const mapping = { email: 'mail', name: 'cn', firstName: 'given', groups: 'memberOf' }
    const all = { email: ['other@b.example'], name: ['Other'], groups: ['other'], firstName: ['Other'] }
    expect(
      vouched({ ...all, mail: [' jo@b.example '], cn: ['Jo'], memberOf: ['a', ' '] }, {}, mapping),
    ).toMatchObject({
      email: 'jo@b.example',
      name: 'Jo',
      groups: ['a'],
    })
    expect(vouched({ ...all, mail: [''], cn: [] }, {}, mapping)).toMatchObject({
      email: 'other@b.example',
      name: 'Other',
      groups: ['other'],
    })
    const named = { 'https://idp.example.com/memberOf': ['b'] }
    expect(vouched(named, {}, mapping).groups).toEqual(['b'])
    const guessed = {
      'https://idp.example.com/email': ['guess@b.example'],
      [`${claims}/emailaddress`]: ['jo@b.example'],
    }
    expect(vouched(guessed).email).toBe('jo@b.example')
  })

  it.each([
    ['jo@b.example', 'jo@b.example'],
    ['jo', undefined],
    ['a jo@b.example', undefined],
    ['https://idp.example.com!sp!jo@', undefined],
  ])('with the NameID %s has the email address %s when no attribute gives one', (nameId, email) => {
    expect(vouched({}, { nameId })).toMatchObject({ subject: nameId, email, name: undefined, groups: [] })
    expect(vouched({ email: ['x@b.example'] }, { nameId }).email).toBe('x@b.example')
  })

  it('has only a first or last name if only one is given', () => {
    expect(vouched({ firstName: ['Jo'] }).name).toBe('Jo')
    expect(vouched({ lastName: ['Baker'] }).name).toBe('Baker')
  })

  it('has an unverified address if the provider says so', () => {
    expect(vouched({ 'http://schemas.auth0.com/email_verified': ['false'] }).emailVerified).toBe(false)
    expect(vouched({ email_verified: ['0'] }).emailVerified).toBe(false)
    expect(vouched({ email_verified: ['true', 'False '] }).emailVerified).toBe(false)
    expect(vouched({ email_verified: ['true'] }).emailVerified).toBe(true)
  })

  it.each([
    [{}, password, false],
    [{}, undefined, false],
    [{}, 'https://refeds.org/profile/mfa', true],
    [{}, 'http://schemas.microsoft.com/claims/multipleauthn', true],
    [{ 'http://schemas.microsoft.com/claims/authnmethodsreferences': ['a'] }, password, false],
    [
      {
        'http://schemas.microsoft.com/claims/authnmethodsreferences': [
          'a',
          'http://schemas.microsoft.com/claims/multipleauthn',
        ],
      },
      password,
      true,
    ],
    [{ groups: ['https://refeds.org/profile/mfa'] }, password, false],
  ])('with %o and %s has a second factor: %s', (attributes, authnContext, mfa) => {
    expect(vouched(attributes as Record<string, string[]>, { authnContext }).mfa).toBe(mfa)
  })

  it('is refused when the NameID is transient', () => {
    const nameIdFormat = 'urn:oasis:names:tc:SAML:2.0:nameid-format:transient'
    expect(() => vouched({ email: ['jo@b.example'] }, { nameIdFormat })).toThrow(
      expect.objectContaining({
        code: 'saml_no_subject',
        detail: expect.stringContaining('nameid-format:emailAddress'),
      }),
    )
  })
})

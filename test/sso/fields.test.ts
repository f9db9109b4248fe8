import { describe, expect, it } from 'vitest'
import { domainFault, normalizeDomains, normalizeScopes, urlFault } from '../../src/sso/fields/contract.ts'

describe('allowed domains', () => {
  it.each([
    ['', ''],
    [' , ,', ''],
    ['Example.com', 'example.com'],
    ['b.example,a.example , B.example', 'b.example,a.example'],
    ['@example.com', 'example.com'],
    ['localhost', 'localhost'],
    ['BÜCHER.example,xn--bcher-kva.example', 'xn--bcher-kva.example'],
    ['1password.example', '1password.example'],
  ])('%j are stored as %j', (said, kept) => {
    expect([normalizeDomains(said), domainFault(normalizeDomains(said))]).toEqual([kept, undefined])
    expect(normalizeDomains(normalizeDomains(said))).toBe(kept)
  })

  it.each([
    'a@b.example',
    '@',
    'a b.example',
    'a..example',
    '.example',
    'example.',
    '-a.example',
    'a-.example',
    '10.0.0.1',
    '1',
    '0x7f.1',
    '[::1]',
    'a.example:443',
    'a.example/b',
    '*.example',
    'a_b.example',
    '%61.example',
    `${'a'.repeat(254)}.example`,
  ])('cannot contain %j', (wrong) => {
    expect(domainFault(normalizeDomains(`example.com,${wrong}`))).toMatch(
      / is not a domain, such as example.com$/,
    )
  })
})

describe('a URL of a provider', () => {
  it.each([
    ['https://idp.example.com', false],
    ['https://idp.example.com:8443/a/b/', true],
    ['https://idp.example.com/a?b=c', false],
    ['', true],
  ])('may be %j', (url, ofIssuer) => {
    expect(urlFault(url, ofIssuer)).toBeUndefined()
  })

  it.each([
    ['http://idp.example.com', 'must use HTTPS'],
    ['file:///etc/passwd', 'must use HTTPS'],
    ['https://', 'must be a URL'],
    ['https://idp.example.com/a b', 'must be a URL'],
    ['https:\\\\idp.example.com', 'must be a URL'],
    ['https://idp.example.com/{tenant', 'fill in {tenant with what is yours'],
    ['https://a:b@idp.example.com', 'must not hold a user name or password'],
    ['https://idp.example.com/#', 'must not have a fragment'],
    ['https://idp.example.com/?', 'must not have a query: it is an issuer'],
  ])('cannot be %j', (url, fault) => {
    expect(urlFault(url, true)).toBe(fault)
  })
})

it('scopes are stored without duplicates', () => {
  expect(normalizeScopes('  openid\temail openid\nprofile ')).toBe('openid email profile')
})

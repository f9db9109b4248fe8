import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { newId } from '../../src/core/new-id.ts'
import {
  applyChange,
  broadnessWarning,
  claimText,
  describeRun,
  findTokenFault,
  hasAudience,
  lookupKeyOf,
  lookupKeysIn,
  makePolicy,
  matchPolicy,
  mismatchedClaims,
  onlyDeactivates,
  replayKeyOf,
} from '../../src/trust/rules.ts'
import { audience, github, gitlab, releases, run } from './trust-fixture.ts'

const now = '2026-03-01T12:00:00.000Z'
const at = Date.parse(now) / 1000
const made = (more: object = {}) =>
  makePolicy({ ...releases, orgId: 'bakery', status: 'active', ...more }, { id: newId(), by: newId(), now })

describe('the claims of a policy', () => {
  const lasting = (host: string) => ({
    details: [{ path: 'body.claims', message: expect.stringContaining(`names on ${host} can be changed`) }],
  })

  it.each([
    ['GitHub', github, { repository: 'bakery/tills', ref: 'refs/heads/main' }],
    ['GitHub', github, { sub: 'repo:bakery/tills:ref:refs/heads/main' }],
    ['GitHub', `${github}/octo-inc`, { repository: 'bakery/tills' }],
    ['GitLab', gitlab, { project_path: 'bakery/tills', ref: 'main' }],
  ])('of %s include one that nobody else can acquire: %s %j', (host, issuer, claims) => {
    expect(() => made({ issuer, claims })).toThrow(expect.objectContaining({ extras: lasting(host) }))
    const before = made()
    expect(() => applyChange(before, { issuer, claims }, now)).toThrow()
  })

  it.each([
    [github, { repository_owner_id: '65' }],
    [gitlab, { project_id: '20', ref: 'main' }],
    ['https://token.actions.githubusercontent.com.evil.example.com', { repository: 'a/b' }],
    ['https://gitlab.example.com', { project_path: 'bakery/tills' }],
  ])('of other issuers, and permanent ones, are accepted: %s %j', (issuer, claims) => {
    expect(made({ issuer, claims }).claims).toEqual(claims)
  })

  it('that trust everything in a repository cause a warning', () => {
    expect(broadnessWarning(made({ claims: { repository_id: '7' } }))).toContain('Every branch')
    expect(broadnessWarning(made())).toBeUndefined()
    expect(broadnessWarning(made({ issuer: 'https://ci.example.com', claims: { sub: 'a' } }))).toBeUndefined()
  })

  it('are all compared exactly', () => {
    const policy = made()
    expect(mismatchedClaims(policy, run)).toEqual([])
    expect(mismatchedClaims(policy, { ...run, repository_id: '74291848' })).toEqual(['repository_id'])
    expect(mismatchedClaims(policy, { ...run, environment: 'Production', aud: 'other' })).toEqual([
      'audience',
      'environment',
    ])
    const { environment: _, ...without } = run
    expect(mismatchedClaims(policy, without)).toEqual(['environment'])
    expect(mismatchedClaims(made({ claims: { repository_id: '7', constructor: 'x' } }), run)).toContain(
      'constructor',
    )
  })

  it('include a lookup key, the claim shared by the fewest tokens', () => {
    expect(lookupKeyOf(made())).toBe('repository_id=74291847')
    expect(lookupKeyOf(made({ claims: { environment: 'a', repository_owner_id: '65' } }))).toBe(
      'repository_owner_id=65',
    )
    const issuer = 'https://ci.example.com'
    expect(lookupKeyOf(made({ issuer, claims: { a: '1', sub: 'job' } }))).toBe('sub=job')
    expect(lookupKeyOf(made({ issuer, claims: { b: '1', a: '2' } }))).toBe('a=2')
    expect(lookupKeysIn(run)).toContain('repository_id=74291847')
  })

  it('always have a lookup key that a matching token contains', () => {
    const claims = fc.dictionary(
      fc.string({ minLength: 1, maxLength: 9 }).filter((name) => name !== '__proto__'),
      fc.string({ minLength: 1, maxLength: 9 }),
      { minKeys: 1, maxKeys: 9 },
    )
    fc.assert(
      fc.property(claims, (all) => {
        const policy = made({ issuer: 'https://ci.example.com', claims: all })
        expect(lookupKeysIn({ ...all, aud: audience })).toContain(lookupKeyOf(policy))
      }),
    )
  })

  it('may be booleans or whole numbers', () => {
    expect(claimText({ a: true, b: 7, c: 7.5, d: null, e: ['x'] }, 'a')).toBe('true')
    const said = { a: true, b: 7, c: 7.5, d: null, e: ['x'] }
    expect(['b', 'c', 'd', 'e', 'toString'].map((name) => claimText(said, name))).toEqual([
      '7',
      ...Array(4).fill(undefined),
    ])
  })
})

describe('a token', () => {
  it.each([
    [{}, undefined],
    [{ exp: at - 59 }, undefined],
    [{ exp: at - 60 }, 'expired'],
    [{ nbf: at + 60 }, undefined],
    [{ nbf: at + 61 }, 'not_yet_valid'],
    [{ iat: at + 61 }, 'not_yet_valid'],
    [{ iat: at - 3659 }, undefined],
    [{ iat: at - 3660 }, 'too_old'],
    [{ nbf: undefined }, undefined],
    [{ exp: undefined }, 'incomplete'],
    [{ iat: undefined }, 'incomplete'],
    [{ jti: undefined }, 'incomplete'],
    [{ jti: '' }, 'incomplete'],
    [{ jti: 7 }, 'incomplete'],
    [{ exp: Number.POSITIVE_INFINITY }, 'incomplete'],
    [{ exp: '9999999999' }, 'incomplete'],
    [{ nbf: 'soon' }, 'incomplete'],
  ])('with %j has the fault: %s', (more, fault) => {
    const claims = { exp: at + 300, iat: at, nbf: at, jti: 'a', ...more }
    expect(findTokenFault(claims, now)).toBe(fault)
  })

  it('must be for this audience and no other', () => {
    expect([audience, [audience]].map((aud) => hasAudience({ aud }, audience))).toEqual([true, true])
    const others = [
      `${audience}/`,
      audience.toUpperCase(),
      [audience, 'other'],
      [],
      undefined,
      { 0: audience },
    ]
    expect(others.map((aud) => hasAudience({ aud }, audience))).toEqual(others.map(() => false))
  })

  it('is remembered exactly as long as it could be accepted', () => {
    const { hash, until } = replayKeyOf(github, { jti: 'a', iat: at, exp: at + 1e12 }, now)
    expect(until).toBe('2026-03-01T13:02:00.000Z')
    expect(replayKeyOf(gitlab, { jti: 'a', iat: at }, now).hash).not.toBe(hash)
    expect(findTokenFault({ jti: 'a', iat: at, exp: at + 1e12 }, until)).toBe('too_old')
  })
})

describe('the policy for a token', () => {
  const policies = [made({ name: 'narrow', claims: { repository_id: '7' } }), made(), made({ name: 'later' })]

  it('is the oldest one that matches', () => {
    expect(matchPolicy(policies, run)).toEqual({ policy: policies[1] })
    expect(matchPolicy(policies, { ...run, aud: 'other' })).toEqual({ reason: 'no_policy' })
    expect(matchPolicy([], run)).toEqual({ reason: 'no_policy' })
  })

  it('is undefined if several organizations trust it', () => {
    const stranger = made({ orgId: 'garage' })
    expect(matchPolicy([stranger, ...policies], run)).toEqual({ reason: 'ambiguous' })
    expect(matchPolicy([...policies, stranger], run)).toEqual({ reason: 'ambiguous' })
  })
})

describe('a run', () => {
  it.each([
    [run, 'bakery/tills run 9876543210 attempt 2'],
    [{ project_path: 'bakery/tills', pipeline_id: '11', job_id: '22' }, 'bakery/tills pipeline 11 job 22'],
    [{ project_id: 20, pipeline_id: 11, job_id: 22 }, '20 pipeline 11 job 22'],
    [{ sub: 'system:serviceaccount:ci:builder' }, 'system:serviceaccount:ci:builder'],
    [{ sub: 'x'.repeat(300) }, 'x'.repeat(255)],
    [{ sub: { a: 1 } }, 'without a name'],
  ])('is described as %j', (claims, words) => expect(describeRun(claims)).toBe(words))
})

it.each([
  [{ status: 'inactive' }, true],
  [{ status: 'inactive', name: undefined }, true],
  [{ status: 'inactive', name: 'a' }, false],
  [{ status: 'active' }, false],
  [{}, false],
] as const)('a change to %j only removes access: %s', (change, only) => {
  expect(onlyDeactivates(change)).toBe(only)
})

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { permissions } from '../../src/core/permissions.ts'
import type { ApiKey } from '../../src/credentials/api-keys/contract.ts'
import {
  bucketAt,
  bucketExpiryOf,
  bucketMs,
  grantable,
  leaseSize,
  oldestBucketAt,
  retryAfterSeconds,
} from '../../src/credentials/api-keys/rate-limit-window.ts'
import {
  checkDelegation,
  effectivePermissions,
  newApiKey,
  overlapEnd,
  statusAt,
} from '../../src/credentials/api-keys/rules.ts'

const now = '2026-03-01T12:00:00.000Z'
const before = '2026-03-01T11:59:59.999Z'
const after = '2026-03-01T12:00:00.001Z'

describe('the status of an API key', () => {
  it.each<[ApiKey['status'], string | null, ApiKey['status']]>([
    ['active', null, 'active'],
    ['active', after, 'active'],
    ['active', now, 'expired'],
    ['active', before, 'expired'],
    ['expired', null, 'expired'],
    ['revoked', before, 'revoked'],
    ['revoked', null, 'revoked'],
  ])('stored %s, expiring at %s: %s', (status, expiresAt, expected) => {
    expect(statusAt({ status, expiresAt }, now)).toBe(expected)
  })
})

describe('the permissions of a key', () => {
  const some = new Set(['devices:read', 'devices:write', 'alerts:read'])
  const all = new Set(['*:*'])

  it.each<[string[], ReadonlySet<string>, string[]]>([
    [[], all, []],
    [['devices:read'], some, ['devices:read']],
    [['devices:read', 'scripts:read'], some, ['devices:read']],
    [['devices:read'], new Set(), []],
    [['devices:read', 'scripts:read'], all, ['devices:read', 'scripts:read']],
    [['*'], some, [...some]],
    [['*'], all, ['*:*']],
    [['devices:read'], new Set(['devices:*']), ['devices:read']],
  ])('scopes %j of someone who holds %j are %j', (scopes, held, expected) => {
    expect([...effectivePermissions(scopes, held)]).toEqual(expected)
  })

  it('never exceed those of its creator, whatever the scopes', () => {
    for (const scope of [...permissions, '*']) {
      for (const needed of permissions) {
        const mine = new Set<string>([needed])
        const has = effectivePermissions([scope], mine)
        for (const permission of has) expect(mine.has(permission)).toBe(true)
      }
    }
  })

  it('cannot be delegated by someone who does not hold them', () => {
    expect(() => checkDelegation(['devices:read', 'alerts:read'], some)).not.toThrow()
    expect(() => checkDelegation(['devices:read', 'users:read'], some)).toThrow('"users:read"')
    expect(() => checkDelegation(['*'], new Set(permissions))).toThrow('"*"')
    expect(() => checkDelegation(['*', 'users:read'], all)).not.toThrow()
  })
})

describe('a rotation overlap', () => {
  it.each<[string | null, number, string | null]>([
    [null, 0, null],
    [null, 60, '2026-03-01T12:01:00.000Z'],
    ['2026-03-01T12:00:30.000Z', 60, '2026-03-01T12:00:30.000Z'],
    ['2026-03-01T12:02:00.000Z', 60, '2026-03-01T12:01:00.000Z'],
    ['2026-03-01T12:00:30.000Z', 0, null],
  ])('of a key that expires at %s by %i s ends at %s', (expiresAt, seconds, expected) => {
    expect(overlapEnd([{ expiresAt }, { expiresAt }], seconds, now)).toBe(expected)
  })
})

it('an overlap ends with the key that expires first, before or after the rotation', () => {
  const [soon, late] = ['2026-03-01T12:00:30.000Z', '2026-04-01T12:00:00.000Z'].map((expiresAt) => ({
    expiresAt,
  }))
  expect(overlapEnd([soon!, late!], 60, now)).toBe(soon!.expiresAt)
  expect(overlapEnd([late!, soon!], 60, now)).toBe(soon!.expiresAt)
  expect(overlapEnd([soon!, { expiresAt: null }], 60, now)).toBe(soon!.expiresAt)
})

it('new keys are unique and well-formed', () => {
  const keys = Array.from({ length: 1000 }, newApiKey)
  expect(new Set(keys).size).toBe(1000)
  for (const key of keys) expect(key).toMatch(/^svc_[A-Za-z0-9_-]{32}$/)
})

describe('the rate limit window', () => {
  const hour = 3_600_000

  it('leases at most half a percent, unless more requests are waiting', () => {
    for (const limit of [1, 7, 199, 200, 1000, 99_999, 100_000]) {
      expect(leaseSize(limit, 1)).toBeLessThanOrEqual(Math.max(1, limit / 200))
      expect(leaseSize(limit, 1)).toBeGreaterThanOrEqual(1)
    }
    expect(leaseSize(1000, 40)).toBe(40)
  })

  it.each([
    [10, 0, 3, 3],
    [10, 8, 3, 2],
    [10, 10, 3, 0],
    [10, 12, 3, 0],
  ])('of %i with %i used gives %i wanted %i', (limit, used, wanted, granted) => {
    expect(grantable(limit, used, wanted)).toBe(granted)
  })

  it('gives a retry time at which a request will be allowed', () => {
    expect(retryAfterSeconds({ limit: 1, remaining: 0, reset: 100 }, 40_500)).toBe(60)
    expect(retryAfterSeconds({ limit: 1, remaining: 0, reset: 100 }, 200_000)).toBe(1)
  })

  /** A limit, and the milliseconds between requests. */
  const load = fc.integer({ min: 1, max: 400_000 }).chain((longest) =>
    fc.record({
      limit: fc.integer({ min: 1, max: 60 }),
      gaps: fc.array(fc.integer({ min: 0, max: longest }), { minLength: 1, maxLength: 400, size: 'max' }),
    }),
  )

  it('never admits more than the limit in any hour, and frees capacity at most one bucket late', () => {
    fc.assert(
      fc.property(load, ({ limit, gaps }) => {
        const buckets = new Map<number, number>()
        const passed: number[] = []
        const since = (ms: number) => passed.filter((one) => one > ms).length
        let ms = Date.parse(now)
        for (const gap of gaps) {
          ms += gap
          const counted = [...buckets].filter(([bucket]) => bucket >= oldestBucketAt(ms))
          const used = counted.reduce((sum, [, count]) => sum + count, 0)
          if (grantable(limit, used, 1) === 1) {
            buckets.set(bucketAt(ms), (buckets.get(bucketAt(ms)) ?? 0) + 1)
            passed.push(ms)
            expect(since(ms - hour)).toBeLessThanOrEqual(limit)
          } else {
            // The limit was reached within little more than an hour, so that no refusal was wrong.
            expect(since(ms - hour - bucketMs)).toBeGreaterThanOrEqual(limit)
            const oldest = Math.min(...counted.map(([bucket]) => bucket))
            expect(bucketExpiryOf(oldest)).toBeGreaterThan(ms)
            expect(oldestBucketAt(bucketExpiryOf(oldest))).toBe(oldest + 1)
          }
        }
      }),
    )
  })

  it('has buckets of at most one percent of an hour', () => {
    expect(bucketMs / hour).toBeLessThanOrEqual(0.01)
  })
})

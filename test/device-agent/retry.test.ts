import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ApiError, NetworkError } from '../../src/core/client.ts'
import { backoffMs } from '../../src/device-agent/retry.ts'

const noAnswer = new NetworkError('http://127.0.0.1', 'connection refused')
const limited = (retryAfter: number) =>
  new ApiError(429, { error: 'slow down', code: 'rate_limited', retryAfter })

test('the pause doubles from one second to sixty', () => {
  const pauses = [1, 2, 3, 4, 5, 6, 7, 8, 100, 5000].map((n) => backoffMs(n, noAnswer, () => 0) / 1000)
  expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60, 60])
})

test('jitter shortens a pause by less than a third and never exceeds a minute', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 10_000 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (n, r) => {
        const full = Math.min(60_000, 1000 * 2 ** (n - 1))
        const pause = backoffMs(n, noAnswer, () => r)
        expect(pause).toBeLessThanOrEqual(full)
        expect(pause).toBeGreaterThan(full * 0.69)
      },
    ),
  )
})

test('a requested Retry-After is observed, up to an hour', () => {
  for (const random of [() => 0, () => 0.999]) {
    expect(backoffMs(1, limited(90), random)).toBeGreaterThanOrEqual(90_000)
    expect(backoffMs(1, limited(90), random)).toBeLessThan(99_001)
    expect(backoffMs(1, limited(1e9), random)).toBeLessThan(3_960_001)
  }
  expect(backoffMs(7, limited(1), () => 0)).toBe(60_000)
})

import { expect, it } from 'vitest'
import { relativeTime } from '../../src/cli/times.ts'

const now = Date.parse('2026-03-01T12:00:00.000Z')
const [minute, hour, day] = [60, 3600, 86_400]

it.each([
  [0, 'now'],
  [-59, '59s ago'],
  [-3.9 * hour, '3h ago'],
  [-47 * hour, '47h ago'],
  [-1.99 * day - 3600, '2d ago'],
  [45, 'in 45s'],
  [59 * minute, 'in 1h'],
  // An expiry as it is displayed right after it was set.
  [hour - 2, 'in 1h'],
  [5 * day - 2, 'in 5d'],
  [365 * day - 30, 'in 365d'],
  [4.5 * day, 'in 4d'],
])('an instant %d s from now is %s', (seconds, text) => {
  expect(relativeTime(new Date(now + seconds * 1000).toISOString(), now)).toBe(text)
})

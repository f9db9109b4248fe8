import { hash } from 'node:crypto'
import type { ErrorCode } from '../../core/errors.ts'
import { randomBytes } from '../../core/random.ts'
import { type Instant, later } from '../../core/time.ts'
import type { EnrollmentKey, NewEnrollmentKey } from './contract.ts'

/** 64 hex characters of 32 random bytes (spec, "Enrollment key"). */
export const newEnrollmentKey = (): string => randomBytes(32).toString('hex')

/** Stored form: SHA-256 of the pepper and the raw key. */
export const enrollmentKeyHash = (pepper: string, key: string): string =>
  hash('sha256', `${pepper}:${key}`, 'hex')

export function makeEnrollmentKey(
  wanted: NewEnrollmentKey & { orgId: string },
  made: { id: string; by: string; now: Instant; ttlMinutes: number },
): EnrollmentKey {
  return {
    id: made.id,
    orgId: wanted.orgId,
    siteId: wanted.siteId ?? null,
    name: wanted.name,
    usageCount: 0,
    maxUsage: wanted.maxUsage,
    expiresAt: wanted.expiresAt ?? later(made.now, made.ttlMinutes * 60),
    createdBy: made.by,
    createdAt: made.now,
    lastUsedAt: null,
    lastDeviceId: null,
  }
}

/** Omitted values stay as they are; the count starts again. */
export function rotated(
  key: EnrollmentKey,
  wanted: { maxUsage?: number | null | undefined; expiresAt?: Instant | undefined },
): EnrollmentKey {
  const { maxUsage = key.maxUsage, expiresAt = key.expiresAt } = wanted
  return { ...key, maxUsage, expiresAt, usageCount: 0 }
}

/** Why a key does not enroll now, or undefined when it does. */
export function refusalOf(
  key: Pick<EnrollmentKey, 'usageCount' | 'maxUsage' | 'expiresAt'> | undefined,
  now: Instant,
): ErrorCode | undefined {
  if (!key) return 'enrollment_key_not_found'
  if (key.expiresAt <= now) return 'enrollment_key_expired'
  if (key.maxUsage !== null && key.usageCount >= key.maxUsage) return 'enrollment_key_exhausted'
  return undefined
}

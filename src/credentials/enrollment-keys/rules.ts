import { hash } from 'node:crypto'
import { type ErrorCode, type Fault, invalid, Problem } from '../../core/errors.ts'
import { randomBytes } from '../../core/random.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import type { EnrollmentKeyLimits } from '../../handler.ts'
import { isExpired } from '../rules.ts'
import type { EnrollmentKey, EnrollmentKeyChange, NewEnrollmentKey } from './contract.ts'

/** 64 hex characters of 32 random bytes. */
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
    expiresAt: wanted.expiresAt ?? addSeconds(made.now, made.ttlMinutes * 60),
    createdBy: made.by,
    createdAt: made.now,
    lastUsedAt: null,
    lastDeviceId: null,
  }
}

/** Whoever has the key of long ago must not find that it works again. @throws invalid_request */
export function checkLive(key: EnrollmentKey, now: Instant): void {
  if (!isExpired(key, now)) return
  const message = 'This enrollment key has expired: rotate it, which replaces the key itself'
  throw invalid([{ path: 'params.id', message }], message)
}

/** Omitted values do not change. */
export const applyChange = (
  key: EnrollmentKey,
  { name = key.name, maxUsage = key.maxUsage, expiresAt = key.expiresAt }: EnrollmentKeyChange,
): EnrollmentKey => ({ ...key, name, maxUsage, expiresAt })

/** The changed fields, before and after. */
export function difference(before: EnrollmentKey, after: EnrollmentKey): { before: object; after: object } {
  const fields = (['name', 'maxUsage', 'expiresAt'] as const).filter(
    (field) => before[field] !== after[field],
  )
  const of = (key: EnrollmentKey) => Object.fromEntries(fields.map((field) => [field, key[field]]))
  return { before: of(before), after: of(after) }
}

/** Omitted values do not change; the count restarts. */
export function rotateKey(
  key: EnrollmentKey,
  wanted: { maxUsage?: number | null | undefined; expiresAt?: Instant | undefined },
): EnrollmentKey {
  const { maxUsage = key.maxUsage, expiresAt = key.expiresAt } = wanted
  return { ...key, maxUsage, expiresAt, usageCount: 0 }
}

/**
 * Limits the key that a workload requests to the shape in its trust policy; other callers have no shape.
 * @throws key_shape_exceeded, naming each field
 */
export function checkShape(
  wanted: { maxUsage?: number | null | undefined; expiresAt?: Instant | undefined },
  shape: EnrollmentKeyLimits | undefined,
  now: Instant,
): void {
  if (!shape) return
  const { maxUsage, expiresAt } = wanted
  const faults: Fault[] = []
  if (maxUsage !== undefined && (maxUsage === null || maxUsage > shape.maxUsage)) {
    faults.push({ path: 'body.maxUsage', message: `must be at most ${shape.maxUsage} by the trust policy` })
  }
  const end = endOf(shape, now)
  if (expiresAt !== undefined && expiresAt > end) {
    const message = `must be within ${shape.maxTtlMinutes} minutes, at ${end}, by the trust policy`
    faults.push({ path: 'body.expiresAt', message })
  }
  if (faults.length > 0) throw new Problem('key_shape_exceeded', undefined, { details: faults })
}

/** Limits a key to the shape: the key that a workload rotates may have been created by a caller without one. */
export function clampToShape(
  key: EnrollmentKey,
  shape: EnrollmentKeyLimits | undefined,
  now: Instant,
): EnrollmentKey {
  if (!shape) return key
  const end = endOf(shape, now)
  const shaped = { ...key, maxUsage: Math.min(key.maxUsage ?? shape.maxUsage, shape.maxUsage) }
  return key.expiresAt <= end ? shaped : { ...shaped, expiresAt: end }
}

const endOf = ({ maxTtlMinutes }: EnrollmentKeyLimits, now: Instant): Instant =>
  addSeconds(now, maxTtlMinutes * 60)

/** Why a key cannot enroll a device now; undefined when it can. */
export function enrollmentRefusal(
  key: Pick<EnrollmentKey, 'usageCount' | 'maxUsage' | 'expiresAt'> | undefined,
  now: Instant,
): ErrorCode | undefined {
  if (!key) return 'enrollment_key_not_found'
  if (isExpired(key, now)) return 'enrollment_key_expired'
  if (key.maxUsage !== null && key.usageCount >= key.maxUsage) return 'enrollment_key_exhausted'
  return undefined
}

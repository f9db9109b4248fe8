import { invalid } from '../core/errors.ts'
import type { Instant } from '../core/time.ts'

/** null: a key that does not expire. */
export const isExpired = ({ expiresAt }: { expiresAt: Instant | null }, now: Instant): boolean =>
  expiresAt !== null && expiresAt <= now

/** @throws invalid_request when a new key would already be expired */
export function checkExpiry(expiresAt: Instant | null | undefined, now: Instant): void {
  if (!isExpired({ expiresAt: expiresAt ?? null }, now)) return
  throw invalid([{ path: 'body.expiresAt', message: 'must be in the future' }])
}

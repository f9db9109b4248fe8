import type { Instant } from '../../core/time.ts'
import { emit } from '../../events/outbox.ts'
import type { Db } from '../../storage/open.ts'

/*
 * Events to an organization's webhooks about its members. A user who acts for a partner or the service is not a
 * member.
 */

type Person = { id: string; email: string }

export async function emitLogin(
  db: Db,
  { id: userId, email }: Person,
  orgId: string | null,
  { method, mfa, ip: ipAddress, now }: { method: string; mfa: boolean; ip: string; now: Instant },
): Promise<void> {
  await emit(db, { orgId, type: 'user.login', data: { userId, email, method, mfa, ipAddress } }, now)
}

export async function emitLogout(
  db: Db,
  { id: userId, email }: Person,
  orgId: string | null,
  { mfa, ip: ipAddress, now }: { mfa: boolean; ip: string; now: Instant },
): Promise<void> {
  await emit(db, { orgId, type: 'user.logout', data: { userId, email, mfa, ipAddress } }, now)
}

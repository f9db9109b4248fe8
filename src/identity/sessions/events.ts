import type { Instant } from '../../core/time.ts'
import { emit } from '../../events/outbox.ts'
import type { Db } from '../../storage/open.ts'

/* What the webhooks of an organization hear of its members: who acts for a partner, or the service, is none. */

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

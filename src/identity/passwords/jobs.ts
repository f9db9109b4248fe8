import type { Cipher } from '../../core/cipher.ts'
import { addSeconds, type Clock } from '../../core/time.ts'
import { resetLink } from '../../messages/links.ts'
import { queueMail } from '../../messages/queue.ts'
import { passwordReset } from '../../messages/templates.ts'
import { isLockTimeout, isOutage } from '../../storage/database-errors.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { newToken, tokenHash } from '../sessions/tokens.ts'
import { isResetUnusable } from '../sso-only.ts'
import { findUserByKey, type User } from '../store.ts'
import { resetMinutes } from './rules.ts'
import { claimResetRequest, deleteResetRequest, hasResetRequest, saveReset } from './store.ts'

export type ResetDependencies = {
  storage: Storage
  cipher: Cipher
  clock: Clock
  publicUrl: () => string
  /** Called in the transaction that creates a link, to record it. */
  onIssued(tx: Db, user: User, now: string): Promise<void>
}

/**
 * Creates the requested links. It runs after the reply, so that its timing does not reveal whether an address
 * has an account. A request for which no link can be created is dropped and the failure reported; the person
 * can request again.
 */
export async function issueResets(on: ResetDependencies): Promise<void> {
  const { storage } = on
  if (!(await hasResetRequest(storage.read))) return
  const failures: unknown[] = []
  let at = ''
  for (;;) {
    const last = at
    try {
      const isTaken = await storage.write((tx) => issueNext(tx, on, last, (id) => (at = id)))
      if (!isTaken) break
    } catch (error) {
      if ((isOutage(error) && !isLockTimeout(error)) || at === last) throw error
      failures.push(error)
      // It is tried again the next time.
      if (isLockTimeout(error)) continue
      const id = at
      await storage.write((tx) => deleteResetRequest(tx, id)).catch((again) => failures.push(again))
    }
  }
  if (failures.length > 0) throw failures[0]
}

async function issueNext(
  tx: Db,
  on: ResetDependencies,
  last: string,
  onTaken: (id: string) => void,
): Promise<boolean> {
  const request = await claimResetRequest(tx, last, onTaken)
  if (!request) return false
  const user = await findUserByKey(tx, request.emailKey)
  // A single sign-on user has no password, and an invited person has a link of their own.
  if (user?.status !== 'active' || (await isResetUnusable(tx, user))) return true
  const now = on.clock()
  const expiresAt = addSeconds(now, resetMinutes * 60)
  const token = newToken()
  await saveReset(tx, { userId: user.id, tokenHash: tokenHash(token), expiresAt })
  const { email: to, name } = user
  const url = resetLink(on.publicUrl(), token)
  await queueMail(tx, on.cipher, passwordReset({ to, name, url, minutes: resetMinutes }), now, expiresAt)
  await on.onIssued(tx, user, now)
  return true
}

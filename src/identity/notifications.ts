import type { Cipher } from '../core/cipher.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import { queueMail } from '../messages/queue.ts'
import { factorsChanged, passwordChanged } from '../messages/templates.ts'
import type { Db } from '../storage/open.ts'

type Owner = { email: string; name: string }

/** A notification about a change is useless a day later. */
const liveSeconds = 24 * 3600

/** Notifies the owner of an account that their factors changed; `what` is a sentence. */
export function notifyFactorsChanged(
  db: Db,
  cipher: Cipher,
  owner: Owner,
  what: string,
  now: Instant,
): Promise<void> {
  const mail = factorsChanged({ to: owner.email, name: owner.name, what, at: now })
  return queueMail(db, cipher, mail, now, addSeconds(now, liveSeconds))
}

/** Notifies the owner of an account that its password changed. */
export function notifyPasswordChanged(db: Db, cipher: Cipher, owner: Owner, now: Instant): Promise<void> {
  const mail = passwordChanged({ to: owner.email, name: owner.name, at: now })
  return queueMail(db, cipher, mail, now, addSeconds(now, liveSeconds))
}

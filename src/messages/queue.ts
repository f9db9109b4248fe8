import type { Cipher } from '../core/cipher.ts'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import type { MailMessage } from './ports.ts'
import { mailContext } from './rules.ts'
import { insertMail } from './store.ts'

/**
 * Queues a mail in the transaction of its cause: it is sent after the commit, and not after a rollback. It is encrypted,
 * because it may contain a link that sets a password. A mail that could not be sent by `expiresAt` is dropped.
 */
export async function queueMail(
  db: Db,
  cipher: Cipher,
  letter: MailMessage,
  now: Instant,
  expiresAt: Instant,
): Promise<void> {
  const id = newId()
  const content = cipher.encrypt(JSON.stringify(letter), mailContext(id))
  await insertMail(db, { id, kind: letter.kind, content, now, expiresAt })
}

import type { Cipher } from '../core/cipher.ts'
import { newId } from '../core/new-id.ts'
import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import type { MailMessage } from './ports.ts'
import { mailContext } from './rules.ts'
import { insertMail } from './store.ts'

/**
 * Puts a letter among those to be sent, in the transaction of what causes it: sent when that is committed,
 * and not when it is not. It is sealed, since it may hold a link that sets a password. What could not be sent
 * by `expiresAt` is dropped.
 */
export async function queueMail(
  db: Db,
  cipher: Cipher,
  letter: MailMessage,
  now: Instant,
  expiresAt: Instant,
): Promise<void> {
  const id = newId()
  const content = cipher.seal(JSON.stringify(letter), mailContext(id))
  await insertMail(db, { id, kind: letter.kind, content, now, expiresAt })
}

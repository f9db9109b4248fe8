import type { Cipher } from '../core/cipher.ts'
import { newId } from '../core/new-id.ts'
import { addSeconds, type Clock, type Instant } from '../core/time.ts'
import { writeLeavingLocked } from '../storage/bisect-writes.ts'
import { lacksCurrentKey } from '../storage/key-check.ts'
import type { Db, Storage } from '../storage/open.ts'
import type { Mailer, MailMessage } from './ports.ts'
import { batch, leaseSeconds, mailContext, nextAttempt } from './rules.ts'
import * as store from './store.ts'

/** What is reported about a mail that could not be sent: neither its content nor its recipient. */
export type MailFailure = { mail: string; kind: string; attempt: number; reason: string; givenUp: boolean }

export type MailSenderOptions = {
  storage: Storage
  cipher: Cipher
  mailer: Mailer
  clock: Clock
  onFailure(failure: MailFailure): void
}

/**
 * Sends some of the due mails; false when there were none. Several processes may do so concurrently. A mail whose
 * sender dies is sent again when its claim expires, so it may arrive twice, with the same id.
 */
export async function sendDueMails(on: MailSenderOptions): Promise<boolean> {
  const { storage, clock } = on
  const now = clock()
  if (!(await store.isMailDue(storage.read, now))) return false
  const lease = newId()
  const until = addSeconds(now, leaseSeconds)
  const claim = (tx: Db, some: readonly string[]) => store.claimMails(tx, some, { lease, now, until })
  const { done, refused } = await writeLeavingLocked(storage, await listDue(on, now), claim)
  const mails = done.flat()
  const outcomes = await Promise.allSettled(mails.map((mail) => deliver(on, mail, lease)))
  const failed = outcomes.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  const failures = [...refused.map(({ error }) => error), ...failed]
  if (failures.length > 0) throw failures[0]
  return mails.length > 0
}

/** Mails encrypted with a key that only other processes have are left to them. */
async function listDue({ storage: { read }, cipher }: MailSenderOptions, now: Instant): Promise<string[]> {
  const found = await store.listDueMails(read, now, { limit: batch })
  const isOwn = found.every(({ content }) => cipher.knows(content))
  const { marks } = cipher
  const due =
    isOwn || !(await lacksCurrentKey(read, cipher))
      ? found
      : await store.listDueMails(read, now, { marks, limit: batch })
  return due.map(({ id }) => id)
}

async function deliver(on: MailSenderOptions, mail: store.Mail, lease: string): Promise<void> {
  const { storage, clock } = on
  const { id, kind, attempts: attempt, expiresAt } = mail
  const outcome = expiresAt > clock() ? await attempted(on, mail) : 'expired'
  if (outcome === 'sent') return storage.write((tx) => store.removeMail(tx, { id, lease }))
  const dueAt = nextAttempt(clock(), attempt)
  const givenUp = outcome === 'expired' || dueAt >= expiresAt
  await storage.write((tx) =>
    givenUp ? store.removeMail(tx, { id, lease }) : store.postponeMail(tx, { id, lease, dueAt }),
  )
  on.onFailure({ mail: id, kind, attempt, reason: outcome, givenUp })
}

/** `sent`, or the reason for the failure. */
async function attempted(
  { cipher, mailer }: MailSenderOptions,
  { id, content }: store.Mail,
): Promise<string> {
  const letter = cipher.tryDecrypt(content, mailContext(id))
  if (letter === undefined) return 'encrypted with another key'
  try {
    await mailer.send(JSON.parse(letter) as MailMessage, id)
    return 'sent'
  } catch (error) {
    return reasonOf(error)
  }
}

/** Codes only: texts of mail servers often repeat the address. */
function reasonOf(error: unknown): string {
  const { code, responseCode, name } = error as { code?: string; responseCode?: number; name?: string }
  return [code ?? name ?? 'unknown', responseCode].filter(Boolean).join(' ')
}

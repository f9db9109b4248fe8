import type { Instant } from '../core/time.ts'
import { isEncryptedWith } from '../storage/key-check.ts'
import type { Db } from '../storage/open.ts'
import { countRowsOf } from '../storage/query/counts.ts'
import { forUpdate } from '../storage/query/locks.ts'
import { prepared } from '../storage/query/prepared.ts'

/* Mail belongs to no tenant: only the sender reads it here. */

const insertion = prepared(
  (db, p: { id: string; kind: string; content: string; now: Instant; expiresAt: Instant }) =>
    db.insertInto('mails').values({
      id: p.id,
      kind: p.kind,
      content: p.content,
      attempts: 0,
      due_at: p.now,
      lease: null,
      expires_at: p.expiresAt,
      created_at: p.now,
    }),
)

export async function insertMail(
  db: Db,
  mail: { id: string; kind: string; content: string; now: Instant; expiresAt: Instant },
): Promise<void> {
  await insertion(db, mail)
}

const anyDue = prepared((db, p: { now: Instant }) =>
  db.selectFrom('mails').select('id').where('due_at', '<=', p.now).orderBy('due_at').limit(1),
)

/** Checked after every commit, so that nothing is written unless something is due. */
export const isMailDue = async (db: Db, now: Instant): Promise<boolean> =>
  (await anyDue(db, { now })).length > 0

/** Mails that are due, counting at most `max`, and since when the first of them is. */
export async function countDueMails(
  db: Db,
  now: Instant,
  max: number,
): Promise<{ count: number; oldest: Instant | undefined }> {
  const due = db.selectFrom('mails').where('due_at', '<=', now).orderBy('due_at')
  const count = await countRowsOf(db.selectFrom(due.select('id').limit(max).as('due')))
  const first = await due.select('due_at').limit(1).executeTakeFirst()
  return { count, oldest: first?.due_at }
}

export type Mail = { id: string; kind: string; content: string; attempts: number; expiresAt: Instant }

/** The due mails; with `marks` those encrypted with these keys, and expired ones. */
export function listDueMails(
  db: Db,
  now: Instant,
  { marks, limit }: { marks?: readonly string[]; limit: number },
): Promise<{ id: string; content: string }[]> {
  return db
    .selectFrom('mails')
    .select(['id', 'content'])
    .where('due_at', '<=', now)
    .$if(marks !== undefined, (q) =>
      q.where((eb) => eb.or([isEncryptedWith(marks!, 'content'), eb('expires_at', '<=', now)])),
    )
    .orderBy('due_at')
    .orderBy('id')
    .limit(limit)
    .execute()
}

/** Claims those of these mails that are due, until `until`; no other process claims them meanwhile. */
export async function claimMails(
  db: Db,
  ids: readonly string[],
  claim: { lease: string; now: Instant; until: Instant },
): Promise<Mail[]> {
  const due = db
    .selectFrom('mails')
    .select(['id', 'kind', 'content', 'attempts', 'expires_at as expiresAt'])
    .where('id', 'in', ids)
    .where('due_at', '<=', claim.now)
    .orderBy('id')
  const mails = await forUpdate(due, { skipLocked: true }).execute()
  if (mails.length === 0) return []
  await db
    .updateTable('mails')
    .set((eb) => ({ lease: claim.lease, due_at: claim.until, attempts: eb('attempts', '+', 1) }))
    .where(
      'id',
      'in',
      mails.map(({ id }) => id),
    )
    .execute()
  return mails.map((mail) => ({ ...mail, attempts: mail.attempts + 1 }))
}

const removal = prepared((db, p: { id: string; lease: string }) =>
  db.deleteFrom('mails').where('id', '=', p.id).where('lease', '=', p.lease),
)

/** Deletes a mail that was sent or given up. Does nothing when the claim was lost meanwhile. */
export async function removeMail(db: Db, mail: { id: string; lease: string }): Promise<void> {
  await removal(db, mail)
}

/** Releases a mail, to be tried again at `dueAt`. */
export async function postponeMail(
  db: Db,
  { id, lease, dueAt }: { id: string; lease: string; dueAt: Instant },
): Promise<void> {
  await db
    .updateTable('mails')
    .set({ lease: null, due_at: dueAt })
    .where('id', '=', id)
    .where('lease', '=', lease)
    .execute()
}

/** A phone number has one code: a new one replaces the one before. */
export async function savePhoneCode(
  db: Db,
  { phoneNumber, codeHash, expiresAt }: { phoneNumber: string; codeHash: string; expiresAt: Instant },
): Promise<void> {
  const code = { code_hash: codeHash, tries: 0, expires_at: expiresAt }
  await db
    .insertInto('phone_codes')
    .values({ phone_number: phoneNumber, ...code })
    .onConflict((c) => c.column('phone_number').doUpdateSet(code))
    .execute()
}

/** Counts a try in any case, and deletes the code when it is correct. */
export async function tryPhoneCode(
  db: Db,
  {
    phoneNumber,
    codeHash,
    tries,
    now,
  }: { phoneNumber: string; codeHash: string; tries: number; now: Instant },
): Promise<boolean> {
  const [tried] = await db
    .updateTable('phone_codes')
    .set((eb) => ({ tries: eb('tries', '+', 1) }))
    .where('phone_number', '=', phoneNumber)
    .where('tries', '<', tries)
    .where('expires_at', '>', now)
    .returning('code_hash as codeHash')
    .execute()
  if (tried?.codeHash !== codeHash) return false
  await db.deleteFrom('phone_codes').where('phone_number', '=', phoneNumber).execute()
  return true
}

export async function sweepPhoneCodes(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('phone_codes').where('expires_at', '<=', now).execute()
}

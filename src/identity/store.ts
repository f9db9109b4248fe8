import { foldEmail, normalizeEmail } from '../core/email.ts'
import { Problem } from '../core/errors.ts'
import { addSeconds, type Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { equalsText } from '../storage/query/expressions.ts'
import { forKeyShare, forUpdate } from '../storage/query/locks.ts'
import { prepared } from '../storage/query/prepared.ts'
import { rowsOf, type Value } from '../storage/schema/rows.ts'
import type { UserRow } from '../storage/schema/tables.ts'

/*
 * Accounts are above the tenants: a person may belong to several. Their membership (memberships.ts) decides
 * what they may see, and every query below is by the person's own id or e-mail.
 */

const userRows = rowsOf<UserRow>()({ flags: ['is_system', 'phone_verified'] })

export type User = Value<UserRow, never, 'is_system' | 'phone_verified'>

const userById = prepared((db, p: { id: string }) =>
  db.selectFrom('users').selectAll().where('id', '=', p.id),
)
const userByEmail = prepared((db, p: { key: string }) =>
  db.selectFrom('users').selectAll().where('email_key', '=', p.key),
)

export async function findUser(db: Db, id: string): Promise<User | undefined> {
  const [row] = await userById(db, { id })
  return row && userRows.read(row)
}

/** The user of a session that was just checked. @throws invalid_token when they were deleted */
export async function getUser(db: Db, id: string): Promise<User> {
  const user = await findUser(db, id)
  if (!user) throw new Problem('invalid_token')
  return user
}

export function findUserByEmail(db: Db, email: string): Promise<User | undefined> {
  return findUserByKey(db, foldEmail(email))
}

/** `key`: an address folded by `foldEmail`. */
export async function findUserByKey(db: Db, key: string): Promise<User | undefined> {
  const [row] = await userByEmail(db, { key })
  return row && userRows.read(row)
}

export async function hasUsers(db: Db): Promise<boolean> {
  return (await db.selectFrom('users').select('id').limit(1).executeTakeFirst()) !== undefined
}

type NewUser = {
  id: string
  email: string
  name: string
  passwordHash: string | null
  isSystem?: boolean
  status?: string
  emailProvedAt?: Instant | null
}

export async function insertUser(db: Db, user: NewUser, now: Instant): Promise<void> {
  await db.insertInto('users').values(newRow(user, now)).execute()
}

/**
 * Does nothing when an account with this e-mail exists, even one created at the same time; that one is locked until the
 * transaction ends, so that `sweepInvited` does not delete it.
 */
export async function insertUserOnce(db: Db, user: NewUser, now: Instant): Promise<void> {
  const row = newRow(user, now)
  // The account may be deleted between the two.
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    await db
      .insertInto('users')
      .values(row)
      .onConflict((c) => c.column('email_key').doNothing())
      .execute()
    // Of an account that other tenants use: its sign-ins go on.
    const found = db.selectFrom('users').select('id').where('email_key', '=', row.email_key)
    if (await forKeyShare(found).executeTakeFirst()) return
  }
}

function newRow(user: NewUser, now: Instant): UserRow {
  const { id, email, name, passwordHash, isSystem = false, status = 'active', emailProvedAt = null } = user
  return {
    id,
    // Mail goes to the address as typed, with letter case preserved.
    email: normalizeEmail(email),
    email_key: foldEmail(email),
    name,
    status,
    avatar_url: null,
    is_system: isSystem ? 1 : 0,
    password_hash: passwordHash,
    password_changed_at: passwordHash === null ? null : now,
    failed_logins: 0,
    locked_until: null,
    auth_epoch: 1,
    mfa_epoch: 1,
    mfa_method: null,
    totp_secret: null,
    totp_step: 0,
    phone_number: null,
    phone_verified: 0,
    last_login_at: null,
    email_proved_at: emailProvedAt,
    created_at: now,
    updated_at: now,
  }
}

/** Accounts that nobody ever used, and that no tenant invites any more. */
const abandoned = (db: Db, before: Instant) =>
  db
    .selectFrom('users')
    .select('users.id')
    .where(equalsText('users.status', 'invited'))
    .where('users.password_hash', 'is', null)
    .where('users.last_login_at', 'is', null)
    .where('users.is_system', '=', 0)
    .where('users.created_at', '<', before)
    .where(({ not, exists, selectFrom }) => {
      const partners = selectFrom('partner_memberships as m').select('m.id')
      return not(exists(partners.whereRef('m.user_id', '=', 'users.id')))
    })
    .where(({ not, exists, selectFrom }) => {
      const organizations = selectFrom('organization_memberships as m').select('m.id')
      return not(exists(organizations.whereRef('m.user_id', '=', 'users.id')))
    })

/** Deletes accounts that were only ever invited, a day after their creation at the earliest. */
export async function sweepInvited(db: Db, now: Instant): Promise<void> {
  const before = addSeconds(now, -86_400)
  const found = await forUpdate(abandoned(db, before).limit(1000), { skipLocked: true }).execute()
  const ids = found.map(({ id }) => id)
  if (ids.length === 0) return
  // Looked up again: a membership may have been committed before the rows were locked, and none can be since.
  const still = abandoned(db, before).where('users.id', 'in', ids)
  await db.deleteFrom('users').where('id', 'in', still).execute()
}

/** Records when it was proved that the account's holder reads the mail of its address. */
export async function markEmailProved(db: Db, userId: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set({ email_proved_at: now })
    .where('id', '=', userId)
    .where('email_proved_at', 'is', null)
    .execute()
}

/** Revokes sessions; the caller says which. What is revoked keeps the time when it was. */
export const revokingSessions = (db: Db, now: Instant) =>
  db.updateTable('sessions').set({ revoked_at: now }).where('revoked_at', 'is', null)

/** Ends every session of a person at once: tokens carry the epoch they were made in. */
export async function endSessions(db: Db, userId: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set((eb) => ({ auth_epoch: eb('auth_epoch', '+', 1), updated_at: now }))
    .where('id', '=', userId)
    .execute()
  await revokeSessions(db, userId, now)
}

/** Revokes every session of a person, and ends their sign-ins that wait for a second step or were approved for a terminal. */
export async function revokeSessions(db: Db, userId: string, now: Instant): Promise<void> {
  await revokingSessions(db, now).where('user_id', '=', userId).execute()
  for (const table of ['login_challenges', 'device_authorizations'] as const) {
    await db.deleteFrom(table).where('user_id', '=', userId).execute()
  }
}

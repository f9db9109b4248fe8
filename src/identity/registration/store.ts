import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'

/** `content` is encrypted. */
type PendingRegistration = { tokenHash: string; content: string; expiresAt: Instant }

export async function insertRegistration(
  db: Db,
  { tokenHash, content, expiresAt }: PendingRegistration,
): Promise<void> {
  const row = { token_hash: tokenHash, content, expires_at: expiresAt }
  await db.insertInto('registrations').values(row).execute()
}

/** The content, for the one request that consumes it; undefined for a wrong, used or expired token. */
export async function consumeRegistration(
  db: Db,
  tokenHash: string,
  now: Instant,
): Promise<{ content: string } | undefined> {
  return db
    .deleteFrom('registrations')
    .where('token_hash', '=', tokenHash)
    .where('expires_at', '>', now)
    .returning('content')
    .executeTakeFirst()
}

/** Slugs of live partners that a new one could collide with. */
export async function listTakenSlugs(db: Db, slug: string): Promise<Set<string>> {
  const rows = await db
    .selectFrom('partners')
    .select('slug')
    .where('deleted_at', 'is', null)
    .where((eb) => eb.or([eb('slug', '=', slug), eb('slug', 'like', `${slug}-%`)]))
    .execute()
  return new Set(rows.map((row) => row.slug))
}

/** Deletes expired registrations. */
export async function sweepRegistrations(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('registrations').where('expires_at', '<', now).execute()
}

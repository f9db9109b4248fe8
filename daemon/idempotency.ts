import { hash } from 'node:crypto'
import type { Cipher } from '../src/core/cipher.ts'
import { invalid, Problem } from '../src/core/errors.ts'
import { type Instant, later } from '../src/core/time.ts'
import type { Db } from '../src/storage/open.ts'

/** A create that a client may send again: who sent it, under which key, and what it asks. */
export type Attempt = { owner: string; key: string; requestHash: string }

const keptSeconds = 24 * 3600

export function attemptOf(owner: string, key: unknown, route: string, body: unknown): Attempt | undefined {
  if (key === undefined) return undefined
  if (typeof key !== 'string' || key.length === 0 || key.length > 255) {
    throw invalid([{ path: 'headers.idempotency-key', message: 'must have 1 to 255 characters' }])
  }
  return { owner, key, requestHash: hash('sha256', `${route}\n${JSON.stringify(body)}`, 'hex') }
}

/**
 * Runs a create once for a key within 24 hours, in its transaction; a repetition gets the first reply.
 * Replies may hold secrets, so they are kept encrypted.
 * @throws idempotency_mismatch when the key came with another request
 */
export async function once<T>(
  db: Db,
  cipher: Cipher,
  attempt: Attempt,
  now: Instant,
  create: () => Promise<T>,
): Promise<T> {
  const { owner, key, requestHash } = attempt
  const place = `idempotency_keys.reply.${owner}.${key}`
  await db
    .deleteFrom('idempotency_keys')
    .where('owner', '=', owner)
    .where('key', '=', key)
    .where('created_at', '<', later(now, -keptSeconds))
    .execute()
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('idempotency_keys')
    .values({ owner, key, request_hash: requestHash, reply: '', status: 201, created_at: now })
    .onConflict((c) => c.doNothing())
    .executeTakeFirstOrThrow()
  const row = db.selectFrom('idempotency_keys').selectAll().where('owner', '=', owner).where('key', '=', key)
  if (numInsertedOrUpdatedRows !== 1n) {
    const first = await row.executeTakeFirstOrThrow()
    if (first.request_hash !== requestHash) throw new Problem('idempotency_mismatch')
    return JSON.parse(cipher.open(first.reply, place)) as T
  }
  const reply = await create()
  await db
    .updateTable('idempotency_keys')
    .set({ reply: cipher.seal(JSON.stringify(reply), place) })
    .where('owner', '=', owner)
    .where('key', '=', key)
    .execute()
  return reply
}

export async function forgetOldAttempts(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('idempotency_keys').where('created_at', '<', later(now, -keptSeconds)).execute()
}

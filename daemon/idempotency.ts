import { hash } from 'node:crypto'
import type { Cipher } from '../src/core/cipher.ts'
import { type Endpoint, keyRefusal } from '../src/core/endpoint.ts'
import { type Fault, Problem } from '../src/core/errors.ts'
import { newId } from '../src/core/new-id.ts'
import type { Scope } from '../src/core/scope.ts'
import { hasNoControls } from '../src/core/terminal.ts'
import { addSeconds, type Instant } from '../src/core/time.ts'
import type { Caller } from '../src/handler.ts'
import { decryptOrUnavailable } from '../src/storage/key-check.ts'
import type { Db } from '../src/storage/open.ts'
import { findOrg } from '../src/tenancy/organizations/store.ts'
import { decodeHeader } from './header-text.ts'

/**
 * A change that a client may repeat: its owner and context, its key, and a hash of the request. `scope` is
 * the caller's present scope, `id` distinguishes this request from its repetitions.
 */
export type IdempotentAttempt = {
  owner: string
  key: string
  asks: string
  scope: Scope
  id: string
  isClaimed: boolean
}

/** The stored result, completely encrypted: replies contain secrets, and the hash of a request may reveal one. */
type Kept = { asks: string; reach: Scope; orgId: string | null; reply: unknown }

/** The reply of a change, and its organization; null: none. */
export type IdempotentResult = { reply: unknown; orgId: string | null }

const keptSeconds = 24 * 3600

/** How long a key stays claimed by a request that never finished: longer than any request lasts. */
const claimedSeconds = 120

/**
 * The key of a request. A key that would not be honored is a fault: the client relies on it, and would repeat
 * a request that must not happen twice.
 */
export function readIdempotencyKey(entry: Endpoint, said: unknown, faults: Fault[]): string | undefined {
  if (said === undefined) return undefined
  const refusal = keyRefusal(entry)
  const key = typeof said === 'string' ? decodeHeader(said) : ''
  const wrong = (message: string) => faults.push({ path: 'headers.idempotency-key', message })
  if (refusal !== undefined) wrong(`Idempotency-Key is not honored here, leave it out: ${refusal}`)
  else if (key.length === 0 || key.length > 255) wrong('must have 1 to 255 characters')
  else if (!hasNoControls(key)) wrong('must not have control characters')
  return key
}

export function attemptOf(
  caller: Caller,
  request: { key: string | undefined; ip: string; scope: Scope; route: string; input: unknown },
): IdempotentAttempt | undefined {
  const { key, ip, scope, route, input } = request
  if (key === undefined) return undefined
  const asks = hash('sha256', `${route}\n${JSON.stringify(input)}`, 'hex')
  return { owner: ownerOf(caller, ip, scope), key, asks, scope, id: newId(), isClaimed: false }
}

/**
 * The same person in two tenants is two owners, so that replies do not cross tenants. Callers of public endpoints
 * are identified by their address alone; they can get again only the reply to the same request.
 */
function ownerOf(caller: Caller, ip: string, scope: Scope): string {
  if (caller.kind === 'nobody') return `nobody at ${ip}`
  if (caller.kind === 'agent') return `agent ${caller.deviceId} ${caller.role}`
  return `${caller.kind} ${caller.id} in ${contextOf(scope)}`
}

/** The tenant of a scope. */
export function contextOf(scope: Scope): string {
  if (scope.kind === 'system') return 'system'
  return scope.kind === 'partner' ? `partner ${scope.partnerId}` : `organization ${scope.orgId}`
}

const encryptionContextOf = ({ owner, key }: IdempotentAttempt) =>
  `idempotency_keys.reply.${owner}.${key}` as const

/**
 * The stored reply of a key within 24 hours, if any, and if its record is still in the caller's scope.
 * @throws idempotency_mismatch when the key came with another request
 * @throws idempotency_in_progress while the first request runs
 * @throws not_found when the created record is no longer in the caller's scope
 * @throws unavailable when only another process can decrypt the reply
 */
export async function findStoredReply(
  db: Db,
  cipher: Cipher,
  attempt: IdempotentAttempt,
  now: Instant,
): Promise<{ reply: unknown } | undefined> {
  const row = await db
    .selectFrom('idempotency_keys')
    .select(['reply', 'created_at'])
    .where('owner', '=', attempt.owner)
    .where('key', '=', attempt.key)
    .where('created_at', '>=', addSeconds(now, -keptSeconds))
    .executeTakeFirst()
  if (!row) return undefined
  if (row.reply === '') {
    if (row.created_at < addSeconds(now, -claimedSeconds)) return undefined
    throw inProgress()
  }
  const reply = await decryptOrUnavailable(db, cipher, row.reply, encryptionContextOf(attempt))
  // The change was made, and is not repeated.
  if (reply === undefined)
    throw new Problem(
      'conflict',
      'This was done before, and its reply cannot be decrypted any more: check the existing records',
    )
  const kept = JSON.parse(reply) as Kept
  if (kept.asks !== attempt.asks) throw new Problem('idempotency_mismatch')
  if (!(await isInReach(db, kept, attempt.scope))) throw new Problem('not_found')
  return { reply: kept.reply }
}

async function isInReach(db: Db, { orgId, reach }: Kept, scope: Scope): Promise<boolean> {
  if (orgId !== null) return (await findOrg(db, scope, orgId)) !== undefined && isAsWide(scope, reach)
  return isAsWide(scope, reach) && seesAsManyOrganizations(scope, reach)
}

/** Whether the scope in an organization is not narrower than it was. */
function isAsWide(now: Scope, then: Scope): boolean {
  if (now.kind !== 'organization' || then.kind !== 'organization') return true
  return holds(now.siteIds, then.siteIds) && holds(now.groupIds, then.groupIds)
}

function seesAsManyOrganizations(now: Scope, then: Scope): boolean {
  if (now.kind !== 'partner' || then.kind !== 'partner') return true
  return holds(...([now.orgs, then.orgs].map((orgs) => (orgs === 'all' ? null : orgs)) as [Ids, Ids]))
}

/** null: all. */
type Ids = readonly string[] | null

const holds = (now: Ids, then: Ids): boolean => now === null || then?.every((id) => now.includes(id)) === true

/**
 * Runs a change once for a key within 24 hours, in its transaction; a repetition gets the first reply. Of two concurrent
 * requests the second waits for the first.
 */
export async function runOnce(
  db: Db,
  cipher: Cipher,
  attempt: IdempotentAttempt,
  now: Instant,
  change: () => Promise<IdempotentResult>,
): Promise<unknown> {
  if (!(await acquireKey(db, attempt, now))) return (await findStoredReply(db, cipher, attempt, now))!.reply
  const { owner, key, asks, scope } = attempt
  const { reply, orgId } = await change()
  const kept: Kept = { asks, reach: scope, orgId, reply }
  await db
    .updateTable('idempotency_keys')
    .set({ reply: cipher.encrypt(JSON.stringify(kept), encryptionContextOf(attempt)) })
    .where('owner', '=', owner)
    .where('key', '=', key)
    .execute()
  return reply
}

/** Claims the key while something irrevocable is sent, such as mail. @throws idempotency_in_progress */
export async function claimKey(db: Db, attempt: IdempotentAttempt, now: Instant): Promise<void> {
  if (!(await acquireKey(db, attempt, now))) throw inProgress()
  attempt.isClaimed = true
}

/** Releases a claim after a failure: a failure does not consume a key. */
export async function releaseKey(db: Db, { owner, key, id }: IdempotentAttempt): Promise<void> {
  await db
    .deleteFrom('idempotency_keys')
    .where('owner', '=', owner)
    .where('key', '=', key)
    .where('request_hash', '=', id)
    .where('reply', '=', '')
    .execute()
}

const inProgress = (): Problem => new Problem('idempotency_in_progress', undefined, { retryAfter: 1 })

/** Whether this request got the key: it was free or expired, or this request claimed it already. */
async function acquireKey(db: Db, { owner, key, id }: IdempotentAttempt, now: Instant): Promise<boolean> {
  await db
    .deleteFrom('idempotency_keys')
    .where('owner', '=', owner)
    .where('key', '=', key)
    .where(({ and, eb, or }) =>
      or([
        eb('created_at', '<', addSeconds(now, -keptSeconds)),
        and([eb('reply', '=', ''), eb('created_at', '<', addSeconds(now, -claimedSeconds))]),
        and([eb('reply', '=', ''), eb('request_hash', '=', id)]),
      ]),
    )
    .execute()
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('idempotency_keys')
    .values({ owner, key, request_hash: id, reply: '', status: 0, created_at: now })
    .onConflict((c) => c.doNothing())
    .executeTakeFirstOrThrow()
  return numInsertedOrUpdatedRows === 1n
}

export async function deleteOldAttempts(db: Db, now: Instant): Promise<void> {
  await db.deleteFrom('idempotency_keys').where('created_at', '<', addSeconds(now, -keptSeconds)).execute()
}

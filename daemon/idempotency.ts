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
 * A change that a client may send again: who sent it and in which context, under which key, and what it asks. `scope` is
 * what the caller sees at this moment, `id` tells this request from its repetitions.
 */
export type IdempotentAttempt = {
  owner: string
  key: string
  asks: string
  scope: Scope
  id: string
  isClaimed: boolean
}

/** What came of it, as it is kept: encrypted as a whole, since replies hold secrets and a hash of a request may tell one. */
type Kept = { asks: string; reach: Scope; orgId: string | null; reply: unknown }

/** What came of a change, and the organization it was in; null: in none. */
export type IdempotentResult = { reply: unknown; orgId: string | null }

const keptSeconds = 24 * 3600

/** How long a key is held by a request that never said how it ended: longer than any goes on. */
const claimedSeconds = 120

/**
 * The key that came with a request. One that would not be honored is a fault: whoever sends it relies on it, and would send
 * again what must not happen twice.
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
 * Somebody in one tenant and the same person in another are two: what one was given is nothing to the other. Who need not
 * say who they are is known by the address alone; all they can be given again is the reply to just what they sent.
 */
function ownerOf(caller: Caller, ip: string, scope: Scope): string {
  if (caller.kind === 'nobody') return `nobody at ${ip}`
  if (caller.kind === 'agent') return `agent ${caller.deviceId} ${caller.role}`
  return `${caller.kind} ${caller.id} in ${contextOf(scope)}`
}

/** The tenant that somebody works in. */
export function contextOf(scope: Scope): string {
  if (scope.kind === 'system') return 'system'
  return scope.kind === 'partner' ? `partner ${scope.partnerId}` : `organization ${scope.orgId}`
}

const placeOf = ({ owner, key }: IdempotentAttempt): string => `idempotency_keys.reply.${owner}.${key}`

/**
 * The reply that a key got within 24 hours, when it got one, as far as the caller still sees what it is about.
 * @throws idempotency_mismatch when the key came with another request
 * @throws idempotency_in_progress while the first is worked on
 * @throws not_found when what was made is out of the caller's reach by now
 * @throws unavailable when another process can open the reply
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
  const reply = await decryptOrUnavailable(db, cipher, row.reply, placeOf(attempt))
  // It was done, and is not done again.
  if (reply === undefined)
    throw new Problem(
      'conflict',
      'This was done before, and its reply cannot be decrypted any more: look at what there is',
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

/** Whether an organization is not narrowed further than it was. */
function isAsWide(now: Scope, then: Scope): boolean {
  if (now.kind !== 'organization' || then.kind !== 'organization') return true
  return holds(now.siteIds, then.siteIds) && holds(now.groupIds, then.groupIds)
}

function seesAsManyOrganizations(now: Scope, then: Scope): boolean {
  if (now.kind !== 'partner' || then.kind !== 'partner') return true
  return holds(...([now.orgs, then.orgs].map((orgs) => (orgs === 'all' ? null : orgs)) as [Ids, Ids]))
}

/** null: all there are. */
type Ids = readonly string[] | null

const holds = (now: Ids, then: Ids): boolean => now === null || then?.every((id) => now.includes(id)) === true

/**
 * Runs a change once for a key within 24 hours, in its transaction; a repetition gets the first reply. Of two at the same
 * moment the second waits for the first.
 */
export async function runOnce(
  db: Db,
  cipher: Cipher,
  attempt: IdempotentAttempt,
  now: Instant,
  change: () => Promise<IdempotentResult>,
): Promise<unknown> {
  if (!(await taken(db, attempt, now))) return (await findStoredReply(db, cipher, attempt, now))!.reply
  const { owner, key, asks, scope } = attempt
  const { reply, orgId } = await change()
  const kept: Kept = { asks, reach: scope, orgId, reply }
  await db
    .updateTable('idempotency_keys')
    .set({ reply: cipher.seal(JSON.stringify(kept), placeOf(attempt)) })
    .where('owner', '=', owner)
    .where('key', '=', key)
    .execute()
  return reply
}

/** Holds the key while something is sent that no transaction takes back. @throws idempotency_in_progress */
export async function claimKey(db: Db, attempt: IdempotentAttempt, now: Instant): Promise<void> {
  if (!(await taken(db, attempt, now))) throw inProgress()
  attempt.isClaimed = true
}

/** Of a claim that came to nothing: a failure does not use a key up. */
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

/** Whether the key is this request's: nobody had it, it is forgotten, or this request holds it already. */
async function taken(db: Db, { owner, key, id }: IdempotentAttempt, now: Instant): Promise<boolean> {
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

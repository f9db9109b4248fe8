import type { Cipher } from '../../core/cipher.ts'
import { systemScope } from '../../core/scope.ts'
import { addSeconds, type Instant } from '../../core/time.ts'
import { assertHasKey, decryptOrUnavailable } from '../../storage/key-check.ts'
import type { Db } from '../../storage/open.ts'
import { rowsOf, type Value } from '../../storage/schema/rows.ts'
import type { SsoExchangeRow, SsoSessionRow } from '../../storage/schema/tables.ts'
import type { AssertedIdentity } from '../asserted-identity.ts'
import type { ProviderRecord } from '../rules.ts'
import { getProvider, undefinedIfMissing } from '../store.ts'

/* The state or the code is the credential here: its bearer is in no tenant yet. */

const signInRows = rowsOf<SsoSessionRow>()()
const exchangeRows = rowsOf<SsoExchangeRow>()({ flags: ['mfa'] })

/** A pending sign-in. */
export type SignIn = Value<SsoSessionRow>
export type Exchange = Value<SsoExchangeRow, never, 'mfa'>

const verifierAad = (stateHash: string) => `sso_sessions.code_verifier.${stateHash}` as const

export async function insertSignIn(db: Db, cipher: Cipher, signIn: SignIn): Promise<void> {
  const codeVerifier = cipher.encrypt(signIn.codeVerifier, verifierAad(signIn.stateHash))
  await db
    .insertInto('sso_sessions')
    .values(signInRows.write({ ...signIn, codeVerifier }))
    .execute()
}

/** Consumes a sign-in, for one request only. @throws unavailable where the keys that it needs are not available */
export async function consumeSignIn(db: Db, cipher: Cipher, stateHash: string): Promise<SignIn | undefined> {
  const row = await db
    .deleteFrom('sso_sessions')
    .where('state_hash', '=', stateHash)
    .returningAll()
    .executeTakeFirst()
  const codeVerifier =
    row && (await decryptOrUnavailable(db, cipher, row.code_verifier, verifierAad(stateHash)))
  // A sign-in that began with another key has to begin again.
  if (codeVerifier === undefined) return undefined
  const signIn = signInRows.read(row!)
  const provider = await findProvider(db, cipher, signIn.providerId)
  if (provider) await requireSecret(db, cipher, provider)
  return { ...signIn, codeVerifier }
}

/** @throws unavailable when other processes can decrypt the provider's secret and this one cannot */
export async function requireSecret(
  db: Db,
  cipher: Cipher,
  { unreadableSecret }: ProviderRecord,
): Promise<void> {
  if (unreadableSecret !== null) await assertHasKey(db, cipher, unreadableSecret)
}

/** The provider of a sign-in; undefined when it was deleted. */
export const findProvider = (db: Db, cipher: Cipher, id: string): Promise<ProviderRecord | undefined> =>
  undefinedIfMissing(getProvider(db, cipher, systemScope, id))

/** False when the assertion was used before, by any process. */
export async function recordAssertion(db: Db, idHash: string, expiresAt: Instant): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('sso_assertions')
    .values({ id_hash: idHash, expires_at: expiresAt })
    .onConflict((c) => c.column('id_hash').doNothing())
    .executeTakeFirstOrThrow()
  return numInsertedOrUpdatedRows === 1n
}

export type Identity = { id: string; userId: string; externalId: string }

/** The user that a subject of a provider is linked to. */
export async function findIdentity(
  db: Db,
  by: { providerId: string } & ({ externalId: string } | { userId: string }),
): Promise<Identity | undefined> {
  const found = db.selectFrom('sso_identities').where('provider_id', '=', by.providerId)
  const row = await ('externalId' in by
    ? found.where('external_id', '=', by.externalId)
    : found.where('user_id', '=', by.userId)
  )
    .select(['id', 'user_id', 'external_id'])
    .executeTakeFirst()
  return row && { id: row.id, userId: row.user_id, externalId: row.external_id }
}

/** Stores the provider's claims, its tokens encrypted; creates the link if there is none. */
export async function saveIdentity(
  db: Db,
  cipher: Cipher,
  link: {
    id: string
    providerId: string
    userId: string
    email: string
    asserted: AssertedIdentity
    now: Instant
  },
): Promise<void> {
  const { id, providerId, userId, email, asserted, now } = link
  const { accessToken, refreshToken, expiresInSeconds } = asserted.tokens ?? {}
  const encrypt = (column: 'access_token' | 'refresh_token', token: string | null | undefined) =>
    token ? cipher.encrypt(token, `sso_identities.${column}.${id}`) : null
  const claims = {
    email,
    profile: JSON.stringify(asserted.profile),
    access_token: encrypt('access_token', accessToken),
    refresh_token: encrypt('refresh_token', refreshToken),
    token_expires_at: expiresInSeconds ? addSeconds(now, expiresInSeconds) : null,
    last_login_at: now,
    updated_at: now,
  }
  const made = {
    id,
    provider_id: providerId,
    user_id: userId,
    external_id: asserted.subject,
    created_at: now,
  }
  await db
    .insertInto('sso_identities')
    .values({ ...made, ...claims })
    .onConflict((c) => c.column('id').doUpdateSet(claims))
    .execute()
}

export async function insertExchange(db: Db, exchange: Exchange): Promise<void> {
  await db.insertInto('sso_exchanges').values(exchangeRows.write(exchange)).execute()
}

export async function findExchange(db: Db, codeHash: string): Promise<Exchange | undefined> {
  const found = db.selectFrom('sso_exchanges').selectAll().where('code_hash', '=', codeHash)
  const row = await found.executeTakeFirst()
  return row && exchangeRows.read(row)
}

/** True for the one request that uses it. */
export async function consumeExchange(db: Db, codeHash: string): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('sso_exchanges')
    .where('code_hash', '=', codeHash)
    .executeTakeFirstOrThrow()
  return numDeletedRows === 1n
}

/** An invited user who signed in at the provider needs no password. */
export async function activateInvited(db: Db, userId: string, now: Instant): Promise<void> {
  await db
    .updateTable('users')
    .set({ status: 'active', updated_at: now })
    .where('id', '=', userId)
    .where('status', '=', 'invited')
    .execute()
}

/** Deletes expired rows. */
export async function sweepSignIns(db: Db, now: Instant): Promise<void> {
  for (const table of ['sso_sessions', 'sso_exchanges', 'sso_assertions', 'sso_tests'] as const) {
    await db.deleteFrom(table).where('expires_at', '<', now).execute()
  }
}

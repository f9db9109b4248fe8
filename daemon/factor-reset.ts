import { recordAudit, sealPending } from '../src/audit/outbox.ts'
import { toDraftEntry } from '../src/audit/rules.ts'
import { type Cipher, createCipher, encryptionKeyName } from '../src/core/cipher.ts'
import { SetupError } from '../src/core/errors.ts'
import { fold } from '../src/core/fold.ts'
import { type Instant, systemClock } from '../src/core/time.ts'
import { totpAad } from '../src/identity/factors/proof.ts'
import { notifyFactorsChanged } from '../src/identity/notifications.ts'
import { findUserByKey, type User } from '../src/identity/store.ts'
import { clearFactors } from '../src/identity/users/store.ts'
import { assertNoUnfinishedRestore } from '../src/storage/backup/restore-mark.ts'
import { type Db, openStorage } from '../src/storage/open.ts'
import { databaseOf, type KnownKeys, knownKeys } from './config.ts'
import { unmatchedKeys } from './key-fingerprints.ts'

type Flags = { 'data-dir'?: string | undefined; lost?: boolean | undefined }

/**
 * Removes the second factor of a system administrator whose factor no key opens, as after a restore without
 * APP_ENCRYPTION_KEY; with `lost` also of one that works, which its owner has lost while nobody else could remove it. Whoever may
 * run this can write the database anyway; the entry shows that it was done.
 * @throws SetupError where it would not help, or is not needed
 */
export async function resetFactor(email: string, flags: Flags): Promise<{ id: string; email: string }> {
  const lost = flags.lost === true
  const storage = await openStorage({ ...databaseOf(flags), postgres: { statementMs: 0 } })
  try {
    await assertNoUnfinishedRestore(storage)
    const now = systemClock()
    const user = await storage.write(async (tx) => {
      const found = await findUserByKey(tx, fold(email))
      const keys = knownKeys(flags)
      await assertOwnKeys(tx, keys)
      const cipher = cipherOf(keys)
      const account = assertLockedOut(found, { email, cipher, lost })
      await clearFactors(tx, account.id, now)
      // Sent once the service runs: whoever has taken over this machine cannot do it unseen.
      const what = 'Your second factor was removed on the machine of the service, with svc db reset-mfa'
      if (cipher) await notifyFactorsChanged(tx, cipher, account, what, now)
      await recordAudit(tx, entryOf(account, lost, now))
      return account
    })
    await sealPending(storage)
    return { id: user.id, email: user.email }
  } finally {
    await storage.close()
  }
}

/** Other keys open nothing, and say nothing about the factor. */
async function assertOwnKeys(tx: Db, keys: KnownKeys): Promise<void> {
  const used = await tx.selectFrom('key_prints').select(['name', 'print']).execute()
  const missing = unmatchedKeys(used, keys).map(({ name }) => name)
  if (!missing.includes(encryptionKeyName)) return
  throw new SetupError(
    `This database was used with another ${encryptionKeyName}, which may open the factor: give the keys of the service, by secrets.json in its data directory or in the environment`,
  )
}

function assertLockedOut(
  user: User | undefined,
  { email, cipher, lost }: { email: string; cipher: Cipher | undefined; lost: boolean },
): User {
  if (user === undefined || !user.isSystem) {
    throw new SetupError(
      `${email} is no system administrator here: any of them removes the factor of somebody else with svc users reset-mfa`,
    )
  }
  if (user.status !== 'active') throw new SetupError(`${email} cannot sign in: the account is ${user.status}`)
  if (user.mfaMethod === null)
    throw new SetupError(`${email} has no second factor: sign in with the password`)
  if (lost) return user
  const anyway =
    'ask another system administrator for svc users reset-mfa, or, where there is none, repeat this with --lost'
  if (user.mfaMethod !== 'totp' || user.totpSecret === null) {
    throw new SetupError(
      `${email} gets codes by SMS, which need no key: sign in with one. If the phone is lost, ${anyway}`,
    )
  }
  if (cipher?.tryDecrypt(user.totpSecret, totpAad(user.id)) !== undefined) {
    throw new SetupError(
      `The second factor of ${email} opens with the present APP_ENCRYPTION_KEY: sign in with a code or a recovery code. If both are lost, ${anyway}`,
    )
  }
  return user
}

/** Undefined where there is no key of values. */
function cipherOf({ secrets, previous }: KnownKeys): Cipher | undefined {
  const [first, ...others] = [secrets.encryption, previous.encryption].filter((key) => key !== undefined)
  return first === undefined ? undefined : createCipher([first, ...others])
}

const entryOf = ({ id, email, mfaMethod }: User, lost: boolean, now: Instant) =>
  toDraftEntry(
    {
      orgId: null,
      actorType: 'system',
      actorId: null,
      actorEmail: null,
      action: 'user.mfa.reset',
      resourceType: 'user',
      resourceId: id,
      resourceName: email,
      details: { before: { mfaMethod }, offline: true, ...(lost && { lost }) },
      ipAddress: null,
      userAgent: null,
      result: 'success',
    },
    now,
  )

import { hash } from 'node:crypto'
import { join } from 'node:path'
import { localCopiesIn } from '../src/audit/checkpoints/local-copies.ts'
import { encryptionKeyName } from '../src/core/cipher.ts'
import { SetupError } from '../src/core/errors.ts'
import { keyFingerprint } from '../src/core/key-fingerprint.ts'
import type { Instant } from '../src/core/time.ts'
import { hasUsers } from '../src/identity/store.ts'
import { forUpdate } from '../src/storage/dialect.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import type { Config } from './config.ts'

/*
 * A service that starts with other keys than its database was used with works, and opens, verifies and accepts nothing of
 * before. So a print of each key stands in the database, and what does not match it stops the start.
 */

type Keys = Pick<Config, 'secrets' | 'previous' | 'signing' | 'acceptedKeys'>

type Key = {
  name: string
  current: string | Buffer
  /** The one before, which goes on to be used for what it made. */
  previous: string | Buffer | undefined
  /** What nothing but the key of before can do. */
  lost: string
}

const keysOf = ({ secrets, previous, signing }: Keys): Key[] => [
  {
    name: 'JWT_SECRET',
    current: secrets.jwt,
    previous: previous.jwt,
    lost: 'who is signed in is signed out',
  },
  {
    name: encryptionKeyName,
    current: secrets.encryption,
    previous: previous.encryption,
    lost: 'factors and the secrets of webhooks and identity providers do not open',
  },
  {
    name: 'ENROLLMENT_KEY_PEPPER',
    current: secrets.enrollmentPepper,
    previous: previous.enrollmentPepper,
    lost: 'enrollment keys are not known',
  },
  {
    name: 'MFA_RECOVERY_CODE_PEPPER',
    current: secrets.recoveryPepper,
    previous: previous.recoveryPepper,
    lost: 'recovery codes are not known',
  },
  {
    name: 'AUDIT_SIGNING_KEY',
    current: signing.current,
    previous: signing.previous,
    lost: 'what was signed of the audit log verifies with its own public key only',
  },
]

/** What ACCEPT_NEW_KEYS has to say: it accepts these keys, and none that come after them. */
const newKeysId = (keys: Keys): string =>
  hash(
    'sha256',
    keysOf(keys)
      .map(({ name, current }) => keyFingerprint(name, current))
      .join(),
    'hex',
  ).slice(0, 16)

/**
 * Writes down which keys the database is used with from now on, and gives the names of those that changed. Of several
 * processes that start at once with different keys the first one decides.
 * @throws SetupError when one changed and neither the one before is given nor the change was accepted
 */
export function checkKeys(storage: Storage, config: Keys, now: Instant): Promise<string[]> {
  return storage.write(async (tx) => {
    const changed: string[] = []
    const unknown: Key[] = []
    for (const key of keysOf(config)) {
      const print = keyFingerprint(key.name, key.current)
      const known = await knownPrint(tx, key.name, print, now)
      if (known === print) continue
      changed.push(key.name)
      if (key.previous === undefined || known !== keyFingerprint(key.name, key.previous)) unknown.push(key)
      await tx.updateTable('key_prints').set({ print, since: now }).where('name', '=', key.name).execute()
    }
    if (unknown.length > 0 && config.acceptedKeys !== newKeysId(config)) throw refusal(unknown, config)
    return changed
  })
}

/** The keys that the database is used with by now, and that this process was not given: others make what it cannot open. */
export async function missingKeys(db: Db, config: Keys): Promise<string[]> {
  const used = await db.selectFrom('key_prints').select(['name', 'print']).execute()
  const prints = new Map(used.map(({ name, print }) => [name, print]))
  const isLacking = ({ name, current, previous }: Key) => {
    const print = prints.get(name)
    const own = [current, ...(previous === undefined ? [] : [previous])]
    return print !== undefined && own.every((key) => keyFingerprint(name, key) !== print)
  }
  return keysOf(config).flatMap((key) => (isLacking(key) ? key.name : []))
}

/** The one that is written down, and stays locked; where there is none, this one is. */
async function knownPrint(tx: Db, name: string, print: string, since: Instant): Promise<string> {
  const stored = forUpdate(tx.selectFrom('key_prints').select('print').where('name', '=', name))
  const found = await stored.executeTakeFirst()
  if (found) return found.print
  await tx
    .insertInto('key_prints')
    .values({ name, print, since })
    .onConflict((c) => c.column('name').doNothing())
    .execute()
  return (await stored.executeTakeFirstOrThrow()).print
}

function refusal(keys: readonly Key[], config: Keys): SetupError {
  const names = keys.map(({ name }) => name).join(', ')
  const again = keys.map(({ name }) => `${name}_PREVIOUS`).join(' and ')
  return new SetupError(
    `This database was used with other keys: ${names}. Restore secrets.json or the settings of before. ` +
      `A key that is changed on purpose needs ${again}. ` +
      `To go on without them, ACCEPT_NEW_KEYS=${newKeysId(config)} accepts that ${keys.map(({ lost }) => lost).join(', ')}.`,
  )
}

/**
 * A database without anybody is made ready for use, unless the directory tells that there was another one.
 * @throws SetupError
 */
export async function assertDatabaseNotLost(storage: Storage, dataDir: string): Promise<void> {
  if (await hasUsers(storage.read)) return
  const folder = join(dataDir, 'checkpoints')
  const signed = await localCopiesIn(folder).list()
  if (signed.length === 0) return
  throw new SetupError(
    `The database is empty, and ${folder} holds what was signed of another one: restore that database from a backup, or ` +
      `check DATABASE_URL and SVC_DATA_DIR. To begin anew, move ${folder} away.`,
  )
}

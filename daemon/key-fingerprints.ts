import { hash } from 'node:crypto'
import { join } from 'node:path'
import { localCopiesIn } from '../src/audit/checkpoints/local-copies.ts'
import { encryptionKeyName } from '../src/core/cipher.ts'
import { SetupError } from '../src/core/errors.ts'
import { withoutUndefined } from '../src/core/json.ts'
import { keyFingerprint } from '../src/core/key-fingerprint.ts'
import { type SecretName, secretEntryOf } from '../src/core/secret-names.ts'
import type { Instant } from '../src/core/time.ts'
import { hasUsers } from '../src/identity/store.ts'
import type { Db, Storage } from '../src/storage/open.ts'
import { forUpdate } from '../src/storage/query/locks.ts'
import { liveProcesses, type ServiceProcess } from '../src/storage/service-processes.ts'
import type { Config, KnownKeys } from './config.ts'

/*
 * A service that starts with other keys than its database was used with would run, but decrypt, verify and accept nothing from
 * before. So the database stores a fingerprint of each key, and a mismatch stops the start.
 */

type Keys = Pick<Config, 'secrets' | 'previous' | 'signing' | 'acceptedKeys'>

type Key = {
  name: string
  current: string | Buffer
  /** The previous key, still used for values that it created. */
  previous: string | Buffer | undefined
  /** What is lost without the previous key. */
  lost: string
}

const keysOf = ({ secrets, previous, signing }: Omit<Keys, 'acceptedKeys'>): Key[] => [
  {
    name: 'JWT_SECRET',
    current: secrets.jwt,
    previous: previous.jwt,
    lost: 'all sessions end',
  },
  {
    name: encryptionKeyName,
    current: secrets.encryption,
    previous: previous.encryption,
    lost: 'second factors and the secrets of webhooks and identity providers cannot be decrypted',
  },
  {
    name: 'ENROLLMENT_KEY_PEPPER',
    current: secrets.enrollmentPepper,
    previous: previous.enrollmentPepper,
    lost: 'enrollment keys become invalid',
  },
  {
    name: 'MFA_RECOVERY_CODE_PEPPER',
    current: secrets.recoveryPepper,
    previous: previous.recoveryPepper,
    lost: 'recovery codes become invalid',
  },
  {
    name: 'AUDIT_SIGNING_KEY',
    current: signing.current,
    previous: signing.previous,
    lost: 'earlier signatures of the audit log verify only with the former public key',
  },
]

/** The value of ACCEPT_NEW_KEYS: it accepts these keys, and no later ones. */
const newKeysId = (keys: Keys): string =>
  hash(
    'sha256',
    keysOf(keys)
      .map(({ name, current }) => keyFingerprint(name, current))
      .join(),
    'hex',
  ).slice(0, 16)

/** Of the keys of a process by their names: the one that makes new values, then the other one. */
export function fingerprintsOf(config: Keys & Pick<Config, 'metricsToken' | 'previousMetricsToken'>) {
  const { metricsToken, previousMetricsToken: previous } = config
  const tokens =
    metricsToken === undefined ? [] : [{ name: 'METRICS_TOKEN', current: metricsToken, previous }]
  return Object.fromEntries(
    [...keysOf(config), ...tokens].map(({ name, current, previous: other }) => {
      const both = other === undefined ? [current] : [current, other]
      return [name, both.map((key) => keyFingerprint(name, key))]
    }),
  )
}

/**
 * Records the keys that the database is used with, and returns the names of those that changed. Of several
 * processes that start concurrently with different keys the first one decides.
 *
 * `waiting`: keys that a live process does not know yet, so that it could not open what they make. Until it does the former one
 * has to be used (`withFormerKeys`). Who starts announces its keys first: whoever locks the rows later sees what the other did.
 * `taken`: keys that this process has made nothing with before, which counts as a change of theirs from now on.
 * `isSure`: false while processes may be alive that could not announce themselves: then every new key waits.
 * @throws SetupError when one changed, the previous one is not given and the change was not accepted
 */
export function checkKeys(
  storage: Storage,
  config: Keys,
  now: Instant,
  { taken = [], isSure = true }: { taken?: readonly string[]; isSure?: boolean } = {},
): Promise<{ changed: string[]; waiting: string[] }> {
  return storage.write(async (tx) => {
    const changed: string[] = []
    const waiting: string[] = []
    const unknown: Key[] = []
    let processes: ServiceProcess[] | undefined
    for (const key of keysOf(config)) {
      const { name } = key
      const print = keyFingerprint(name, key.current)
      const known = await knownPrint(tx, name, print, now)
      if (known === print) {
        if (taken.includes(name)) await record(tx, name, print, now)
        continue
      }
      if (key.previous === undefined || known !== keyFingerprint(name, key.previous)) unknown.push(key)
      else {
        processes ??= await liveProcesses(tx)
        if (!isSure || processes.some(({ prints }) => !prints[name]?.includes(print))) {
          waiting.push(name)
          continue
        }
      }
      changed.push(name)
      await record(tx, name, print, now)
    }
    if (unknown.length > 0 && config.acceptedKeys !== newKeysId(config)) throw refusal(unknown, config)
    return { changed, waiting }
  })
}

const record = (tx: Db, name: string, print: string, since: Instant) =>
  tx
    .updateTable('key_prints')
    // Never back: what others made with the former key until then still needs it.
    .set(({ eb, ref }) => ({
      print,
      since: eb.case().when('since', '>', since).then(ref('since')).else(since).end(),
    }))
    .where('name', '=', name)
    .execute()

/** The same keys, of which these are known and make nothing yet: the former ones do. */
export function withFormerKeys<C extends Keys>(config: C, names: readonly string[]): C {
  const { secrets, previous, signing } = config
  const result = { ...config, secrets: { ...secrets }, previous: { ...previous } }
  for (const name of names) {
    if (name === 'AUDIT_SIGNING_KEY') {
      result.signing = { ...signing, current: signing.previous!, previous: signing.current }
      continue
    }
    const entry = secretEntryOf[name as Exclude<SecretName, 'AUDIT_SIGNING_KEY' | 'METRICS_TOKEN'>]
    result.secrets[entry] = previous[entry]!
    result.previous[entry] = secrets[entry]
  }
  return result
}

/** Names of the keys whose former one is the one that the database is used with. */
export async function keysAwaitingRollout(db: Db, config: Keys): Promise<string[]> {
  const used = await usedKeys(db)
  return keysOf(config).flatMap(({ name, current, previous }) => {
    const print = used.find((one) => one.name === name)?.print
    if (previous === undefined || print === keyFingerprint(name, current)) return []
    return print === keyFingerprint(name, previous) ? [name] : []
  })
}

const usedKeys = (db: Db): Promise<UsedKey[]> =>
  db.selectFrom('key_prints').select(['name', 'print']).execute()

type UsedKey = { name: string; print: string }

/** Of these keys, those that are neither the one with the recorded fingerprint nor have it as the previous one. */
function lackingIn(keys: readonly Key[], used: readonly UsedKey[]): Key[] {
  const prints = new Map(used.map(({ name, print }) => [name, print]))
  return keys.filter(({ name, current, previous }) => {
    const print = prints.get(name)
    const own = [current, ...(previous === undefined ? [] : [previous])]
    return print !== undefined && own.every((key) => keyFingerprint(name, key) !== print)
  })
}

/** Keys that the database is used with and this process does not have: others create values that it cannot decrypt. */
export async function missingKeys(db: Db, config: Keys): Promise<string[]> {
  return lackingIn(keysOf(config), await usedKeys(db)).map(({ name }) => name)
}

export type UnmatchedKey = Pick<Key, 'name' | 'lost'>

/** Keys that rows with these fingerprints were written with, and that a service with `known` would not have. */
export function unmatchedKeys(
  used: readonly UsedKey[],
  { secrets, previous, signing }: KnownKeys,
): UnmatchedKey[] {
  // No key is empty, so an empty one matches no fingerprint.
  const none = { jwt: '', encryption: '', enrollmentPepper: '', recoveryPepper: '', auditSigning: '' }
  const keys = keysOf({
    secrets: { ...none, ...withoutUndefined(secrets) },
    previous,
    signing: {
      current: signing.current ?? Buffer.alloc(0),
      previous: signing.previous,
      isPreviousAssumed: true,
    },
  })
  return lackingIn(keys, used)
}

/** The recorded fingerprint, with its row locked; without one, this one is recorded. */
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
    `This database was used with other keys: ${names}. Restore secrets.json or the previous settings. ` +
      `A key that is changed on purpose needs ${again}. ` +
      `To continue without them, ACCEPT_NEW_KEYS=${newKeysId(config)} accepts that ${keys.map(({ lost }) => lost).join(', ')}.`,
  )
}

/**
 * An empty database is initialized, unless the directory shows that there was another one.
 * @throws SetupError
 */
export async function assertDatabaseNotLost(storage: Pick<Storage, 'read'>, dataDir: string): Promise<void> {
  if (await hasUsers(storage.read)) return
  const folder = join(dataDir, 'checkpoints')
  const signed = await localCopiesIn(folder).list()
  if (signed.length === 0) return
  throw new SetupError(
    `The database is empty, and ${folder} has signed checkpoints of another one: restore that database from a backup, or ` +
      `check DATABASE_URL and SVC_DATA_DIR. To start anew, move ${folder} away.`,
  )
}

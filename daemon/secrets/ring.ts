import { randomBytes } from 'node:crypto'
import { createCipher } from '../../src/core/cipher.ts'
import { SetupError } from '../../src/core/errors.ts'
import { keyFingerprint } from '../../src/core/key-fingerprint.ts'
import { addSeconds, clockSkew, type Instant } from '../../src/core/time.ts'
import { accessSeconds } from '../../src/identity/sessions/tokens.ts'
import { countSealedOtherwise, type Resealed, reseal } from '../../src/storage/encrypted-values.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { workloadTtlSeconds } from '../../src/trust/tokens.ts'
import { type Config, existingConfig } from '../config.ts'
import type { Env } from '../variables.ts'
import {
  previousEntry,
  readSecretsFile,
  type SecretEntry,
  type StoredSecrets,
  secretsFile,
  writeSecretsFile,
} from './file.ts'

/*
 * Each secret is a ring of two: the current one makes new values, the former one still opens what it made, until nothing needs
 * it. These functions work on the data directory and the database of a service, also while it runs.
 */

type Flags = { 'data-dir'?: string | undefined }

const entryOf = {
  JWT_SECRET: 'jwt',
  APP_ENCRYPTION_KEY: 'encryption',
  ENROLLMENT_KEY_PEPPER: 'enrollmentPepper',
  MFA_RECOVERY_CODE_PEPPER: 'recoveryPepper',
  AUDIT_SIGNING_KEY: 'auditSigning',
} as const satisfies Record<string, SecretEntry>

export type SecretName = keyof typeof entryOf
export const secretNames = Object.keys(entryOf) as SecretName[]

export type ListedSecret = {
  name: SecretName
  /** Tells secrets apart, and reveals nothing else. */
  id: string
  state: 'current' | 'previous'
  /** `generated`: in secrets.json. `environment`: the variable, or the file it names. */
  source: 'generated' | 'environment'
  /** Since when the database has been used with it; null before the service has started with it, and for former ones. */
  since: Instant | null
  /** What cannot be opened without it; null when nothing needs it, and for current ones. */
  neededBy: string | null
}

type Ring = {
  config: Config
  storage: Storage
  /** Fingerprints of the keys that the database is used with. */
  used: ReadonlyMap<string, { print: string; since: Instant }>
}

async function withRing<T>(flags: Flags, env: Env | undefined, work: (ring: Ring) => Promise<T>): Promise<T> {
  const config = existingConfig(flags, env)
  const { dataDir, databaseUrl } = config
  const storage = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
  try {
    const rows = await storage.read.selectFrom('key_prints').selectAll().execute()
    return await work({ config, storage, used: new Map(rows.map((row) => [row.name, row])) })
  } finally {
    await storage.close()
  }
}

const secretOf = ({ secrets, signing }: Config, name: SecretName): string | Buffer =>
  name === 'AUDIT_SIGNING_KEY' ? signing.current : secrets[entryOf[name]]

function previousOf({ previous, signing }: Config, name: SecretName): string | Buffer | undefined {
  // An assumed one is not in the ring: it is derived from another key.
  if (name === 'AUDIT_SIGNING_KEY') return signing.isPreviousAssumed ? undefined : signing.previous
  return previous[entryOf[name]]
}

const idOf = (name: SecretName, secret: string | Buffer): string => keyFingerprint(name, secret).slice(0, 8)

const isUsed = ({ config, used }: Ring, name: SecretName): boolean =>
  used.get(name)?.print === keyFingerprint(name, secretOf(config, name))

/** Whether secrets.json has it: a variable takes precedence over that file. */
function isStored(
  stored: StoredSecrets | undefined,
  entry: keyof StoredSecrets,
  secret: string | Buffer,
): boolean {
  return stored?.[entry] === (typeof secret === 'string' ? secret : secret.toString('base64'))
}

export const listSecrets = (flags: Flags, now: Instant, env?: Env): Promise<ListedSecret[]> =>
  withRing(flags, env, async (ring) => {
    const stored = readSecretsFile(secretsFile(ring.config.dataDir))
    const sourceOf = (entry: keyof StoredSecrets, secret: string | Buffer) =>
      isStored(stored, entry, secret) ? 'generated' : 'environment'
    const listed: ListedSecret[] = []
    for (const name of secretNames) {
      const entry = entryOf[name]
      const current = secretOf(ring.config, name)
      const former = previousOf(ring.config, name)
      const since = isUsed(ring, name) ? ring.used.get(name)!.since : null
      const source = sourceOf(entry, current)
      listed.push({ name, id: idOf(name, current), state: 'current', source, since, neededBy: null })
      if (former === undefined) continue
      listed.push({
        name,
        id: idOf(name, former),
        state: 'previous',
        source: sourceOf(previousEntry[entry], former),
        since: null,
        neededBy: await needOf(ring, name, now),
      })
    }
    return listed
  })

/** What still needs the former secret; null when nothing does. */
async function needOf(ring: Ring, name: SecretName, now: Instant): Promise<string | null> {
  if (!isUsed(ring, name)) return 'the service, until it has started with the new one'
  const { heavy } = ring.storage
  const { since } = ring.used.get(name)!
  switch (name) {
    case 'JWT_SECRET': {
      const until = addSeconds(since, Math.max(accessSeconds, workloadTtlSeconds) + clockSkew)
      return now < until ? `tokens until ${until}` : null
    }
    case 'APP_ENCRYPTION_KEY': {
      const count = await countSealedOtherwise(ring.storage, createCipher([ring.config.secrets.encryption]))
      return counted(count, 'encrypted value')
    }
    case 'ENROLLMENT_KEY_PEPPER': {
      const { count } = await heavy
        .selectFrom('enrollment_keys')
        .select((eb) => eb.fn.countAll<number | string>().as('count'))
        .where('created_at', '<', since)
        .where('expires_at', '>', now)
        .executeTakeFirstOrThrow()
      return counted(Number(count), 'enrollment key')
    }
    case 'MFA_RECOVERY_CODE_PEPPER': {
      const { count } = await heavy
        .selectFrom('recovery_codes')
        .select((eb) => eb.fn.count<number | string>('user_id').distinct().as('count'))
        .where('used_at', 'is', null)
        .where('id', '<', idBefore(since))
        .executeTakeFirstOrThrow()
      return counted(Number(count), 'account with older recovery codes', 'accounts with older recovery codes')
    }
    case 'AUDIT_SIGNING_KEY':
      // The link from the former key was signed when the service started with the new one.
      return null
  }
}

const counted = (count: number, one: string, many = `${one}s`): string | null =>
  count === 0 ? null : `${count} ${count === 1 ? one : many}`

/** Ids are UUIDv7, which begin with their time: no id made later is smaller than this. */
function idBefore(at: Instant): string {
  const time = Date.parse(at).toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}`
}

/**
 * Generates a new secret in secrets.json, and keeps the former one beside it. `id` is null in a dry run.
 * @throws SetupError when the secret is not in that file, or an earlier one is still in the ring
 */
export function rotateSecret(
  flags: Flags,
  name: SecretName,
  { dryRun = false, env }: { dryRun?: boolean; env?: Env } = {},
): { id: string | null; file: string } {
  const config = existingConfig(flags, env)
  const file = secretsFile(config.dataDir)
  const stored = readSecretsFile(file)
  const entry = entryOf[name]
  const current = secretOf(config, name)
  if (!isStored(stored, entry, current)) {
    throw new SetupError(
      `${name} comes from the environment, which this command cannot change. Set ${name}_PREVIOUS to its present value and ` +
        `${name} to a new one (openssl rand -base64 32), then restart the service; svc help serve has the steps for several replicas.`,
    )
  }
  if (previousOf(config, name) !== undefined) {
    throw new SetupError(`A former ${name} is still in use. Retire it first: svc secrets retire ${name}`)
  }
  if (dryRun) return { id: null, file }
  const fresh = randomBytes(32).toString('base64')
  writeSecretsFile(
    file,
    { ...stored, [entry]: fresh, [previousEntry[entry]]: stored![entry]! },
    { isNew: false },
  )
  return { id: idOf(name, name === 'AUDIT_SIGNING_KEY' ? Buffer.from(fresh, 'base64') : fresh), file }
}

/** Encrypts stored values with the current encryption key. @throws SetupError when the service has not started with it yet */
export const resealValues = (
  flags: Flags,
  onProgress: (count: number, total: number) => void,
  env?: Env,
): Promise<Resealed> =>
  withRing(flags, env, async (ring) => {
    if (!isUsed(ring, 'APP_ENCRYPTION_KEY')) {
      throw new SetupError(
        'The service has not started with the present APP_ENCRYPTION_KEY yet: replicas that lack it could not open what it encrypts. Restart the service first.',
      )
    }
    const { secrets, previous } = ring.config
    const total = await countSealedOtherwise(ring.storage, createCipher([secrets.encryption]))
    const ringCipher = createCipher([
      secrets.encryption,
      ...(previous.encryption ? [previous.encryption] : []),
    ])
    return reseal(ring.storage, ringCipher, (count) => onProgress(count, total))
  })

/**
 * Removes a former secret from secrets.json. `removed` is false when it is in the environment, where its variable has to be
 * removed.
 * @throws SetupError when something needs it and `force` is not given
 */
export const retireSecret = (
  flags: Flags,
  name: SecretName,
  { force, now, env }: { force: boolean; now: Instant; env?: Env },
): Promise<{ removed: boolean; neededBy: string | null }> =>
  withRing(flags, env, async (ring) => {
    const former = previousOf(ring.config, name)
    if (former === undefined) throw new SetupError(`There is no former ${name}`)
    const neededBy = await needOf(ring, name, now)
    if (neededBy !== null && !force) {
      const next = name === 'APP_ENCRYPTION_KEY' && isUsed(ring, name) ? ' Run: svc secrets reseal' : ''
      throw new SetupError(`The former ${name} is still needed by ${neededBy}.${next}`)
    }
    const file = secretsFile(ring.config.dataDir)
    const { [previousEntry[entryOf[name]]]: stored, ...others } = readSecretsFile(file) ?? {}
    if (stored === undefined) return { removed: false, neededBy }
    writeSecretsFile(file, others, { isNew: false })
    return { removed: true, neededBy }
  })

import { randomBytes } from 'node:crypto'
import { createSigner } from '../../src/audit/checkpoints/signer.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { SetupError } from '../../src/core/errors.ts'
import { keyFingerprint } from '../../src/core/key-fingerprint.ts'
import { defaultLimits } from '../../src/core/limits.ts'
import { type SecretName, secretEntryOf, secretNames } from '../../src/core/secret-names.ts'
import { addSeconds, clockSkew, type Instant } from '../../src/core/time.ts'
import { accessSeconds } from '../../src/identity/sessions/tokens.ts'
import { assertNoUnfinishedRestore } from '../../src/storage/backup/restore-mark.ts'
import { type DatabaseMove, describeMove, readMove } from '../../src/storage/copy/moved.ts'
import {
  countEncryptedWith,
  countEncryptedWithOtherKeys,
  type Resealed,
  reseal,
} from '../../src/storage/encrypted-values.ts'
import { noDatabase } from '../../src/storage/no-database.ts'
import { databaseExists, openReadOnly, openStorage, type Storage } from '../../src/storage/open.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import { liveProcesses, type ServiceProcess } from '../../src/storage/service-processes.ts'
import { workloadTtlSeconds } from '../../src/trust/tokens.ts'
import { type Config, existingConfig, isInEnvironment } from '../config.ts'
import { fingerprintsOf } from '../key-fingerprints.ts'
import type { Env } from '../variables.ts'
import { cipherOf } from './cipher.ts'
import { assertNoFallback } from './fallbacks.ts'
import {
  lockSecretsFile,
  previousEntry,
  readSecretsFile,
  type StoredSecrets,
  secretsFile,
  writeSecretsFile,
} from './file.ts'

/*
 * Each secret is a ring of two: the current one makes new values, the former one still opens what it made, until nothing needs
 * it. These functions work on the data directory and the database of a service, also while it runs.
 */

type Flags = { 'data-dir'?: string | undefined }

type ListedSecret = {
  name: SecretName
  /** Tells secrets apart, and reveals nothing else. */
  id: string
  state: 'current' | 'previous'
  /** `generated`: in secrets.json. `environment`: the variable, or the file it names. */
  source: 'generated' | 'environment'
  /** Since when the database has been used with it; null before the service has started with it, and for former ones. */
  since: Instant | null
  /** Since when the database has been used with the one that replaced it; null where that is not known, and for current ones. */
  formerSince: Instant | null
  /** What cannot be opened without it; null when nothing needs it, and for current ones. */
  neededBy: string | null
  /** The live processes of the service that make new values with it, at most 100. */
  usedBy: { host: string; pid: number; startedAt: Instant }[]
}

type NamedId = { name: SecretName; id: string }

/** A live process of the service, beside what this command reads: its own environment and files. */
type RunningProcess = {
  host: string
  pid: number
  startedAt: string
  /** Secrets that the process has and this command does not read. */
  has: NamedId[]
  /** Secrets that this command reads and the process does not have. */
  lacks: NamedId[]
}

export type SecretList = { file: string; secrets: ListedSecret[]; processes: RunningProcess[] }

type Ring = {
  config: Config
  env: Env | undefined
  storage: Storage
  /** Fingerprints of the keys that the database is used with. */
  used: ReadonlyMap<string, { print: string; since: Instant }>
  /** Those that serve the database now. */
  processes: readonly ServiceProcess[]
}

async function withRing<T>(flags: Flags, env: Env | undefined, work: (ring: Ring) => Promise<T>): Promise<T> {
  const config = existingConfig(flags, env)
  const { dataDir, databaseUrl } = config
  if (!(await databaseExists({ dataDir, databaseUrl }))) throw noDatabase(dataDir)
  const storage = await openStorage({ dataDir, databaseUrl })
  try {
    await assertNoUnfinishedRestore(storage)
    assertNotMoved(await readMove(storage))
    const rows = await storage.read.selectFrom('key_prints').selectAll().execute()
    const used = new Map(rows.map((row) => [row.name, row]))
    return await work({ config, env, storage, used, processes: await liveProcesses(storage.read) })
  } finally {
    await storage.close()
  }
}

/** @throws SetupError for a database that was copied elsewhere: the service uses the other one */
function assertNotMoved(move: DatabaseMove | undefined): void {
  if (move === undefined) return
  throw new SetupError(
    `${describeMove(move)}, and the service works there: name that one as the service does, by DATABASE_URL or --data-dir. ` +
      'If it is not used, svc db copy --reopen lets this one take changes again.',
  )
}

/** Where the database was moved to, if it was and answers. */
async function moveOf(place: {
  dataDir: string
  databaseUrl: string | undefined
}): Promise<DatabaseMove | undefined> {
  if (!(await databaseExists(place))) return undefined
  try {
    const storage = await openReadOnly(place)
    try {
      return await readMove(storage)
    } finally {
      await storage.close()
    }
  } catch {
    // A secret can be replaced while the database does not answer.
    return undefined
  }
}

function secretOf({ secrets, signing, metricsToken }: Config, name: SecretName): string | Buffer | undefined {
  if (name === 'AUDIT_SIGNING_KEY') return signing.current
  return name === 'METRICS_TOKEN' ? metricsToken : secrets[secretEntryOf[name]]
}

function previousOf(
  { previous, signing, previousMetricsToken }: Config,
  name: SecretName,
): string | Buffer | undefined {
  // An assumed one is not in the ring: it is derived from another key.
  if (name === 'AUDIT_SIGNING_KEY') return signing.isPreviousAssumed ? undefined : signing.previous
  return name === 'METRICS_TOKEN' ? previousMetricsToken : previous[secretEntryOf[name]]
}

const idOf = (name: SecretName, secret: string | Buffer): string => keyFingerprint(name, secret).slice(0, 8)

/** The database has nothing that a metrics token has made. */
const isUsed = ({ config, used }: Ring, name: SecretName): boolean =>
  name === 'METRICS_TOKEN' || used.get(name)?.print === keyFingerprint(name, secretOf(config, name)!)

/** Processes that a list names. */
const maxNamed = 100

function usersOf({ processes }: Ring, name: SecretName, secret: string | Buffer): ListedSecret['usedBy'] {
  const print = keyFingerprint(name, secret)
  return processes
    .filter(({ prints }) => prints[name]?.[0] === print)
    .slice(0, maxNamed)
    .map(({ host, pid, startedAt }) => ({ host, pid, startedAt }))
}

/** The live processes that do not make their values with the current secret yet, in words. */
function laggards({ config, processes }: Ring, name: SecretName): string[] {
  const print = keyFingerprint(name, secretOf(config, name)!)
  const behind = processes.filter(({ prints }) => prints[name]?.[0] !== print)
  const named = behind.slice(0, 10).map(({ host, pid, prints, startedAt }) => {
    const lack = prints[name]?.includes(print) ? 'still uses it' : 'does not know the new one'
    return `process ${pid} on ${host} (started ${startedAt}), which ${lack}`
  })
  return behind.length > 10 ? [...named, `${behind.length - 10} more processes`] : named
}

function compared({ config, processes }: Ring): RunningProcess[] {
  const own = fingerprintsOf(config)
  const beyond = (one: ServiceProcess['prints'], other: ServiceProcess['prints']): NamedId[] =>
    secretNames.flatMap((name) =>
      (one[name] ?? [])
        .filter((print) => !other[name]?.includes(print))
        .map((print) => ({ name, id: print.slice(0, 8) })),
    )
  return processes.slice(0, maxNamed).map(({ host, pid, startedAt, prints }) => ({
    host,
    pid,
    startedAt,
    has: beyond(prints, own),
    lacks: beyond(own, prints),
  }))
}

/** The secrets as this command reads them, and how those of the running service differ. */
export const listSecrets = (flags: Flags, now: Instant, env?: Env): Promise<SecretList> =>
  withRing(flags, env, async (ring) => {
    const file = secretsFile(ring.config.dataDir)
    const stored = readSecretsFile(file)
    const sourceOf = (name: string, entry: keyof StoredSecrets) =>
      stored?.[entry] !== undefined && !isInEnvironment(name, env) ? 'generated' : 'environment'
    const listed: ListedSecret[] = []
    for (const name of secretNames) {
      const entry = secretEntryOf[name]
      const current = secretOf(ring.config, name)
      if (current === undefined) continue
      const former = previousOf(ring.config, name)
      const since = sinceOf(ring, name)
      const source = sourceOf(name, entry)
      listed.push({
        name,
        id: idOf(name, current),
        state: 'current',
        source,
        since,
        formerSince: null,
        neededBy: null,
        usedBy: usersOf(ring, name, current),
      })
      if (former === undefined) continue
      listed.push({
        name,
        id: idOf(name, former),
        state: 'previous',
        source: sourceOf(`${name}_PREVIOUS`, previousEntry[entry]),
        since: null,
        formerSince: since,
        neededBy: await needOf(ring, name, now),
        usedBy: usersOf(ring, name, former),
      })
    }
    return { file, secrets: listed, processes: compared(ring) }
  })

/** Since when the database has been used with the current one; null before that, and for the metrics token. */
const sinceOf = (ring: Ring, name: SecretName): Instant | null =>
  isUsed(ring, name) ? (ring.used.get(name)?.since ?? null) : null

/** What still needs the former secret; null when nothing does. */
async function needOf(ring: Ring, name: SecretName, now: Instant): Promise<string | null> {
  const behind = laggards(ring, name)
  if (!isUsed(ring, name)) {
    return ['the service, until it has taken the new one', ...behind].join(', ')
  }
  const needs = [...behind, ...(await ownNeeds(ring, name, now)), ...(await pepperNeeds(ring, name, now))]
  return needs.join(', ') || null
}

async function ownNeeds(ring: Ring, name: SecretName, now: Instant): Promise<string[]> {
  const { storage, config, used } = ring
  const since = used.get(name)?.since ?? now
  const until = (what: string, seconds: number) => {
    const end = addSeconds(since, seconds + clockSkew)
    return now < end ? [`${what} until ${end}`] : []
  }
  switch (name) {
    case 'JWT_SECRET':
      return until('tokens', Math.max(accessSeconds, workloadTtlSeconds))
    case 'APP_ENCRYPTION_KEY':
      return counted(
        await countEncryptedWith(storage, createCipher([config.previous.encryption!])),
        'encrypted value',
      )
    case 'ENROLLMENT_KEY_PEPPER':
      return enrollmentKeysBefore(storage, since, now)
    case 'MFA_RECOVERY_CODE_PEPPER':
      // It also is the key of the windows of shared rate limits (daemon/shared-windows.ts).
      return [...(await recoveryCodesBefore(storage, since)), ...until('rate limits', longestWindow)]
    case 'AUDIT_SIGNING_KEY':
      return (await isLinked(ring))
        ? []
        : ['the link from its public key to the new one: restart the service']
    case 'METRICS_TOKEN':
      // Nothing knows who scrapes: svc_metrics_reads_total counts who still presents it.
      return []
  }
}

const longestWindow = Math.max(...Object.values(defaultLimits).map(({ seconds }) => seconds))

/** Where no pepper is set, another secret serves as it. */
async function pepperNeeds(ring: Ring, name: SecretName, now: Instant): Promise<string[]> {
  const { previous, dataDir } = ring.config
  const isPepper = previous.enrollmentPepper === previousOf(ring.config, name)
  if (name === 'ENROLLMENT_KEY_PEPPER' || !isPepper) return []
  // A former pepper that is set by itself stays when this key goes.
  if (isInEnvironment('ENROLLMENT_KEY_PEPPER_PREVIOUS', ring.env)) return []
  if (readSecretsFile(secretsFile(dataDir))?.enrollmentPepperPrevious !== undefined) return []
  return enrollmentKeysBefore(ring.storage, ring.used.get(name)!.since, now)
}

async function enrollmentKeysBefore({ heavy }: Storage, since: Instant, now: Instant): Promise<string[]> {
  const keys = heavy
    .selectFrom('enrollment_keys')
    .where('created_at', '<', addSeconds(since, clockSkew))
    .where('expires_at', '>', now)
  const [needed] = counted(await countRowsOf(keys), 'enrollment key')
  if (needed === undefined) return []
  const { last } = await keys.select((eb) => eb.fn.max('expires_at').as('last')).executeTakeFirstOrThrow()
  return [`${needed} until ${last}`]
}

async function recoveryCodesBefore({ heavy }: Storage, since: Instant): Promise<string[]> {
  const codes = heavy.selectFrom('recovery_codes').where('used_at', 'is', null)
  const holders = codes
    .where('id', '<', idBefore(addSeconds(since, clockSkew)))
    .select('user_id')
    .distinct()
  const count = await countRowsOf(heavy.selectFrom(holders.as('holders')))
  return counted(count, 'account with older recovery codes', 'accounts with older recovery codes')
}

/** Whether a signed statement leads from the former public key to the current one. */
async function isLinked({ storage, config }: Ring): Promise<boolean> {
  const signer = createSigner(storage, config.signing)
  const former = signer.publicKeys[1]
  return former !== undefined && (await signer.trusted()).some((key) => key.equals(former))
}

const counted = (count: number, one: string, many = `${one}s`): string[] =>
  count === 0 ? [] : [`${count} ${count === 1 ? one : many}`]

/** Ids are UUIDv7, which begin with their time: no id made later is smaller than this. */
function idBefore(at: Instant): string {
  const time = Date.parse(at).toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}`
}

export type Rotated = {
  /** null in a dry run. */
  id: string | null
  file: string
  /** False for the first one there is. */
  hasFormer: boolean
}

/**
 * Generates a new secret in secrets.json, and keeps the former one beside it.
 * @throws SetupError when the secret is not in that file, or an earlier one is still in the ring
 */
export async function rotateSecret(
  flags: Flags,
  name: SecretName,
  { dryRun = false, env }: { dryRun?: boolean; env?: Env } = {},
): Promise<Rotated> {
  const config = existingConfig(flags, env)
  assertNotMoved(await moveOf(config))
  assertNoFallback(config, name)
  const file = secretsFile(config.dataDir)
  const entry = secretEntryOf[name]
  const known = readSecretsFile(file)
  // Of all secrets only this one may be missing: then nobody reads metrics, and this is the first one.
  const isInFile = name === 'METRICS_TOKEN' ? known !== undefined : known?.[entry] !== undefined
  if (isInEnvironment(name, env) || !isInFile) {
    throw new SetupError(
      `${name} comes from the environment, which this command cannot change. Set ${name}_PREVIOUS to its present value and ` +
        `${name} to a new one (openssl rand -base64 32): in files that NAME_FILE names while the service runs, else with a restart.`,
    )
  }
  return lockSecretsFile(file, (): Rotated => {
    if (previousOf(existingConfig(flags, env), name) !== undefined) {
      throw new SetupError(`A former ${name} is still in use. Retire it first: svc secrets retire ${name}`)
    }
    const stored = readSecretsFile(file)!
    const former = stored[entry]
    const hasFormer = former !== undefined
    if (dryRun) return { id: null, file, hasFormer }
    const fresh = randomBytes(32).toString('base64')
    const changed = { ...stored, [entry]: fresh, ...(former && { [previousEntry[entry]]: former }) }
    writeSecretsFile(file, changed, { isNew: false })
    const secret = name === 'AUDIT_SIGNING_KEY' ? Buffer.from(fresh, 'base64') : fresh
    return { id: idOf(name, secret), file, hasFormer }
  })
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
        'The service has not taken the present APP_ENCRYPTION_KEY yet: replicas that lack it could not open what it encrypts. svc secrets list names them.',
      )
    }
    const total = await countEncryptedWithOtherKeys(
      ring.storage,
      createCipher([ring.config.secrets.encryption]),
    )
    return reseal(ring.storage, cipherOf(ring.config), (count) => onProgress(count, total))
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
): Promise<{ removed: boolean; neededBy: string | null; formerSince: Instant | null }> =>
  withRing(flags, env, async (ring) => {
    const former = previousOf(ring.config, name)
    if (former === undefined) throw new SetupError(`There is no former ${name}`)
    // Without it nothing opens what is stored: the service has not made anything with the new one.
    const mayForce = force && isUsed(ring, name) && laggards(ring, name).length === 0
    const neededBy = await needOf(ring, name, now)
    const formerSince = sinceOf(ring, name)
    if (neededBy !== null && !mayForce) {
      const next = / encrypted values?\b/.test(neededBy) ? ' Run: svc secrets reseal' : ''
      const replaced = formerSince === null ? '' : `, replaced on ${formerSince},`
      throw new SetupError(`The former ${name}${replaced} is still needed by ${neededBy}.${next}`)
    }
    const file = secretsFile(ring.config.dataDir)
    const entry = previousEntry[secretEntryOf[name]]
    if (isInEnvironment(`${name}_PREVIOUS`, env)) return { removed: false, neededBy, formerSince }
    return lockSecretsFile(file, () => {
      const { [entry]: stored, ...others } = readSecretsFile(file) ?? {}
      // Another command may have rotated it since it was judged.
      if (stored === undefined || stored !== textOf(former)) {
        throw new SetupError(`The former ${name} has changed meanwhile: look at svc secrets list`)
      }
      writeSecretsFile(file, others, { isNew: false })
      return { removed: true, neededBy, formerSince }
    })
  })

const textOf = (secret: string | Buffer): string =>
  typeof secret === 'string' ? secret : secret.toString('base64')

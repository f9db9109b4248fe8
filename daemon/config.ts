import { hkdfSync, randomBytes } from 'node:crypto'
import { resolve } from 'node:path'
import ipaddr from 'ipaddr.js'
import type { SigningSeeds } from '../src/audit/checkpoints/signer.ts'
import { SetupError } from '../src/core/errors.ts'
import { defaultLimits, type Limit, type LimitName, type Limits } from '../src/core/limits.ts'
import { defaultQuotas, type QuotaName, type Quotas } from '../src/core/quotas.ts'
import { email, safeParse } from '../src/core/schema.ts'
import { type SecretEntry, secretEntryOf, secretNames } from '../src/core/secret-names.ts'
import type { Bytes } from '../src/logs/quota.ts'
import type { PostgresSettings } from '../src/storage/open.ts'
import type { Proxies } from './address.ts'
import { type BackupSettings, readBackups, readBucket } from './backup/settings.ts'
import type { BodyLimits } from './body-budget.ts'
import type { ConnectionLimits } from './connection-limit.ts'
import { type Origins, readOrigins } from './cors.ts'
import { type IntegrationSettings, readIntegrationSettings } from './integrations/settings.ts'
import { looksRandom } from './randomness.ts'
import type { ReadQueryLimits } from './read-query-queue.ts'
import type { RecordDays } from './retention.ts'
import type { Fallback } from './secrets/fallbacks.ts'
import {
  parseSecrets,
  previousEntry,
  readSecretsFile,
  type StoredSecrets,
  secretsFile,
  writeSecretsFile,
} from './secrets/file.ts'
import { readServiceManager, type ServiceManagerSettings } from './service-manager.ts'
import { readTracingSettings, type TracingSettings } from './tracing/settings.ts'
import {
  type Env,
  readBoolean,
  readDays,
  readInteger,
  readSecretVariable,
  settingFiles,
  withoutEmpty,
} from './variables.ts'

/**
 * The configuration of `svc serve`. Only this file reads `process.env`; the other files of the daemon get it as an argument.
 */
export type Config = {
  host: string
  port: number
  dataDir: string
  /** The server itself: DATABASE_DIRECT_URL, else DATABASE_URL. */
  databaseUrl: string | undefined
  /** DATABASE_URL where there is a DATABASE_DIRECT_URL besides: it may lead to a pooler in transaction mode. */
  poolerUrl: string | undefined
  /** DATABASE_POOL_SIZE, DATABASE_STATEMENT_TIMEOUT_MS, DATABASE_WAIT_SECONDS: of Postgres alone. */
  postgres: PostgresSettings
  /** DATABASE_INTEGRITY_CHECK_SECONDS: interval between checks of all stored data; 0: never. */
  integrityCheckSeconds: number
  /** QUESTION_TIMEOUT_MS, QUESTIONS_AT_ONCE, QUESTIONS_PER_CALLER, QUESTION_WAIT_MS */
  readQueries: ReadQueryLimits
  production: boolean
  autoMigrate: boolean
  /** MIGRATION_LOCK_WAIT_SECONDS: how long a migration tries to get a lock of Postgres. */
  migrationLockMs: number
  logLevel: string
  /** Colors in the log on a terminal. */
  color: boolean
  secrets: Secrets
  /** The warning about secrets that production would refuse. */
  weakSecrets: string | undefined
  /** Secrets that are not set, and the ones that serve as them. */
  fallbacks: readonly Fallback[]
  /** NAME_PREVIOUS: the previous or next keys, which decrypt and verify but create nothing. */
  previous: PreviousSecrets
  /** ACCEPT_NEW_KEYS: which replaced keys are accepted (daemon/key-fingerprints.ts). */
  acceptedKeys: string | undefined
  /** The seeds of the keys that sign the audit log. */
  signing: SigningSeeds
  /** AUDIT_CHECKPOINT_SECONDS: from one checkpoint of a chain that grew to its next one. */
  checkpointSeconds: number
  /** METRICS_TOKEN: token for /metrics; undefined: disabled. */
  metricsToken: string | undefined
  /** METRICS_TOKEN_PREVIOUS: the former one, which is accepted too. */
  previousMetricsToken: string | undefined
  /** ENABLE_2FA */
  mfaOn: boolean
  /** ENABLE_REGISTRATION */
  registrationOn: boolean
  enrollmentTtlMinutes: number
  /** AGENT_ENROLLMENT_SECRET: required from machines besides a key, when set. */
  enrollmentSecret: string | undefined
  /** OFFLINE_AFTER_SECONDS: how long a device may be silent. */
  offlineAfterSeconds: number
  /** AGENT_TOKEN_ROTATION_MAX_AGE_DAYS: age of an agent's token at which the service asks for a rotation. */
  agentTokenDays: number
  /** AGENT_LOG_RETENTION_DAYS, EVENT_LOG_RETENTION_DAYS */
  agentLogRetentionDays: number
  eventLogRetentionDays: number
  /** LOG_BYTES_PER_DEVICE, LOG_BYTES_PER_ORG */
  logBytes: Bytes
  /** COMMAND_RESULT_BYTES_PER_DEVICE, COMMAND_RESULT_BYTES_PER_ORG */
  commandBytes: Bytes
  /** LIVE_QUERY_TIMEOUT_MS: how long an agent has to answer. */
  liveTimeoutMs: number
  /** WEBHOOK_TIMEOUT_MS: how long a receiver has to answer. */
  webhookTimeoutMs: number
  /** WEBHOOK_DELIVERY_RETENTION_DAYS: retention of finished deliveries. */
  deliveryDays: number
  /** WEBHOOK_DELIVERIES_KEPT: newest deliveries kept of each webhook. */
  deliveriesKept: number
  /** How long records are kept after they have ended. */
  recordDays: RecordDays
  /** AUDIT_RETENTION_ENABLED: old audit entries are deleted automatically. */
  auditRetentionOn: boolean
  limits: Limits
  /** QUOTA_<NAME> */
  quotas: Quotas
  /** BODY_BYTES_IN_FLIGHT, BODY_BYTES_PER_CALLER */
  bodies: BodyLimits
  /** MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS */
  connections: ConnectionLimits
  /** MAX_REQUESTS: requests in progress. */
  maxRequests: number
  /** REQUEST_HEADER_SECONDS: time limit for the headers of a request. */
  headerMs: number
  /** The first system administrator; generated when absent. */
  admin: { email: string; password: string | undefined }
  proxies: Proxies
  /** CORS_ALLOWED_ORIGINS: front-ends on other origins. */
  origins: Origins
  outside: IntegrationSettings
  /** OTEL_*: where traces are sent; undefined: nowhere. */
  tracing: TracingSettings | undefined
  backups: BackupSettings
}

type Secrets = Record<Exclude<SecretEntry, 'metricsToken'>, string>

type PreviousSecrets = { [K in Exclude<keyof Secrets, 'auditSigning'>]: string | undefined }

export type Flags = { host?: string | undefined; port?: number | undefined; 'data-dir'?: string | undefined }

const mebi = 1024 * 1024

/** From the environment of this process. @throws SetupError */
export const configFromEnv = (flags: Flags): Config => readConfig(process.env, flags)

/** Only which database, for tools that need no secrets. They work on the server itself. @throws SetupError */
export function databaseOf(
  flags: Flags,
  given: Env = process.env,
): { dataDir: string; databaseUrl: string | undefined } {
  const env = withoutEmpty(given)
  return { dataDir: dataDirOf(flags, env), databaseUrl: databaseUrls(env).databaseUrl }
}

function databaseUrls(env: Env): Pick<Config, 'databaseUrl' | 'poolerUrl'> {
  const [url, direct] = [databaseUrlOf(env, 'DATABASE_URL'), databaseUrlOf(env, 'DATABASE_DIRECT_URL')]
  if (direct === undefined) return { databaseUrl: url, poolerUrl: undefined }
  if (url === undefined) throw new SetupError('DATABASE_DIRECT_URL is set, but not DATABASE_URL')
  return { databaseUrl: direct, poolerUrl: url }
}

/** Whether the environment sets a secret, itself or by a file: it takes precedence over secrets.json. */
export function isInEnvironment(name: string, given: Env = process.env): boolean {
  const env = withoutEmpty(given)
  const names = name === 'APP_ENCRYPTION_KEY' ? [name, 'SECRET_ENCRYPTION_KEY'] : [name]
  return names.some((one) => readSecretVariable(env, one) !== undefined)
}

/** The object storage of backups that an s3:// URL names. @throws SetupError */
export const backupBucketOf = (url: string, env: Env = process.env): ReturnType<typeof readBucket> =>
  readBucket(withoutEmpty(env), url)

/** The environment of this process, but with another database. */
export const environmentOn = (databaseUrl: string | undefined): Env => ({
  ...process.env,
  DATABASE_URL: databaseUrl,
  DATABASE_URL_FILE: undefined,
  // A file or a credential would lead to the database of the service.
  DATABASE_DIRECT_URL: databaseUrl,
  DATABASE_DIRECT_URL_FILE: undefined,
})

/** BACKUP_TARGET */
export const backupTargetOf = (env: Env = process.env): string | undefined => withoutEmpty(env).BACKUP_TARGET

/** The files that secrets come from: what a running service looks at for changes. */
export const secretSources = (flags: Flags, env: Env = process.env): string[] => [
  secretsFile(dataDirOf(flags, env)),
  ...settingFiles(withoutEmpty(env)),
]

/** The data directory, for tools that need nothing else. */
export const dataDirOf = (flags: Flags, env: Env = process.env): string =>
  resolve(flags['data-dir'] || withoutEmpty(env).SVC_DATA_DIR || './data')

/** @throws SetupError */
export const migrationLockMsOf = (env: Env = process.env): number =>
  readInteger(withoutEmpty(env), 'MIGRATION_LOCK_WAIT_SECONDS', 300, 1, 86_400) * 1000

/** The command to print in examples: after `npm start`, svc is not on the PATH. */
export const programName = (): string => (process.env.npm_lifecycle_event ? 'npx svc' : 'svc')

/** SVC_DEBUG: failures print their stack. Read before the rest of the configuration. */
export const isDebug = (): boolean => Boolean(process.env.SVC_DEBUG)

/** What systemd has told this process. */
export const serviceManagerOf = (env: Env = process.env): ServiceManagerSettings =>
  readServiceManager(withoutEmpty(env))

/** As `configFromEnv`, and writes nothing: a missing secret is an error. @throws SetupError */
export const existingConfig = (flags: Flags, env: Env = process.env): Config =>
  readConfig(env, flags, { mayGenerate: false })

/** Where the service listens. */
export function listenAddressOf(
  flags: Pick<Flags, 'host' | 'port'>,
  given: Env = process.env,
): { host: string; port: number } {
  const env = withoutEmpty(given)
  const port = flags.port ?? readInteger(env, 'PORT', 3000, 0, 65_535)
  return { host: flags.host || (env.HOST ?? '127.0.0.1'), port }
}

/** `mayGenerate`: missing secrets are generated, and kept in the data directory. @throws SetupError */
export function readConfig(given: Env, flags: Flags = {}, { mayGenerate = true } = {}): Config {
  const env = withoutEmpty(given)
  const dataDir = dataDirOf(flags, env)
  const production = env.NODE_ENV === 'production'
  const password = readSecretVariable(env, 'SVC_ADMIN_PASSWORD')
  if (password !== undefined && (password.length < 8 || password.length > 128)) {
    throw new SetupError('SVC_ADMIN_PASSWORD must have 8 to 128 characters')
  }
  const weakSecrets = weakKeys(env)
  if (production && weakSecrets !== undefined) throw new SetupError(weakSecrets)
  const stored = readSecretsFile(secretsFile(dataDir))
  const secrets = readSecrets(env, dataDir, stored, { production, mayGenerate })
  return {
    ...listenAddressOf(flags, env),
    dataDir,
    ...databaseUrls(env),
    postgres: {
      poolSize: readInteger(env, 'DATABASE_POOL_SIZE', 10, 2, 500),
      statementMs: readInteger(env, 'DATABASE_STATEMENT_TIMEOUT_MS', 30_000, 100, 600_000),
      waitMs: readInteger(env, 'DATABASE_WAIT_SECONDS', 30, 0, 3600) * 1000,
    },
    integrityCheckSeconds: readInteger(env, 'DATABASE_INTEGRITY_CHECK_SECONDS', 86_400, 0, 604_800),
    readQueries: {
      timeoutMs: readInteger(env, 'QUESTION_TIMEOUT_MS', 10_000, 100, 600_000),
      atOnce: readInteger(env, 'QUESTIONS_AT_ONCE', 6, 1, 100),
      perTenant: readInteger(env, 'QUESTIONS_PER_TENANT', 4, 1, 100),
      perCaller: readInteger(env, 'QUESTIONS_PER_CALLER', 2, 1, 100),
      waitMs: readInteger(env, 'QUESTION_WAIT_MS', 5000, 0, 60_000),
    },
    production,
    autoMigrate: readBoolean(env, 'AUTO_MIGRATE', true),
    migrationLockMs: migrationLockMsOf(env),
    logLevel: readLogLevel(env),
    color: !env.NO_COLOR,
    secrets,
    weakSecrets,
    fallbacks: fallbacksIn(env, secrets, stored),
    previous: previousSecrets(env, secrets, stored),
    acceptedKeys: env.ACCEPT_NEW_KEYS || undefined,
    signing: signingSeeds(env, secrets, stored),
    checkpointSeconds: readInteger(env, 'AUDIT_CHECKPOINT_SECONDS', 3600, 1, 86_400),
    metricsToken: readSecretVariable(env, 'METRICS_TOKEN') ?? stored?.metricsToken,
    previousMetricsToken:
      readSecretVariable(env, 'METRICS_TOKEN_PREVIOUS') ?? stored?.[previousEntry.metricsToken],
    mfaOn: readBoolean(env, 'ENABLE_2FA', true),
    registrationOn: readBoolean(env, 'ENABLE_REGISTRATION', false),
    enrollmentTtlMinutes: readInteger(env, 'ENROLLMENT_KEY_DEFAULT_TTL_MINUTES', 60, 1, 525_600),
    enrollmentSecret: readSecretVariable(env, 'AGENT_ENROLLMENT_SECRET'),
    offlineAfterSeconds: readInteger(env, 'OFFLINE_AFTER_SECONDS', 300, 1, 86_400),
    agentTokenDays: readInteger(env, 'AGENT_TOKEN_ROTATION_MAX_AGE_DAYS', 30, 1, 365),
    agentLogRetentionDays: readInteger(env, 'AGENT_LOG_RETENTION_DAYS', 7, 1, 3650),
    eventLogRetentionDays: readInteger(env, 'EVENT_LOG_RETENTION_DAYS', 30, 1, 3650),
    logBytes: {
      perDevice: readInteger(env, 'LOG_BYTES_PER_DEVICE', 256 * 2 ** 20, 65_536, 2 ** 50),
      perOrg: readInteger(env, 'LOG_BYTES_PER_ORG', 32 * 2 ** 30, 65_536, 2 ** 50),
    },
    commandBytes: {
      perDevice: readInteger(env, 'COMMAND_RESULT_BYTES_PER_DEVICE', 64 * mebi, 65_536, 2 ** 50),
      perOrg: readInteger(env, 'COMMAND_RESULT_BYTES_PER_ORG', 4096 * mebi, 65_536, 2 ** 50),
    },
    liveTimeoutMs: readInteger(env, 'LIVE_QUERY_TIMEOUT_MS', 30_000, 100, 600_000),
    webhookTimeoutMs: readInteger(env, 'WEBHOOK_TIMEOUT_MS', 30_000, 100, 600_000),
    deliveryDays: readInteger(env, 'WEBHOOK_DELIVERY_RETENTION_DAYS', 30, 1, 3650),
    deliveriesKept: readInteger(env, 'WEBHOOK_DELIVERIES_KEPT', 100_000, 100, 100_000_000),
    recordDays: readRecordDays(env),
    auditRetentionOn: readBoolean(env, 'AUDIT_RETENTION_ENABLED', true),
    limits: readLimits(env),
    quotas: readQuotas(env),
    connections: {
      whole: readInteger(env, 'MAX_CONNECTIONS', 20_000, 1, 1_000_000),
      perAddress: readInteger(env, 'MAX_CONNECTIONS_PER_ADDRESS', 2000, 1, 1_000_000),
    },
    maxRequests: readInteger(env, 'MAX_REQUESTS', 10_000, 10, 1_000_000),
    headerMs: readInteger(env, 'REQUEST_HEADER_SECONDS', 20, 1, 60) * 1000,
    bodies: {
      whole: readInteger(env, 'BODY_BYTES_IN_FLIGHT', 128 * mebi, 32 * mebi, 65_536 * mebi),
      perCaller: readInteger(env, 'BODY_BYTES_PER_CALLER', 32 * mebi, 24 * mebi, 65_536 * mebi),
    },
    admin: { email: readAdminEmail(env), password },
    proxies: readBoolean(env, 'TRUST_PROXY_HEADERS', false)
      ? { trusted: trustedRanges(env), cloudflare: readBoolean(env, 'TRUST_CF_CONNECTING_IP', false) }
      : undefined,
    origins: readOrigins(env),
    outside: readIntegrationSettings(env),
    tracing: readTracingSettings(env),
    backups: readBackups(env),
  }
}

const readRecordDays = (env: Env): RecordDays => ({
  alerts: readDays(env, 'ALERT_RETENTION_DAYS', 365),
  keys: readDays(env, 'ENDED_KEY_RETENTION_DAYS', 365),
  scripts: readDays(env, 'DELETED_SCRIPT_RETENTION_DAYS', 365),
  devices: readDays(env, 'DECOMMISSIONED_DEVICE_RETENTION_DAYS', 730),
  rollouts: readDays(env, 'ROLLOUT_RETENTION_DAYS', 730),
  releases: readDays(env, 'RELEASE_RETENTION_DAYS', 730),
  checkpoints: readDays(env, 'AUDIT_CHECKPOINT_RETENTION_DAYS', 90),
  // Another replica may return with a checkpoint of its own that is nearly as old.
  proofs: readDays(env, 'AUDIT_PROOF_RETENTION_DAYS', 3650, 365),
  archives: readDays(env, 'AUDIT_ARCHIVE_RECORD_RETENTION_DAYS', undefined),
  applies: readDays(env, 'CONFIG_APPLY_RETENTION_DAYS', 365),
})

const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']

function readLogLevel(env: Env): string {
  const level = readSecretVariable(env, 'LOG_LEVEL') ?? 'info'
  if (logLevels.includes(level)) return level
  throw new SetupError(`LOG_LEVEL must be one of ${logLevels.join(', ')}`)
}

/** An address that sign-in accepts. */
function readAdminEmail(env: Env): string {
  const address = env.SVC_ADMIN_EMAIL ?? 'admin@localhost'
  if (safeParse(email, address).success) return address
  throw new SetupError('SVC_ADMIN_EMAIL must be an e-mail address such as admin@example.com')
}

function databaseUrlOf(env: Env, name: string): string | undefined {
  const url = readSecretVariable(env, name)
  if (url === undefined) return undefined
  if (!isPostgresUrl(url)) {
    throw new SetupError(
      `${name} must begin with postgres://; without it the data directory has an SQLite database`,
    )
  }
  return checkedUrl(name, url)
}

const isPostgresUrl = (text: string): boolean => /^postgres(ql)?:\/\//.test(text)

function checkedUrl(name: string, url: string): string {
  try {
    const { username, password, pathname } = new URL(url)
    for (const part of [username, password, pathname]) decodeURIComponent(part)
  } catch {
    // The parser's message may contain the password.
    throw new SetupError(`${name} is not a valid URL; in its password write @ / # % as %40 %2F %23 %25`)
  }
  return url
}

/** Where `svc db copy` puts a database: the data directory stays where it is, unless it is the target. @throws SetupError */
export function copyTargetOf(
  to: string | undefined,
  dataDir: string,
  given: Env = process.env,
): { dataDir: string; databaseUrl: string | undefined } {
  const targetUrl = readSecretVariable(withoutEmpty(given), 'TARGET_DATABASE_URL')
  if ((to === undefined) === (targetUrl === undefined)) {
    throw new SetupError(
      'Name one target: --to DIR, --to postgres://… without a password, or TARGET_DATABASE_URL (or TARGET_DATABASE_URL_FILE)',
    )
  }
  if (targetUrl !== undefined) {
    if (!isPostgresUrl(targetUrl)) throw new SetupError('TARGET_DATABASE_URL must begin with postgres://')
    return { dataDir, databaseUrl: checkedUrl('TARGET_DATABASE_URL', targetUrl) }
  }
  if (!isPostgresUrl(to!)) return { dataDir: resolve(to!), databaseUrl: undefined }
  const url = checkedUrl('--to', to!)
  const { password, searchParams } = new URL(url)
  if (password !== '' || searchParams.has('password') || searchParams.has('sslpassword')) {
    throw new SetupError(
      '--to has a password, which others can read on the command line: set TARGET_DATABASE_URL or TARGET_DATABASE_URL_FILE instead',
    )
  }
  return { dataDir, databaseUrl: url }
}

/**
 * Secrets come from the environment, else from the data directory, where missing ones are generated once.
 * In production with neither, start-up fails.
 */
function readSecrets(
  env: Env,
  dataDir: string,
  stored: StoredSecrets | undefined,
  from: { production: boolean; mayGenerate: boolean },
): Secrets {
  const file = secretsFile(dataDir)
  const given = givenSecrets(env, stored)
  const invented: Partial<Secrets> = {}
  const first = (name: keyof Secrets): string => {
    const found = given[name]
    if (found !== undefined) return found
    invented[name] = randomBytes(32).toString('base64url')
    return invented[name]
  }
  const secrets: Secrets = {
    jwt: first('jwt'),
    encryption: first('encryption'),
    enrollmentPepper: first('enrollmentPepper'),
    recoveryPepper: first('recoveryPepper'),
    auditSigning: '',
  }
  secrets.auditSigning = given.auditSigning ?? seedFrom(secrets.encryption)
  // A changed key in the environment has its _PREVIOUS; the signing key in the file must not change with the encryption key.
  if (given.auditSigning === undefined && encryptionIn(env) === undefined) {
    invented.auditSigning = secrets.auditSigning
  }
  const missing = secretNames.filter((name) => Object.hasOwn(invented, secretEntryOf[name])).join(', ')
  if (missing === '') return secrets
  if (from.production && !stored) {
    const settings = missing.replace('APP_ENCRYPTION_KEY', 'APP_ENCRYPTION_KEY (or SECRET_ENCRYPTION_KEY)')
    throw new SetupError(
      `In production svc does not generate its secrets: set ${settings}, each also as NAME_FILE, or provide ${file}.`,
    )
  }
  if (!from.mayGenerate) {
    const where = stored ? `${file} lacks ${missing}` : `${missing} are missing: there is no ${file}`
    throw new SetupError(
      `${where}, and the environment does not set them. Run this as the service runs (svc-admin), or restore the file; for a new installation svc serve generates them.`,
    )
  }
  // Secrets of the environment are never copied to disk.
  const kept = writeSecretsFile(file, { ...stored, ...invented }, { isNew: stored === undefined })
  // Another process wrote it first.
  return kept ? secrets : readSecrets(env, dataDir, readSecretsFile(file), from)
}

const encryptionIn = (env: Env): string | undefined =>
  readSecretVariable(env, 'APP_ENCRYPTION_KEY') ?? readSecretVariable(env, 'SECRET_ENCRYPTION_KEY')

/** The secrets that the environment, else the file, has. */
function givenSecrets(env: Env, stored: StoredSecrets | undefined, isRestored = false): Partial<Secrets> {
  const [jwt, encryption] = [readSecretVariable(env, 'JWT_SECRET'), encryptionIn(env)]
  const recoveryPepper = readSecretVariable(env, 'MFA_RECOVERY_CODE_PEPPER')
  // An installation from before the pepper was a secret of its own has all others, or a file that lacks this one.
  const mayLack =
    isRestored || stored !== undefined || [jwt, encryption, recoveryPepper].every((one) => one !== undefined)
  const given: { [K in keyof Secrets]: string | undefined } = {
    jwt: jwt ?? stored?.jwt,
    encryption: encryption ?? stored?.encryption,
    enrollmentPepper:
      readSecretVariable(env, 'ENROLLMENT_KEY_PEPPER') ??
      stored?.enrollmentPepper ??
      (mayLack ? (encryption ?? jwt) : undefined),
    recoveryPepper: recoveryPepper ?? stored?.recoveryPepper,
    auditSigning: readSecretVariable(env, 'AUDIT_SIGNING_KEY') ?? stored?.auditSigning,
  }
  return given as Partial<Secrets>
}

function fallbacksIn(
  env: Env,
  { enrollmentPepper }: Pick<Secrets, 'enrollmentPepper'>,
  stored: StoredSecrets | undefined,
): Fallback[] {
  const isSet = (name: string) => readSecretVariable(env, name) !== undefined
  const found: Fallback[] = []
  if (!isSet('ENROLLMENT_KEY_PEPPER') && stored?.enrollmentPepper === undefined) {
    const from = ['APP_ENCRYPTION_KEY', 'SECRET_ENCRYPTION_KEY', 'JWT_SECRET'].find(
      (name) => readSecretVariable(env, name) === enrollmentPepper,
    )
    // Otherwise it has just been generated.
    if (from !== undefined) found.push({ name: 'ENROLLMENT_KEY_PEPPER', from })
  }
  if (!isSet('AUDIT_SIGNING_KEY') && stored?.auditSigning === undefined) {
    const from = ['APP_ENCRYPTION_KEY', 'SECRET_ENCRYPTION_KEY'].find(isSet)
    if (from !== undefined) found.push({ name: 'AUDIT_SIGNING_KEY', from })
  }
  return found
}

/** Keys that a service would have, of which some may be missing. */
export type KnownKeys = {
  secrets: Partial<Secrets>
  previous: PreviousSecrets
  signing: Partial<Pick<SigningSeeds, 'current' | 'previous'>>
}

/**
 * The keys that `svc serve` would use, of which none is generated. `restored` is the secrets.json that the data directory
 * gets, if it has none. @throws SetupError
 */
export function knownKeys(flags: Flags, restored?: Buffer, given: Env = process.env): KnownKeys {
  const env = withoutEmpty(given)
  const stored =
    readSecretsFile(secretsFile(dataDirOf(flags, env))) ??
    (restored && parseSecrets('secrets.json of the backup', restored.toString('utf8')))
  const secrets = givenSecrets(env, stored, true)
  const { encryption, auditSigning } = secrets
  const signing = auditSigning ?? (encryption === undefined ? undefined : seedFrom(encryption))
  return {
    secrets,
    previous: previousSecrets(env, secrets, stored),
    signing: signing === undefined ? {} : signingSeeds(env, { auditSigning: signing, encryption }, stored),
  }
}

function previousSecrets(
  env: Env,
  { enrollmentPepper }: Partial<Secrets>,
  stored: StoredSecrets | undefined,
): PreviousSecrets {
  const jwt = readSecretVariable(env, 'JWT_SECRET_PREVIOUS') ?? stored?.[previousEntry.jwt]
  const encryption =
    readSecretVariable(env, 'APP_ENCRYPTION_KEY_PREVIOUS') ?? stored?.[previousEntry.encryption]
  // Where another key serves as the pepper, it changes with that key.
  const isAlsoPepper = (...names: string[]) =>
    enrollmentPepper !== undefined && names.some((name) => readSecretVariable(env, name) === enrollmentPepper)
  const unnamed = isAlsoPepper('APP_ENCRYPTION_KEY', 'SECRET_ENCRYPTION_KEY')
    ? encryption
    : isAlsoPepper('JWT_SECRET')
      ? jwt
      : undefined
  return {
    jwt,
    encryption,
    enrollmentPepper:
      readSecretVariable(env, 'ENROLLMENT_KEY_PEPPER_PREVIOUS') ??
      stored?.[previousEntry.enrollmentPepper] ??
      unnamed,
    recoveryPepper:
      readSecretVariable(env, 'MFA_RECOVERY_CODE_PEPPER_PREVIOUS') ?? stored?.[previousEntry.recoveryPepper],
  }
}

/**
 * Keys of tokens and hashes can be guessed offline by whoever has one of these, and a secret that callers present
 * unlocks directly. Previous keys are not checked: they only open what they encrypted.
 */
const keys = [
  'JWT_SECRET',
  'APP_ENCRYPTION_KEY',
  'SECRET_ENCRYPTION_KEY',
  'ENROLLMENT_KEY_PEPPER',
  'MFA_RECOVERY_CODE_PEPPER',
  'AUDIT_SIGNING_KEY',
  'METRICS_TOKEN',
  'AGENT_ENROLLMENT_SECRET',
]

/** A sentence about keys in the environment that do not look random. */
function weakKeys(env: Env): string | undefined {
  const weak = keys.filter((name) => {
    const key = readSecretVariable(env, name)
    return key !== undefined && !looksRandom(key)
  })
  if (weak.length === 0) return undefined
  const [each, looks] = weak.length > 1 ? [' each', 'do'] : ['', 'does']
  return `${weak.join(', ')} must be 32 random bytes${each} and ${looks} not look so: openssl rand -base64 32 prints a good one`
}

/** The default signing key: the same in every process with the same secrets. */
const seedFrom = (encryption: string): string =>
  Buffer.from(hkdfSync('sha256', encryption, '', 'svc audit signing key', 32)).toString('base64')

/** The signing key and the previous one, which may be a derived key instead of a setting. */
function signingSeeds(
  env: Env,
  { auditSigning, encryption }: Pick<Secrets, 'auditSigning'> & { encryption?: string | undefined },
  stored: StoredSecrets | undefined,
): SigningSeeds {
  const current = seedOf('AUDIT_SIGNING_KEY', auditSigning)
  const named = readSecretVariable(env, 'AUDIT_SIGNING_KEY_PREVIOUS') ?? stored?.[previousEntry.auditSigning]
  if (named !== undefined) {
    return { current, previous: seedOf('AUDIT_SIGNING_KEY_PREVIOUS', named), isPreviousAssumed: false }
  }
  const unnamed = readSecretVariable(env, 'AUDIT_SIGNING_KEY')
    ? encryption
    : readSecretVariable(env, 'APP_ENCRYPTION_KEY_PREVIOUS')
  const previous = unnamed === undefined ? undefined : Buffer.from(seedFrom(unnamed), 'base64')
  return { current, previous, isPreviousAssumed: true }
}

function seedOf(name: string, text: string): Buffer {
  const seed = Buffer.from(text, 'base64')
  if (/^[\w+/-]{43}=?$/.test(text) && seed.length === 32) return seed
  throw new SetupError(`${name} must be 32 bytes in base64, as openssl rand -base64 32 prints them`)
}

function readLimits(env: Env): Limits {
  const names = Object.keys(defaultLimits) as LimitName[]
  return Object.fromEntries(names.map((name) => [name, readLimit(env, name)])) as Limits
}

/** Beyond this, counting the records of a tenant would delay each creation. */
const maxQuota = 1_000_000

function readQuotas(env: Env): Quotas {
  const names = Object.keys(defaultQuotas) as QuotaName[]
  const counts = names.map((name) => [
    name,
    readInteger(env, `QUOTA_${name}`, defaultQuotas[name], 1, maxQuota),
  ])
  return Object.fromEntries(counts) as Quotas
}

function readLimit(env: Env, name: LimitName): Limit | undefined {
  const text = env[`RATE_LIMIT_${name}`]
  if (!text) return defaultLimits[name]
  if (text === 'off') return undefined
  const [, count, seconds] = /^([1-9]\d{0,9})\/([1-9]\d{0,6})$/.exec(text) ?? []
  if (!count || !seconds)
    throw new SetupError(`RATE_LIMIT_${name} must be <count>/<seconds>, such as 10/300, or off`)
  return { count: Number(count), seconds: Number(seconds) }
}

function trustedRanges(env: Env): string[] {
  const text = env.TRUSTED_PROXY_CIDRS || '127.0.0.0/8,::1/128'
  const ranges = text.split(',').map((cidr) => cidr.trim())
  const wrong = ranges.find((range) => !ipaddr.isValidCIDR(range))
  if (wrong === undefined) return ranges
  throw new SetupError(
    `TRUSTED_PROXY_CIDRS must be ranges such as 10.0.0.0/8, separated by commas: "${wrong}" is not one`,
  )
}

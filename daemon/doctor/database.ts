import { migrations } from '../../migrations/index.ts'
import { formatBytes } from '../../src/core/byte-size.ts'
import type { Cipher } from '../../src/core/cipher.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Finding, failed, passed, pluralize, warning } from '../../src/core/finding.ts'
import { secretEntryOf } from '../../src/core/secret-names.ts'
import { addSeconds, type Instant, secondsBetween } from '../../src/core/time.ts'
import { assertNoUnfinishedRestore } from '../../src/storage/backup/restore-mark.ts'
import { describeMove, readMove } from '../../src/storage/copy/moved.ts'
import { findUnreadable } from '../../src/storage/encrypted-values.ts'
import { migrate, migrationStatus } from '../../src/storage/migrate.ts'
import { openStorage, type ReadStorage, type StorageOptions } from '../../src/storage/open.ts'
import { serverStateOf } from '../../src/storage/server-state.ts'
import { version } from '../../src/version.ts'
import type { Config } from '../config.ts'
import { assertDatabaseNotLost, missingKeys } from '../key-fingerprints.ts'
import { readSecretsFile, secretsFile } from '../secrets/file.ts'
import { type Repair, restoreIt } from './finding.ts'

/* The database, and whether it belongs to these keys. */

/** Free room in a file that is worth a look. */
const maxFreeBytes = 2 ** 30

export async function checkServer(storage: ReadStorage): Promise<Finding[]> {
  const check = 'database'
  const before = Date.now()
  const state = await serverStateOf(storage)
  const { data, log = 0 } = await storage.sizes()
  const bytes = data + log
  const { version: server, clockMs, connections, idleTransactions } = state
  const findings: Finding[] = [passed(check, `${server}, ${formatBytes(bytes)}`)]
  const move = await readMove(storage)
  if (move) {
    findings.push(
      failed(check, {
        message: `${describeMove(move)}, and takes no changes.`,
        reason: 'The service does not start on it: what it accepted would be missing there.',
        remedy: 'start svc serve with that database; if that copy is not used, svc db copy --reopen',
      }),
    )
  }
  if (state.isReadOnly) {
    findings.push(
      failed(check, {
        message: 'It accepts no changes.',
        reason: 'Every change is answered with 503.',
        remedy:
          'point DATABASE_URL at the primary, or let the user of the service write svc.sqlite and its directory',
      }),
    )
  }
  if (
    state.freeShare !== undefined &&
    state.freeShare > 0.5 &&
    bytes > maxFreeBytes &&
    !state.givesSpaceBack
  ) {
    findings.push(
      warning(check, {
        message: `Half of its ${formatBytes(bytes)} or more are free.`,
        reason: 'Deleted rows leave room in the file, which new rows use; the disk does not get it back.',
        remedy: `stop the service and run svc db vacuum, which needs ${formatBytes(2 * bytes)} of free disk; from then on the service shrinks the file by itself`,
      }),
    )
  }
  if (connections && connections.used >= connections.max * 0.9) {
    findings.push(
      warning(check, {
        message: `${connections.used} of ${connections.max} connections of the server are used.`,
        reason: 'A replica that starts, or a pool that grows, is refused.',
        remedy: 'raise max_connections of PostgreSQL, or lower DATABASE_POOL_SIZE',
      }),
    )
  }
  for (const { pid, application, seconds } of idleTransactions) {
    findings.push(
      warning(check, {
        message: `Connection ${pid} (${application || 'without a name'}) has been idle in a transaction for ${seconds} s.`,
        reason: 'It keeps its locks, and deleted rows cannot be removed before it ends.',
        remedy: `end its program, or: select pg_terminate_backend(${pid})`,
      }),
    )
  }
  if (clockMs !== undefined)
    findings.push(...clockFinding(clockMs, clockMs, [before, Date.now()], 'the database'))
  return findings
}

/** Difference of two clocks, in milliseconds, at which tokens and limits begin to be wrong. */
const maxSkewMs = 5000

/**
 * The other clock showed something from `earliest` to `latest` (milliseconds since 1970) while this one showed something within
 * `own`.
 */
export function clockFinding(
  earliest: number,
  latest: number,
  own: readonly [from: number, to: number],
  other: string,
): Finding[] {
  const [behind, ahead] = [earliest - own[1], own[0] - latest]
  if (behind <= maxSkewMs && ahead <= maxSkewMs) return []
  const seconds = Math.round(Math.max(behind, ahead) / 1000)
  return [
    warning('clock', {
      message: `The clock of this machine is ${seconds} s ${behind > 0 ? 'behind' : 'ahead of'} that of ${other}.`,
      reason: 'One-time passwords, tokens and the times of the audit log depend on it.',
      remedy: 'synchronize both clocks, for instance with chrony or systemd-timesyncd',
    }),
  ]
}

/** Starts with both addresses as the service would. */
export async function checkPooler({ databaseUrl, poolerUrl, dataDir }: Config): Promise<Finding[]> {
  if (poolerUrl === undefined) return []
  const check = 'pooler'
  try {
    const storage = await openStorage({ databaseUrl, poolerUrl, dataDir, postgres: { poolSize: 1 } })
    await storage.close()
    return [passed(check, 'DATABASE_URL and DATABASE_DIRECT_URL lead to one database')]
  } catch (error) {
    return [
      failed(check, {
        message: `${(error as Error).message}.`,
        reason: 'The service does not start, or answers 503.',
        remedy: 'set both addresses as the section on connection poolers of svc-serve(8) says',
      }),
    ]
  }
}

/** Adds pending migrations to `repairs`. */
export async function checkSchema(
  storage: ReadStorage,
  options: StorageOptions,
  repairs: Repair[],
): Promise<Finding[]> {
  const check = 'database schema'
  await assertNoUnfinishedRestore(storage)
  const states = await migrationStatus(storage, migrations, { version })
  const named = (state: string) => states.filter((one) => one.state === state).map(({ name }) => name)
  const [changed, pending] = [named('changed'), named('pending')]
  if (changed.length > 0) {
    return [
      failed(check, {
        message: `The file of ${changed.join(', ')} is not the one that was applied.`,
        reason: 'The service does not start on a schema that it cannot know.',
        remedy: 'install the release of svc again',
      }),
    ]
  }
  if (pending.length === 0) return [passed(check, `${pluralize(states.length, 'migration')} applied`)]
  if (pending.length === states.length) {
    return [
      failed(check, {
        message: 'The database is empty, or belongs to another program.',
        reason: 'All that the service stored is somewhere else, or lost.',
        remedy: 'check DATABASE_URL and SVC_DATA_DIR, or restore a backup; svc serve fills an empty database',
      }),
    ]
  }
  const plan = `apply ${pluralize(pending.length, 'migration')}, ${pending[0]} and later, to the database`
  repairs.push({ plan, run: () => migrateAt(options) })
  return [
    warning(check, {
      message: `${pluralize(pending.length, 'migration')} not applied: ${shortened(pending)}.`,
      reason: 'This version needs them; the service applies them when it starts, unless AUTO_MIGRATE is off.',
      remedy: 'svc db migrate',
    }),
  ]
}

const shortened = (names: readonly string[]): string =>
  names.length > 5 ? `${names.slice(0, 5).join(', ')} and ${names.length - 5} more` : names.join(', ')

async function migrateAt(options: StorageOptions): Promise<void> {
  const storage = await openStorage({ ...options, postgres: { statementMs: 0 } })
  await migrate(storage, migrations, { version }).finally(() => storage.close())
}

/** An empty database beside signed checkpoints of another one. */
export async function checkNotLost({ read }: ReadStorage, dataDir: string): Promise<Finding[]> {
  try {
    await assertDatabaseNotLost({ read }, dataDir)
    return []
  } catch (error) {
    if (!(error instanceof SetupError)) throw error
    return [
      failed('database', {
        message: error.message,
        reason: 'The service refuses to start on it.',
        remedy: 'restore the database from a backup',
      }),
    ]
  }
}

/** Reading all pages of a large SQLite file takes minutes. */
export const integrityMs = 1_800_000

export async function checkIntegrity(storage: ReadStorage): Promise<Finding[]> {
  const check = 'database pages'
  const seen = await storage.checkIntegrity(AbortSignal.timeout(integrityMs))
  if (seen.verdict === 'sound') return [passed(check, 'No damage found')]
  if (seen.verdict === 'unknown') {
    return [
      warning(check, {
        message: `Damage cannot be detected: ${seen.reason}.`,
        reason: 'A damaged page shows only when a request needs it.',
        remedy: 'stop PostgreSQL, and run pg_checksums --enable',
      }),
    ]
  }
  return [
    failed(check, {
      message: `Damaged: ${seen.found.join('; ')}.`,
      reason: 'What the database stores is not what was written; it may spread with each change.',
      remedy: restoreIt,
    }),
  ]
}

export async function checkKeyFingerprints({ read }: ReadStorage, config: Config): Promise<Finding[]> {
  const check = 'keys'
  const missing = await missingKeys(read, config)
  if (missing.length === 0) {
    const { since } = await read
      .selectFrom('key_prints')
      .select((eb) => eb.fn.min('since').as('since'))
      .executeTakeFirstOrThrow()
    return [passed(check, `Those that the database is used with, the oldest since ${since?.slice(0, 10)}`)]
  }
  return [
    failed(check, {
      message: `The database is used with other keys: ${missing.join(', ')}.`,
      reason: 'The service refuses to start with these: it could not open what is stored.',
      remedy: 'restore secrets.json or the settings from a backup, or take them from a replica that runs',
    }),
  ]
}

/** Age at which a secret is to be changed: NIST SP 800-57 gives keys of these kinds one year to two. */
const oldSecretDays = 365

/** The metrics token makes nothing that is stored, so that nobody knows since when it is used. */
export async function checkSecretAges(
  { read }: Pick<ReadStorage, 'read'>,
  { dataDir, secrets }: Pick<Config, 'dataDir' | 'secrets'>,
  now: Instant,
): Promise<Finding[]> {
  const check = 'secret ages'
  const rows = await read.selectFrom('key_prints').select(['name', 'since']).orderBy('name').execute()
  const stored = readSecretsFile(secretsFile(dataDir))
  const isOurs = (name: string): name is keyof typeof secretEntryOf => name in secretEntryOf
  const old = rows.filter(({ since }) => addSeconds(since, oldSecretDays * 86_400) <= now)
  const found = old.flatMap(({ name, since }) => {
    if (!isOurs(name) || name === 'METRICS_TOKEN') return []
    const days = Math.floor(secondsBetween(since, now) / 86_400)
    const isInFile = stored?.[secretEntryOf[name]] === secrets[secretEntryOf[name]]
    return warning(check, {
      message: `${name} has been in use for ${days} days, since ${since.slice(0, 10)}.`,
      reason:
        'Whoever has learned it in that time, from an old backup or as a former colleague, can still use it.',
      remedy: isInFile
        ? `svc secrets rotate ${name}`
        : `change it where it is set, as svc-serve(8) says under Changing a key`,
    })
  })
  return found.length > 0 ? found : [passed(check, `All are in use for less than ${oldSecretDays} days`)]
}

export async function checkEncryptedValues(storage: ReadStorage, cipher: Cipher): Promise<Finding[]> {
  const check = 'encrypted values'
  const unreadable = await findUnreadable(storage, cipher)
  if (unreadable.length === 0) return [passed(check, 'All open with the keys of this service')]
  return unreadable.map(({ column, otherKey, damaged }) => {
    const parts = [
      ...(otherKey > 0 ? [`${pluralize(otherKey, 'value')} of ${column} encrypted with another key`] : []),
      ...(damaged > 0 ? [`${pluralize(damaged, 'value')} of ${column} changed since`] : []),
    ]
    const report = expiring.has(column) ? warning : failed
    return report(check, {
      message: `${parts.join(', ')}.`,
      reason: remedies[column]?.lost ?? 'What needs them fails.',
      remedy: `give the former key as APP_ENCRYPTION_KEY_PREVIOUS, or ${remedies[column]?.again ?? 'let them expire'}`,
    })
  })
}

const webhook = { lost: 'These webhooks deliver nothing.', again: 'set them again with svc webhooks update' }

/** Replies to requests are kept for a day. */
const expiring: ReadonlySet<string> = new Set(['idempotency_keys.reply'])

/** Of values that do not expire by themselves. */
const remedies: Readonly<Record<string, { lost: string; again: string }>> = {
  'users.totp_secret': {
    lost: 'These people cannot sign in with their authenticator.',
    again: 'remove the factor with svc users reset-mfa, so that they set up another',
  },
  'webhooks.url': webhook,
  'webhooks.headers': webhook,
  'webhooks.secret': webhook,
  'sso_providers.client_secret': {
    lost: 'Nobody can sign in with these providers.',
    again: 'set it again with svc sso update',
  },
  'saml_keys.private_key': {
    lost: 'Requests to SAML providers are not signed.',
    again: 'have a system administrator set signRequests of a provider again',
  },
}

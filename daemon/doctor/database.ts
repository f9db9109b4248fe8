import { migrations } from '../../migrations/index.ts'
import type { Cipher } from '../../src/core/cipher.ts'
import type { Finding } from '../../src/core/finding.ts'
import { findUnreadable } from '../../src/storage/encrypted-values.ts'
import { migrate, migrationStatus } from '../../src/storage/migrate.ts'
import type { Storage } from '../../src/storage/open.ts'
import { serverStateOf } from '../../src/storage/server-state.ts'
import type { Config } from '../config.ts'
import { missingKeys } from '../key-fingerprints.ts'
import { counted, failed, passed, type Repair, warning } from './finding.ts'
import { formatBytes } from './machine.ts'

/* The database, and whether it belongs to these keys. */

const restore = 'stop the service, keep a copy of the damaged files, and restore the database from a backup'

export async function checkServer(storage: Storage): Promise<Finding[]> {
  const check = 'database'
  const before = Date.now()
  const { version, bytes, clockMs, connections, idleTransactions } = await serverStateOf(storage)
  const findings: Finding[] = [passed(check, `${version}, ${formatBytes(bytes)}`)]
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
    findings.push(...clockFinding(clockMs - (before + Date.now()) / 2, 'the database'))
  return findings
}

/** Difference of two clocks, in milliseconds, at which tokens and limits begin to be wrong. */
const maxSkewMs = 5000

export function clockFinding(skewMs: number, other: string): Finding[] {
  if (Math.abs(skewMs) <= maxSkewMs) return []
  const seconds = Math.round(Math.abs(skewMs) / 1000)
  return [
    warning('clock', {
      message: `The clock of this machine is ${seconds} s ${skewMs > 0 ? 'behind' : 'ahead of'} that of ${other}.`,
      reason: 'One-time passwords, tokens and the times of the audit log depend on it.',
      remedy: 'synchronize both clocks, for instance with chrony or systemd-timesyncd',
    }),
  ]
}

export async function checkWritable(storage: Storage): Promise<Finding[]> {
  await storage.check()
  return [passed('database writes', 'Accepted')]
}

export async function checkSchema(storage: Storage): Promise<{ findings: Finding[]; repairs: Repair[] }> {
  const check = 'database schema'
  const states = await migrationStatus(storage, migrations)
  const named = (state: string) => states.filter((one) => one.state === state).map(({ name }) => name)
  const changed = named('changed')
  if (changed.length > 0) {
    const found = failed(check, {
      message: `The file of ${changed.join(', ')} is not the one that was applied.`,
      reason: 'The service does not start on a schema that it cannot know.',
      remedy: 'install the release of svc again',
    })
    return { findings: [found], repairs: [] }
  }
  const pending = named('pending')
  if (pending.length === 0)
    return { findings: [passed(check, `${counted(states.length, 'migration')} applied`)], repairs: [] }
  const found = warning(check, {
    message: `${counted(pending.length, 'migration')} not applied: ${pending.join(', ')}.`,
    reason: 'This version needs them; the service applies them when it starts, unless AUTO_MIGRATE is off.',
    remedy: 'svc db migrate',
  })
  const repair = { check, plan: `apply ${pending.join(', ')}`, run: () => migrate(storage, migrations) }
  return { findings: [found], repairs: [repair] }
}

/** Reading all pages of a large SQLite file takes minutes. */
export const integrityMs = 1_800_000

export async function checkIntegrity(storage: Storage): Promise<Finding[]> {
  const check = 'database pages'
  const seen = await storage.checkIntegrity(AbortSignal.timeout(integrityMs))
  if (seen.verdict === 'sound') return [passed(check, 'Sound')]
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
      remedy: restore,
    }),
  ]
}

export async function checkKeyFingerprints({ read }: Storage, config: Config): Promise<Finding[]> {
  const check = 'keys'
  const missing = await missingKeys(read, config)
  if (missing.length === 0) return [passed(check, 'Those that the database is used with')]
  return [
    failed(check, {
      message: `The database is used with other keys: ${missing.join(', ')}.`,
      reason: 'The service refuses to start with these: it could not open what is stored.',
      remedy: 'restore secrets.json or the settings from a backup, or take them from a replica that runs',
    }),
  ]
}

export async function checkEncryptedValues(storage: Storage, cipher: Cipher): Promise<Finding[]> {
  const check = 'encrypted values'
  const unreadable = await findUnreadable(storage, cipher)
  if (unreadable.length === 0) return [passed(check, 'All open with the keys of this service')]
  return unreadable.map(({ column, otherKey, damaged }) => {
    const parts = [
      ...(otherKey > 0 ? [`${counted(otherKey, 'value')} of ${column} sealed with another key`] : []),
      ...(damaged > 0 ? [`${counted(damaged, 'value')} of ${column} changed since`] : []),
    ]
    return failed(check, {
      message: `${parts.join(', ')}.`,
      reason: remedies[column]?.lost ?? 'What needs them fails.',
      remedy: `give the former key as APP_ENCRYPTION_KEY_PREVIOUS, or ${remedies[column]?.again ?? 'let them expire'}`,
    })
  })
}

const webhook = { lost: 'These webhooks deliver nothing.', again: 'set them again with svc webhooks update' }

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

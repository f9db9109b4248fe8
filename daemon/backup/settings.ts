import { accessSync, constants, statSync } from 'node:fs'
import { isAbsolute } from 'node:path'
import { Cron } from 'croner'
import { SetupError } from '../../src/core/errors.ts'
import { type OutboundSettings, readOutbound } from '../integrations/guard.ts'
import { readAccess, type S3Settings, trimmed } from '../integrations/s3-settings.ts'
import { type Env, readInteger } from '../variables.ts'

/** Scheduled backups and restore drills. */
export type BackupSettings = {
  /** BACKUP_SCHEDULE: cron expression, in UTC as all replicas have it. */
  schedule: string | undefined
  /** BACKUP_TARGET: a directory or s3://bucket/prefix. */
  target: string | undefined
  /** BACKUP_RECIPIENTS: public keys in the age format. */
  recipients: readonly string[]
  /** BACKUP_KEEP: newest backups that are kept. */
  keep: number
  /** BACKUP_KEEP_DAYS: age at which a backup is removed; 0: never. */
  keepDays: number
  /** BACKUP_LIMIT_RATE: bytes per second. */
  limitRate: string
  /** DRILL_SCHEDULE: cron expression. */
  drillSchedule: string | undefined
  /** DRILL_IDENTITY_FILE: opens encrypted backups. */
  identityFile: string | undefined
  /** The environment of the child processes that do the work. */
  env: Env
}

/** @throws SetupError */
export function readBackups(env: Env): BackupSettings {
  const recipients = (env.BACKUP_RECIPIENTS ?? '').split(',').flatMap((one) => one.trim() || [])
  const settings: BackupSettings = {
    schedule: readSchedule(env, 'BACKUP_SCHEDULE'),
    target: env.BACKUP_TARGET,
    recipients,
    keep: readInteger(env, 'BACKUP_KEEP', 30, 1, 1000),
    keepDays: readInteger(env, 'BACKUP_KEEP_DAYS', 0, 0, 36_500),
    limitRate: env.BACKUP_LIMIT_RATE ?? '20M',
    drillSchedule: readSchedule(env, 'DRILL_SCHEDULE'),
    identityFile: env.DRILL_IDENTITY_FILE,
    env,
  }
  const { schedule, target, drillSchedule, identityFile } = settings
  parseRate('BACKUP_LIMIT_RATE', settings.limitRate)
  for (const [name, set] of [
    ['BACKUP_SCHEDULE', schedule],
    ['DRILL_SCHEDULE', drillSchedule],
  ]) {
    if (set !== undefined && target === undefined)
      throw new SetupError(`${name} is set, but not BACKUP_TARGET: name a directory or s3://bucket/prefix`)
  }
  if (target !== undefined) checkTarget(env, target)
  if (drillSchedule !== undefined && recipients.length > 0 && identityFile === undefined)
    throw new SetupError(
      'DRILL_SCHEDULE needs DRILL_IDENTITY_FILE: with BACKUP_RECIPIENTS the backups are encrypted',
    )
  if (identityFile !== undefined) checkReadable(identityFile)
  return settings
}

function readSchedule(env: Env, name: string): string | undefined {
  const text = env[name]
  if (text === undefined) return undefined
  const wrong = (why: string) =>
    new SetupError(
      `${name} must be a cron expression such as "30 2 * * *" (minute hour day month weekday): ${why}`,
    )
  try {
    if (nextAfter(text, new Date()) !== undefined) return text
  } catch (error) {
    throw wrong((error as Error).message)
  }
  throw wrong('it names no time')
}

/** The first time of a schedule after another one. */
export const nextAfter = (schedule: string, after: Date): Date | undefined =>
  new Cron(schedule, { paused: true, mode: '5-part', timezone: 'UTC' }).nextRun(after) ?? undefined

/** A relative path would depend on where the service is started. */
function checkTarget(env: Env, target: string): void {
  if (/^s3:/i.test(target)) {
    readBucket(env, target)
    return
  }
  if (!isAbsolute(target))
    throw new SetupError('BACKUP_TARGET must be the absolute path of a directory, or s3://bucket/prefix')
  if (!statSync(target, { throwIfNoEntry: false })?.isDirectory())
    throw new SetupError(`BACKUP_TARGET: there is no directory ${target}`)
}

function checkReadable(file: string): void {
  try {
    accessSync(file, constants.R_OK)
  } catch (error) {
    throw new SetupError(
      `DRILL_IDENTITY_FILE ${file} cannot be read: ${(error as NodeJS.ErrnoException).code}`,
    )
  }
}

/** The storage behind an s3:// URL, with BACKUP_S3_ENDPOINT and the others of its kind. @throws SetupError */
export function readBucket(env: Env, url: string): { settings: S3Settings; outbound: OutboundSettings } {
  const [, bucket, prefix = ''] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/.exec(url) ?? []
  if (bucket === undefined)
    throw new SetupError(`"${url}" must be like s3://bucket/prefix, with the name of a bucket`)
  const settings = { bucket, prefix: trimmed(prefix), ...readAccess(env, 'BACKUP_S3_') }
  return { settings, outbound: readOutbound(env) }
}

const units: Readonly<Record<string, number>> = { '': 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30 }

/** `20M` as bytes per second. @throws SetupError */
export function parseRate(name: string, text: string): number {
  const [, count, unit = ''] = /^([1-9]\d{0,9})([KMG]?)$/.exec(text) ?? []
  if (count === undefined)
    throw new SetupError(`${name} must be bytes per second such as 500K, 20M or 1G, not "${text}"`)
  return Number(count) * units[unit]!
}

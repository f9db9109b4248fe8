import { basename, join, resolve } from 'node:path'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { type AuditEvent, toDraftEntry } from '../../src/audit/rules.ts'
import { formatBytes } from '../../src/core/byte-size.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Finding, failed, passed, pluralize, warning } from '../../src/core/finding.ts'
import { type Instant, systemClock } from '../../src/core/time.ts'
import { tablesOf } from '../../src/storage/backup/catalog.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { noDatabase } from '../../src/storage/no-database.ts'
import { databaseExists, type Storage } from '../../src/storage/open.ts'
import { backupTargetOf, databaseOf, environmentOn } from '../config.ts'
import { secretsFile } from '../secrets/file.ts'
import { IdentityError } from './age.ts'
import type { CheckedArchive } from './archive-check.ts'
import { tableDigest } from './archive-lines.ts'
import type { Progress } from './backup.ts'
import { examineRestored } from './drill-checks.ts'
import { openDrillScratch } from './drill-scratch.ts'
import { archiveBytes, isTarget, storeAt } from './open-store.ts'
import { restore } from './restore.ts'
import { ownArchives } from './retention.ts'
import { recordFailure, recordSuccess, withRunsDatabase } from './runs.ts'

export type DrillOptions = {
  'data-dir'?: string | undefined
  /** An archive, or a target whose newest one is taken; by default BACKUP_TARGET. */
  from?: string | undefined
  identity?: string | undefined
  /** Where an SQLite database is restored. */
  scratch?: string | undefined
}

export type DrillReport = {
  verdict: 'passed' | 'failed'
  backup: { file: string; madeAt: Instant | null; bytes: number } | null
  durationMs: number
  findings: Finding[]
}

type On = { signal: AbortSignal; onProgress(it: Progress): void; note(text: string): void }

/**
 * Restores a backup into a database that is removed afterwards, and examines the result. The verdict is an entry of the system
 * chain. @throws SetupError when there is no installation to which the result could be told, IdentityError when none was given that
 * could open the archive
 */
export async function drill(options: DrillOptions, on: On): Promise<DrillReport> {
  const place = databaseOf(options)
  const from = options.from ?? backupTargetOf()
  if (from === undefined)
    throw new SetupError('Name a backup, its directory or s3://bucket/prefix, or set BACKUP_TARGET')
  if (!(await databaseExists(place))) throw noDatabase(place.dataDir)
  const begun = performance.now()
  const findings: Finding[] = []
  let backup: DrillReport['backup'] = null
  try {
    const file = isTarget(from) ? await newestOf(place, from) : from
    backup = { file, madeAt: null, bytes: await archiveBytes(file) }
    const found = backup
    await rehearseRestore(place, { ...options, file }, on, findings, (archive) => {
      found.madeAt = archive.head.madeAt
    })
  } catch (error) {
    on.signal.throwIfAborted()
    // It was not tried: neither the log nor the metrics count it as a drill.
    if (error instanceof IdentityError) throw error
    findings.push(
      failed('restore', {
        message: sentence(error),
        reason: 'Until a drill passes, nobody knows whether the database could be restored.',
        remedy:
          'mend that, or take a new backup with svc db backup and drill it; svc db drill FILE tells which of the older ones is sound',
      }),
    )
  }
  const isSound = findings.every(({ state }) => state !== 'error')
  const report: DrillReport = {
    verdict: isSound ? 'passed' : 'failed',
    backup,
    durationMs: Math.round(performance.now() - begun),
    findings,
  }
  await record(place, report).catch((error: unknown) => {
    findings.push(
      warning('record', {
        message: `The result was not recorded: ${sentence(error)}`,
        reason: 'Neither the audit log nor the metrics show this drill.',
        remedy: 'see that the database accepts changes, and repeat it',
      }),
    )
  })
  return report
}

const sentence = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The newest archive of this installation; of a target that has none of it, the newest. */
async function newestOf(place: DatabaseLocation, target: string): Promise<string> {
  const store = storeAt(target)
  const own = await withRunsDatabase(place, (storage) => ownArchives(storage.read, store))
  const newest = own[0] ?? (await store.list())[0]
  if (newest === undefined)
    throw new SetupError(`There is no backup in ${target}: svc db backup --out ${target}`)
  return newest.place
}

async function rehearseRestore(
  original: DatabaseLocation,
  options: DrillOptions & { file: string },
  { signal, onProgress, note }: On,
  findings: Finding[],
  onArchive: (archive: CheckedArchive) => void,
): Promise<void> {
  const folder = options.scratch === undefined ? join(original.dataDir, 'drill') : resolve(options.scratch)
  const { place, explain, remove } = await openDrillScratch(original, { folder, note })
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const abort = () => reject(signal.reason)
  signal.addEventListener('abort', abort)
  const work = async () => {
    signal.throwIfAborted()
    const env = environmentOn(place.databaseUrl)
    const { file, identity } = options
    const onLoaded = async (storage: Storage, archive: CheckedArchive) => {
      onArchive(archive)
      const wanted = Object.keys(archive.tail.tables).length
      const different = await differences(storage, archive)
      if (different.length > 0) throw new Error(`what was restored differs in ${different.join(', ')}`)
      const made = `Made ${archive.head.madeAt} by svc ${archive.head.version} on ${archive.head.source}`
      findings.push(passed('backup', `${basename(file)}, ${formatBytes(await archiveBytes(file))}`))
      findings.push(passed('archive', `${made}; its digests and audit chains are sound`))
      findings.push(passed('tables', `${pluralize(wanted, 'table')} as in the archive`))
    }
    const restoring = { 'data-dir': place.dataDir, file, identity, env, onLoaded, isRehearsal: true }
    const { rows, migrated } = await restore(restoring, onProgress)
    const also = migrated.length === 0 ? '' : `, and ${pluralize(migrated.length, 'migration')} applied`
    findings.push(passed('restore', `${pluralize(rows, 'row')} restored${also}`))
    findings.push(...(await examineRestored(place, env)))
  }
  let failure: unknown
  try {
    await Promise.race([work(), aborted])
  } catch (error) {
    failure = withLastingNames(explain(error), place, original)
    throw failure
  } finally {
    signal.removeEventListener('abort', abort)
    await remove().catch((error: unknown) => {
      // What is left the next drill removes: why this one failed matters more.
      if (failure === undefined) throw error
    })
  }
}

/** The scratch is gone when somebody reads this: its secrets are those of the service. */
function withLastingNames(error: unknown, scratch: DatabaseLocation, original: DatabaseLocation): unknown {
  const [gone, own] = [secretsFile(scratch.dataDir), secretsFile(original.dataDir)]
  if (!(error instanceof Error) || !error.message.includes(gone)) return error
  return new SetupError(error.message.replaceAll(gone, own), { cause: error })
}

/** Tables whose rows are not those of the archive. */
async function differences(storage: Storage, { tail }: CheckedArchive): Promise<string[]> {
  const tables = new Map((await tablesOf(storage)).map((table) => [table.name, table]))
  const different: string[] = []
  for (const [name, wanted] of Object.entries(tail.tables)) {
    const table = tables.get(name)
    const found = table && (await tableDigest(storage.read, table))
    if (found?.sha256 !== wanted.sha256) {
      different.push(`${name} (${found?.rows ?? 'no'} rows instead of ${wanted.rows})`)
    }
  }
  return different
}

const record = (
  place: DatabaseLocation,
  { verdict, backup, durationMs, findings }: DrillReport,
): Promise<void> =>
  withRunsDatabase(place, async (storage) => {
    const now = systemClock()
    const faults = findings.filter(({ state }) => state === 'error').map(({ message }) => message)
    const details = { verdict, backup, durationMs, ...(faults.length > 0 && { faults }) }
    await storage.write(async (tx) => {
      const entry: AuditEvent = {
        orgId: null,
        actorType: 'system',
        actorId: null,
        actorEmail: null,
        action: 'database.drill',
        resourceType: 'database',
        resourceId: null,
        resourceName: null,
        details,
        ipAddress: null,
        userAgent: null,
        result: verdict === 'passed' ? 'success' : 'failure',
      }
      await recordAudit(tx, toDraftEntry(entry, now))
      const at = { at: now, durationMs, bytes: backup?.bytes ?? 0 }
      if (verdict === 'passed') await recordSuccess(tx, 'drill', at)
      else await recordFailure(tx, 'drill', { at: now, reason: faults.join(' ') })
    })
    await sealPending(storage)
  })

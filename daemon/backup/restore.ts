import { statSync } from 'node:fs'
import { join } from 'node:path'
import { migrations } from '../../migrations/index.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Instant, systemClock } from '../../src/core/time.ts'
import { dropMark } from '../../src/storage/backup/restore-mark.ts'
import {
  checkRestorable,
  type DatabaseLocation,
  type RestoreTarget,
  withRestoreTarget,
} from '../../src/storage/backup/restore-target.ts'
import type { RowLoader } from '../../src/storage/backup/target-driver.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { isForeignKeyViolation, violatedUniqueKey } from '../../src/storage/database-errors.ts'
import { migrate } from '../../src/storage/migrate.ts'
import type { Storage } from '../../src/storage/open.ts'
import { traitsAt } from '../../src/storage/traits.ts'
import { databaseOf, type KnownKeys, knownKeys } from '../config.ts'
import type { UnmatchedKey } from '../key-fingerprints.ts'
import { secretsFileName } from '../secrets/file.ts'
import type { Env } from '../variables.ts'
import { type CheckedArchive, checkArchive } from './archive-check.ts'
import { writeFileAtomically } from './atomic-write.ts'
import type { Progress } from './backup.ts'
import { counterGap, type EndedWork, endPendingWork } from './end-pending-work.ts'
import type { Head } from './format.ts'
import { archiveBytes } from './open-store.ts'
import { assertOwnDirectory } from './own-directory.ts'
import { type ArchiveSource, damaged, readArchive } from './read-archive.ts'
import {
  countRestoredAccess,
  listRestoredAccess,
  type RestoredAccessCounts,
  type RevocableKind,
  revocableKinds,
  revokeAll,
} from './restored-access.ts'
import { chainsOf, findLost, type LostEntries, signChains, signStatements } from './statement.ts'

export type RestoreOptions = {
  'data-dir'?: string | undefined
  file: string
  identity?: string | undefined
  /** Names of keys whose loss is accepted. */
  'without-keys'?: readonly string[] | undefined
  /** Instead of the environment of this process. */
  env?: Env
  /** Called once the rows are in, before migrations and what a restore ends. */
  onLoaded?(storage: Storage, archive: CheckedArchive): Promise<void>
  /** Nothing is signed: what the service did not lose must not be stated as lost. */
  isRehearsal?: boolean
  /** Kinds of what gives access, of which all are ended. */
  revoke?: readonly string[] | undefined
}

export type RestoreSummary = EndedWork &
  RestoredAccessCounts & {
    file: string
    sha256: string
    madeAt: Instant
    version: string
    source: Head['source']
    /** Applied after the rows were in. */
    migrated: string[]
    rows: number
    files: number
    sessionsEnded: number
    /** That waited to be sent, and are not in the archive. */
    mailsLeft: number
    eventsLeft: number
    keysLost: string[]
    revoked: RevocableKind[]
    /** What gives access again, by kind. */
    revived: Awaited<ReturnType<typeof listRestoredAccess>>
    /** Audit entries that are known to be lost, which a signed statement explains. */
    entriesLost: LostEntries[]
    /** Whether the restore is stated with the key of the audit log. */
    isStated: boolean
  }

/** Restores an archive into the empty database that `svc serve` would use. @throws SetupError */
export async function restore(
  options: RestoreOptions,
  onProgress: (it: Progress) => void,
): Promise<RestoreSummary> {
  const isRehearsal = options.isRehearsal === true
  const revoked = revocableKinds.filter((kind) => options.revoke?.includes(kind))
  const place = databaseOf(options, options.env)
  const source = { file: options.file, identityFile: options.identity }
  const bytes = await archiveBytes(source.file)
  onProgress({ total: 2 * bytes, done: 0 })
  assertOwnDirectory(place.dataDir)
  await checkRestorable(place)
  const archive = await checkArchive(source, {
    keysWith: (secrets) => knownKeys(options, secrets, options.env),
    acceptsLossOf: (name) => options['without-keys']?.includes(name) ?? false,
    isRehearsal,
    acceptsNul: traitsAt(place).acceptsNul,
    onBytes: (done) => onProgress({ done }),
  })
  const isShadowed = archive.secrets !== undefined && isThere(join(place.dataDir, secretsFileName))
  const lost = acceptLoss(archive.unmatched, options['without-keys'] ?? [], {
    ...place,
    isShadowed,
    isRehearsal,
  })
  const entriesLost = findLost(place.dataDir, archive, systemClock())
  const signing = isRehearsal ? {} : knownKeys(options, archive.secrets, options.env).signing
  return withRestoreTarget(place, async (target) => {
    try {
      const { onLoaded } = options
      const work = { place, source, archive, lost, entriesLost, signing, revoked, onLoaded, isRehearsal }
      return await fill(target, work, (done) => onProgress({ done: bytes + done }))
    } catch (error) {
      // A rehearsal leaves nothing that could be repeated.
      if (error instanceof UnfitArchive || isRehearsal) throw error
      const message = error instanceof Error ? error.message : String(error)
      throw new SetupError(
        `The restore did not finish, and the database cannot be used before it is repeated: ${message}`,
        { cause: error },
      )
    }
  })
}

type Work = {
  place: DatabaseLocation
  source: ArchiveSource
  archive: CheckedArchive
  lost: string[]
  onLoaded: RestoreOptions['onLoaded']
  entriesLost: LostEntries[]
  signing: KnownKeys['signing']
  revoked: RevocableKind[]
  isRehearsal: boolean
}

async function fill(
  target: RestoreTarget,
  { place, source, archive, lost, entriesLost, signing, revoked, onLoaded, isRehearsal }: Work,
  onBytes: (read: number) => void,
): Promise<RestoreSummary> {
  const { storage } = target
  const { head, tail } = archive
  await migrate(storage, archive.migrations)
  const loaded = await target
    .load(async (loader) => {
      const end = await readArchive(source, loading(loader, archive, place.dataDir), onBytes)
      await loader.end()
      return end
    })
    .catch((error: unknown) => {
      const fault = faultOfRows(error)
      if (fault === undefined) throw error
      throw isRehearsal ? damaged(source.file, fault) : new UnfitArchive(source.file, fault, error)
    })
  if (loaded.sha256 !== tail.sha256) throw damaged(source.file, 'it changed while it was read')
  await onLoaded?.(storage, archive)
  const migrated = await migrate(storage, migrations)
  const now = systemClock()
  const seed = signing.current
  const counts = Object.values(tail.tables)
  const reason = `the database was restored at ${now} from a backup of ${head.madeAt}`
  const settled = await storage.write(async (tx) => {
    const gap = counterGap(head.madeAt, now)
    const counters = Object.entries(head.counters).map(([name, last]) => [name, last + gap])
    await target.setCounters(tx, Object.fromEntries(counters))
    const changes = await endPendingWork(tx, { reason, gap, now })
    if (lost.length > 0) await tx.deleteFrom('key_prints').where('name', 'in', lost).execute()
    for (const kind of revoked) await revokeAll(tx, kind, now)
    const chains = chainsOf(archive, entriesLost)
    await recordAudit(tx, entryOf(archive, { ...changes, keysLost: lost, revoked, chains }, now))
    if (seed !== undefined) await signStatements(tx, archive, { lost: entriesLost, seed, now })
    await dropMark(tx as AnyDb)
    return changes
  })
  await sealPending(storage)
  if (seed !== undefined) {
    const seeds = { isPreviousAssumed: true, previous: undefined, ...signing, current: seed }
    await signChains(storage, place.dataDir, { lost: entriesLost, seeds })
  }
  const revived = await listRestoredAccess(storage.read, now)
  return {
    file: source.file,
    sha256: tail.sha256,
    madeAt: head.madeAt,
    version: head.version,
    source: head.source,
    migrated,
    rows: counts.reduce((sum, { rows }) => sum + rows, 0),
    files: Object.keys(tail.files).length,
    sessionsEnded: head.left.sessions ?? 0,
    mailsLeft: head.left.mails ?? 0,
    eventsLeft: head.left.events ?? 0,
    keysLost: lost,
    entriesLost,
    isStated: seed !== undefined,
    ...settled,
    revoked,
    revived,
    ...(await countRestoredAccess(storage.read, revived)),
  }
}

/** Rows that the database does not accept: the same archive fails again. */
class UnfitArchive extends SetupError {
  constructor(file: string, fault: string, cause: unknown) {
    super(`${damaged(file, fault).message} What was loaded is removed when that one is restored.`, { cause })
  }
}

function faultOfRows(error: unknown): string | undefined {
  const columns = violatedUniqueKey(error)
  if (columns !== undefined) return `two of its rows have the same ${columns}`
  return isForeignKeyViolation(error) ? 'a row refers to one that is not in it' : undefined
}

function loading(loader: RowLoader, { tables, secrets }: CheckedArchive, dataDir: string) {
  let table: CheckedArchive['tables'][number] | undefined
  return {
    head() {},
    async file(path: string, content: Buffer) {
      if (path === secretsFileName && secrets === undefined) return
      // A checkpoint that is there already is compared with the chain, or explained.
      if (isThere(join(dataDir, path))) return
      await writeFileAtomically(join(dataDir, path), content)
    },
    table(name: string) {
      table = tables.find((one) => one.name === name)
    },
    rows: (rows: Parameters<RowLoader['insert']>[1]) => loader.insert(table!, rows),
    endTable() {},
  }
}

const isThere = (path: string): boolean => statSync(path, { throwIfNoEntry: false }) !== undefined

/** @throws SetupError when a key is missing whose loss was not accepted */
function acceptLoss(
  unmatched: readonly UnmatchedKey[],
  accepted: readonly string[],
  { dataDir, isShadowed, isRehearsal }: DatabaseLocation & { isShadowed: boolean; isRehearsal: boolean },
): string[] {
  const missing = unmatched.filter(({ name }) => !accepted.includes(name))
  if (missing.length === 0) return unmatched.map(({ name }) => name)
  const names = missing.map(({ name }) => name)
  if (isRehearsal) {
    throw new SetupError(
      `The rows of this backup were written with other keys than those of the service: ${names.join(', ')}. ` +
        `Drill it with the keys of then, as ${names.map((name) => `${name}_PREVIOUS`).join(' and ')} in the environment, or drill a newer backup.`,
    )
  }
  if (isShadowed) {
    throw new SetupError(
      `The rows of this backup were written with other keys (${names.join(', ')}) than those of ${join(dataDir, secretsFileName)}, ` +
        'and the backup has its own secrets.json: move that one away, and the one of the backup takes its place.',
    )
  }
  throw new SetupError(
    `The rows of this backup were written with other keys: ${names.join(', ')}. Put secrets.json of that service into ` +
      `${dataDir}, or set the keys in the environment. To restore without them, ` +
      `${names.map((name) => `--without-keys ${name}`).join(' ')} accepts that ${missing.map(({ lost }) => lost).join(', ')}.`,
  )
}

function entryOf({ head, tail }: CheckedArchive, details: Record<string, unknown>, now: Instant) {
  const backup = { sha256: tail.sha256, madeAt: head.madeAt, version: head.version, source: head.source }
  return toDraftEntry(
    {
      orgId: null,
      actorType: 'system',
      actorId: null,
      actorEmail: null,
      action: 'database.restore',
      resourceType: 'database',
      resourceId: null,
      resourceName: null,
      details: { backup, ...details },
      ipAddress: null,
      userAgent: null,
      result: 'success',
    },
    now,
  )
}

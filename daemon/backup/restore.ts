import { hash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { mkdir, open, rename } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { migrations } from '../../migrations/index.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Instant, systemClock } from '../../src/core/time.ts'
import { dropMark } from '../../src/storage/backup/restore-mark.ts'
import {
  checkRestorable,
  type Place,
  type RestoreTarget,
  withRestoreTarget,
} from '../../src/storage/backup/restore-target.ts'
import type { RowLoader } from '../../src/storage/backup/target-driver.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { databaseOf, knownKeys } from '../config.ts'
import type { UnmatchedKey } from '../key-fingerprints.ts'
import { secretsFileName } from '../secrets/file.ts'
import { type CheckedArchive, checkArchive } from './archive-check.ts'
import type { Progress } from './backup.ts'
import { keptFolders } from './contents.ts'
import type { Head } from './format.ts'
import { type ArchiveSource, damaged, readArchive } from './read-archive.ts'
import { countReturned, type Returned, type Settled, settle } from './settle.ts'

export type RestoreOptions = {
  'data-dir'?: string | undefined
  file: string
  identity?: string | undefined
  /** Names of keys whose loss is accepted. */
  'without-keys'?: readonly string[] | undefined
}

export type RestoreSummary = Settled &
  Returned & {
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
  }

/** Restores an archive into the empty database that `svc serve` would use. @throws SetupError */
export async function restore(
  options: RestoreOptions,
  onProgress: (it: Progress) => void,
): Promise<RestoreSummary> {
  const place = databaseOf(options)
  const source = { file: options.file, identityFile: options.identity }
  const bytes = statSync(source.file, { throwIfNoEntry: false })?.size ?? 0
  onProgress({ total: 2 * bytes, done: 0 })
  assertOwnDirectory(place.dataDir)
  await checkRestorable(place)
  const archive = await checkArchive(source, {
    keysWith: (secrets) => knownKeys(options, secrets),
    acceptsNul: place.databaseUrl === undefined,
    onBytes: (done) => onProgress({ done }),
  })
  const lost = acceptLoss(archive.unmatched, options['without-keys'] ?? [], place)
  assertFilesFit(place.dataDir, archive)
  return withRestoreTarget(place, async (target) => {
    try {
      return await fill(target, { place, source, archive, lost }, (done) =>
        onProgress({ done: bytes + done }),
      )
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error)
      throw new SetupError(
        `The restore did not finish, and the database cannot be used before it is repeated: ${message}`,
        { cause: error },
      )
    }
  })
}

/** @throws SetupError for root, whose files the user of the service could not open */
function assertOwnDirectory(dataDir: string): void {
  const owner = statSync(dataDir, { throwIfNoEntry: false })?.uid
  if (process.getuid?.() !== 0 || owner === undefined || owner === 0) return
  throw new SetupError(
    `${dataDir} belongs to user ${owner}: run this as that user, who has to open what is restored`,
  )
}

type Work = { place: Place; source: ArchiveSource; archive: CheckedArchive; lost: string[] }

async function fill(
  target: RestoreTarget,
  { place, source, archive, lost }: Work,
  onBytes: (read: number) => void,
): Promise<RestoreSummary> {
  const { storage } = target
  const { head, tail } = archive
  await migrate(storage, archive.migrations)
  const loaded = await target.load(async (loader) => {
    const end = await readArchive(source, loading(loader, archive, place.dataDir), onBytes)
    await loader.end()
    return end
  })
  if (loaded.sha256 !== tail.sha256) throw damaged(source.file, 'it changed while it was read')
  const migrated = await migrate(storage, migrations)
  const now = systemClock()
  const counts = Object.values(tail.tables)
  const reason = `the database was restored at ${now} from a backup of ${head.madeAt}`
  const settled = await storage.write(async (tx) => {
    await target.setCounters(tx, head.counters)
    const changes = await settle(tx, { reason, now })
    if (lost.length > 0) await tx.deleteFrom('key_prints').where('name', 'in', lost).execute()
    await recordAudit(tx, entryOf(archive, { ...changes, keysLost: lost }, now))
    await dropMark(tx as AnyDb)
    return changes
  })
  await sealPending(storage)
  return {
    file: source.file,
    sha256: tail.sha256,
    ...{ madeAt: head.madeAt, version: head.version, source: head.source },
    migrated,
    rows: counts.reduce((sum, { rows }) => sum + rows, 0),
    files: Object.keys(tail.files).length,
    sessionsEnded: head.left.sessions ?? 0,
    mailsLeft: head.left.mails ?? 0,
    eventsLeft: head.left.events ?? 0,
    keysLost: lost,
    ...settled,
    ...(await countReturned(storage.read, now)),
  }
}

function loading(loader: RowLoader, { tables, secrets }: CheckedArchive, dataDir: string) {
  let table: CheckedArchive['tables'][number] | undefined
  return {
    head() {},
    async file(path: string, content: Buffer) {
      if (path === secretsFileName && (secrets === undefined || isThere(join(dataDir, path)))) return
      await writeFileAt(join(dataDir, path), content)
    },
    table(name: string) {
      table = tables.find((one) => one.name === name)
    },
    rows: (rows: Parameters<RowLoader['insert']>[1]) => loader.insert(table!, rows),
    endTable() {},
  }
}

const isThere = (path: string): boolean => statSync(path, { throwIfNoEntry: false }) !== undefined

/** The file has all of its bytes or is not there. */
async function writeFileAt(path: string, content: Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const draft = join(dirname(path), `.restore.${process.pid}`)
  const file = await open(draft, 'w', 0o600)
  await file.writeFile(content)
  await file.sync()
  await file.close()
  await rename(draft, path)
}

/** @throws SetupError when a key is missing whose loss was not accepted */
function acceptLoss(
  unmatched: readonly UnmatchedKey[],
  accepted: readonly string[],
  { dataDir }: Place,
): string[] {
  const missing = unmatched.filter(({ name }) => !accepted.includes(name))
  if (missing.length === 0) return unmatched.map(({ name }) => name)
  const names = missing.map(({ name }) => name)
  throw new SetupError(
    `The rows of this backup were written with other keys: ${names.join(', ')}. Put secrets.json of that service into ` +
      `${dataDir}, or set the keys in the environment. To restore without them, ` +
      `${names.map((name) => `--without-keys ${name}`).join(' ')} accepts that ${missing.map(({ lost }) => lost).join(', ')}.`,
  )
}

/** @throws SetupError for a checkpoint or mail that is not of the backup: it belongs to another database */
function assertFilesFit(dataDir: string, { tail }: CheckedArchive): void {
  for (const folder of keptFolders) {
    const path = join(dataDir, folder)
    const names = isThere(path) ? readdirSync(path) : []
    const foreign = names.find(
      (name) => !name.startsWith('.') && !isOfBackup(join(path, name), tail.files[`${folder}/${name}`]),
    )
    if (foreign === undefined) continue
    throw new SetupError(
      `${join(path, foreign)} is not of this backup, but of what was here before: move ${path} away`,
    )
  }
}

function isOfBackup(path: string, own: { sha256: string } | undefined): boolean {
  return own !== undefined && hash('sha256', readFileSync(path), 'hex') === own.sha256
}

function entryOf({ head, tail }: CheckedArchive, details: Record<string, unknown>, now: Instant) {
  const backup = { sha256: tail.sha256, madeAt: head.madeAt, version: head.version, source: head.source }
  return toDraftEntry(
    {
      ...{ orgId: null, actorType: 'system', actorId: null, actorEmail: null },
      ...{ action: 'database.restore', resourceType: 'database', resourceId: null, resourceName: null },
      ...{ details: { backup, ...details }, ipAddress: null, userAgent: null, result: 'success' },
    },
    now,
  )
}

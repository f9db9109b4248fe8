import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { constants, createZstdCompress } from 'node:zlib'
import { migrations } from '../../migrations/index.ts'
import { SetupError } from '../../src/core/errors.ts'
import { addSeconds, type Instant, systemClock } from '../../src/core/time.ts'
import { type Snapshot, withSnapshot } from '../../src/storage/backup/snapshot.ts'
import { version } from '../../src/version.ts'
import { databaseOf, type KnownKeys, knownKeys } from '../config.ts'
import { secretsFile } from '../secrets/file.ts'
import { encrypter } from './age.ts'
import { archiveLines, countRows, headOf, type KeptFile, readCheckpointCopies } from './archive-lines.ts'
import { archiveName } from './archive-name.ts'
import { cipherFor } from './encryption-check.ts'
import type { Head, Tail } from './format.ts'
import { isTarget, storeAt, storedArchive } from './open-store.ts'
import { rateLimited, type Stopwatch } from './rate-limit.ts'
import { prune } from './retention.ts'
import { recordBackup } from './runs.ts'
import { parseRate } from './settings.ts'

export type BackupOptions = {
  'data-dir'?: string | undefined
  out: string
  recipient?: readonly string[] | undefined
  'with-secrets'?: boolean | undefined
  /** Such as `20M`. */
  'limit-rate'?: string | undefined
  /** Afterwards, backups of this installation beyond this number, or older, are removed. */
  keep?: number | undefined
  'keep-days'?: number | undefined
}

export type BackupSummary = {
  file: string
  bytes: number
  sha256: string
  madeAt: string
  source: Head['source']
  migration: string
  tables: number
  rows: number
  files: number
  encrypted: boolean
  withSecrets: boolean
  durationMs: number
  /** Older archives that were removed. */
  removed: string[]
  /** What went wrong after the archive was complete. */
  warnings: string[]
}

export type Progress = { total?: number; done: number }

/** Writes an archive of the database that `svc serve` would use, also while it runs. @throws SetupError */
export async function backUp(
  options: BackupOptions,
  onProgress: (it: Progress) => void,
  stopwatch?: Stopwatch,
): Promise<BackupSummary> {
  const place = databaseOf(options)
  const recipients = options.recipient ?? []
  const encrypt = recipients.length > 0 ? await encrypter(recipients) : undefined
  const secrets = options['with-secrets']
    ? await readSecretsFile(place.dataDir, encrypt !== undefined)
    : undefined
  const rate = options['limit-rate']
  const bytesPerSecond = rate === undefined ? undefined : parseRate('--limit-rate', rate)
  const madeAt = systemClock()
  const begun = performance.now()
  const toTarget = isTarget(options.out)
  const { store, name } = toTarget
    ? { store: storeAt(options.out), name: archiveName(madeAt, encrypt !== undefined) }
    : storedArchive(options.out)
  const { keep, 'keep-days': keepDays } = options
  const isPruned = keep !== undefined || keepDays !== undefined
  if (isPruned && !toTarget)
    throw new SetupError('--keep and --keep-days need --out with a directory or s3://bucket/prefix')
  const warnings: string[] = []
  // A failure of what is done besides becomes a warning; the backup goes on.
  const attempt = (work: () => Promise<void>) =>
    work().catch((error: Error) => void warnings.push(error.message))
  if (toTarget) await attempt(() => store.sweep(new Date(addSeconds(madeAt, -leftoverSeconds))))
  const files = await readCheckpointCopies(place.dataDir)
  const known = keysIfReadable(options)
  const contents = { dataDir: place.dataDir, files, secrets, known, madeAt }
  const { head, tail, bytes } = await withSnapshot(place, (snapshot) =>
    writeArchive(snapshot, contents, onProgress, (lines) =>
      packed(lines, encrypt, (chunks) => store.write(name, rateLimited(chunks, bytesPerSecond, stopwatch))),
    ),
  )
  const file = store.placeOf(name)
  const durationMs = Math.round(performance.now() - begun)
  let removed: string[] = []
  await attempt(async () => {
    await recordBackup(place, { place: file, madeAt, bytes, durationMs })
    if (isPruned) removed = await prune(place, store, { keep, keepDays }, madeAt)
  })
  return {
    file,
    bytes,
    ...contentsOf(head, tail),
    encrypted: encrypt !== undefined,
    withSecrets: secrets !== undefined,
    durationMs,
    removed,
    warnings,
  }
}

type Contents = {
  dataDir: string
  files: readonly KeptFile[]
  secrets: Buffer | undefined
  known: KnownKeys
  madeAt: Instant
}

/** Writes the lines of an archive with `write`. Its head says what was backed up, its tail what was written of it. */
async function writeArchive(
  snapshot: Snapshot,
  { dataDir, files, secrets, known, madeAt }: Contents,
  onProgress: (it: Progress) => void,
  write: (lines: AsyncIterable<Buffer>) => Promise<{ bytes: number }>,
): Promise<{ head: Head; tail: Tail; bytes: number }> {
  checkMigrations(snapshot)
  const head = await headOf(snapshot, { version, madeAt })
  onProgress({ total: await countRows(snapshot), done: 0 })
  let tail: Tail | undefined
  const parts = { dataDir, files, secrets, cipher: cipherFor(head.keys, known) }
  const lines = archiveLines(snapshot, head, parts, {
    rows: (done) => onProgress({ done }),
    ended: (it) => {
      tail = it
    },
  })
  const { bytes } = await write(lines)
  return { head, tail: tail!, bytes }
}

/** What a summary says of an archive's contents. */
function contentsOf(head: Head, tail: Tail) {
  const counts = Object.values(tail.tables)
  return {
    sha256: tail.sha256,
    madeAt: head.madeAt,
    source: head.source,
    migration: head.migrations.at(-1)!.name,
    tables: counts.length,
    rows: counts.reduce((sum, { rows }) => sum + rows, 0),
    files: Object.keys(tail.files).length,
  }
}

/** A backup needs no key: where they cannot be read, nobody notes which encrypted values do not open. */
function keysIfReadable(options: BackupOptions): KnownKeys {
  try {
    return knownKeys(options)
  } catch (error) {
    if (!(error instanceof SetupError)) throw error
    const previous = {
      jwt: undefined,
      encryption: undefined,
      enrollmentPepper: undefined,
      recoveryPepper: undefined,
    }
    return { secrets: {}, previous, signing: {} }
  }
}

/** An unfinished archive to which nothing was added for so long belongs to nobody. */
const leftoverSeconds = 3600

type Bytes = ReadableStream<Uint8Array>

/** Compresses lines, and encrypts them, for `write`. */
async function packed<T>(
  lines: AsyncIterable<Buffer>,
  encrypt: ((plain: Bytes) => Promise<Bytes>) | undefined,
  write: (chunks: AsyncIterable<Uint8Array>) => Promise<T>,
): Promise<T> {
  const source = Readable.from(lines, { objectMode: false, highWaterMark: 2 ** 20 })
  const compress = createZstdCompress({ params: { [constants.ZSTD_c_checksumFlag]: 1 } })
  let result: T | undefined
  await pipeline(source, compress, async (bytes: AsyncIterable<Buffer>) => {
    if (encrypt === undefined) result = await write(bytes)
    else {
      const plain = Readable.toWeb(Readable.from(bytes, { objectMode: false })) as Bytes
      result = await write(Readable.fromWeb((await encrypt(plain)) as never))
    }
  })
  return result as T
}

/** A newer version may have tables that this one does not know. */
function checkMigrations({ migrations: applied }: Snapshot): void {
  const known = new Set(migrations.map(({ name }) => name))
  const newer = applied.find(({ name }) => !known.has(name))
  if (newer === undefined) return
  throw new SetupError(
    `This database has a newer schema (${newer.name}) than svc ${version}: back it up with the version that serves it`,
  )
}

async function readSecretsFile(dataDir: string, isEncrypted: boolean): Promise<Buffer> {
  if (!isEncrypted) {
    throw new SetupError('--with-secrets needs --recipient: secrets leave this machine only encrypted')
  }
  const file = secretsFile(dataDir)
  try {
    return await readFile(file)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? 'there is none, the keys come from the environment' : message
    throw new SetupError(`Cannot read ${file} for --with-secrets: ${reason}`)
  }
}

import { createWriteStream, existsSync, rmSync, statSync } from 'node:fs'
import { readFile, rename, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { constants, createZstdCompress } from 'node:zlib'
import { migrations } from '../../migrations/index.ts'
import { SetupError } from '../../src/core/errors.ts'
import { syncDirectory } from '../../src/core/sync-directory.ts'
import { systemClock } from '../../src/core/time.ts'
import { type Snapshot, withSnapshot } from '../../src/storage/backup/snapshot.ts'
import { version } from '../../src/version.ts'
import { databaseOf } from '../config.ts'
import { secretsFile } from '../secrets/file.ts'
import { encrypter } from './age.ts'
import type { Head, Tail } from './format.ts'
import { archiveLines, countRows, headOf, readCheckpointCopies } from './write-archive.ts'

export type BackupOptions = {
  'data-dir'?: string | undefined
  out: string
  recipient?: readonly string[] | undefined
  'with-secrets'?: boolean | undefined
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
}

export type Progress = { total?: number; done: number }

/** Writes an archive of the database that `svc serve` would use, also while it runs. @throws SetupError */
export async function backUp(
  options: BackupOptions,
  onProgress: (it: Progress) => void,
): Promise<BackupSummary> {
  const place = databaseOf(options)
  const recipients = options.recipient ?? []
  const encrypt = recipients.length > 0 ? await encrypter(recipients) : undefined
  const secrets = options['with-secrets']
    ? await readSecretsFile(place.dataDir, encrypt !== undefined)
    : undefined
  const madeAt = systemClock()
  const file = fileFor(options.out, madeAt, encrypt !== undefined)
  const files = await readCheckpointCopies(place.dataDir)
  return withSnapshot(place, async (snapshot) => {
    checkMigrations(snapshot)
    const head = await headOf(snapshot, { version, madeAt })
    onProgress({ total: await countRows(snapshot), done: 0 })
    let tail: Tail | undefined
    const parts = { dataDir: place.dataDir, files, secrets }
    const lines = archiveLines(snapshot, head, parts, {
      rows: (done) => onProgress({ done }),
      ended: (it) => {
        tail = it
      },
    })
    await writeFileWhole(file, lines, encrypt)
    const counts = Object.values(tail!.tables)
    return {
      file,
      bytes: (await stat(file)).size,
      sha256: tail!.sha256,
      madeAt,
      source: head.source,
      migration: head.migrations.at(-1)!.name,
      tables: counts.length,
      rows: counts.reduce((sum, { rows }) => sum + rows, 0),
      files: Object.keys(tail!.files).length,
      encrypted: encrypt !== undefined,
      withSecrets: secrets !== undefined,
    }
  })
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

/** The path of the archive: in a directory it is named by date and version. */
function fileFor(out: string, madeAt: string, isEncrypted: boolean): string {
  const path = resolve(out)
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
  const stamp = madeAt.replace(/[-:]|\.\d+/g, '')
  const file = isFolder ? join(path, `svc-${stamp}-${version}.backup${isEncrypted ? '.age' : ''}`) : path
  if (!existsSync(dirname(file))) throw new SetupError(`--out: there is no directory ${dirname(file)}`)
  assertNew(file)
  return file
}

function assertNew(file: string): void {
  if (existsSync(file)) throw new SetupError(`${file} exists already: a backup overwrites nothing`)
}

/** The file appears under its name when it is complete and on disk. */
async function writeFileWhole(
  file: string,
  lines: AsyncIterable<Buffer>,
  encrypt: ((plain: ReadableStream<Uint8Array>) => Promise<ReadableStream<Uint8Array>>) | undefined,
): Promise<void> {
  const draft = join(dirname(file), `.${basename(file)}.${process.pid}.part`)
  const discard = () => rmSync(draft, { force: true })
  // Ctrl-C ends the process at once.
  process.once('exit', discard)
  try {
    const compress = createZstdCompress({ params: { [constants.ZSTD_c_checksumFlag]: 1 } })
    const sink = createWriteStream(draft, { flags: 'wx', mode: 0o600, flush: true })
    const source = Readable.from(lines, { objectMode: false, highWaterMark: 2 ** 20 })
    if (encrypt === undefined) await pipeline(source, compress, sink)
    else {
      const compressing = pipeline(source, compress)
      const sealed = await encrypt(Readable.toWeb(compress) as ReadableStream<Uint8Array>)
      await Promise.all([compressing, pipeline(Readable.fromWeb(sealed as never), sink)])
    }
    assertNew(file)
    await rename(draft, file)
    syncDirectory(dirname(file))
  } catch (error) {
    discard()
    throw explained(error, file)
  } finally {
    process.removeListener('exit', discard)
  }
}

function explained(error: unknown, file: string): unknown {
  const { code, syscall = '' } = error as NodeJS.ErrnoException
  if (code === undefined || !['open', 'write', 'fsync', 'rename'].includes(syscall)) return error
  return new SetupError(`Cannot write ${file}: ${code === 'ENOSPC' ? 'the disk is full' : code}`, {
    cause: error,
  })
}

import { createHash } from 'node:crypto'
import { constants, createReadStream, existsSync, renameSync, rmSync, type StatsFs } from 'node:fs'
import { chmod, copyFile, open, readdir, rm, stat, statfs } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { syncDirectory, syncFile } from '../../core/sync-directory.ts'
import { UpdateFailure } from './failure.ts'

const reserveBytes = 16 * 1024 * 1024

/**
 * Path of the next binary, beside the present one, so that it can be renamed over it atomically. The file extension
 * is preserved.
 */
export const stagedFile = (file: string): string => join(dirname(file), `next-${basename(file)}`)
/** Path of a program that ran while another one took its place. */
export const displacedFile = (file: string): string => join(dirname(file), `old-${basename(file)}`)
/** Path of an incomplete download. Its name contains the checksum: only a download of the same file is continued. */
export const partialFile = (file: string, sha256: string): string => `${file}.${sha256.slice(0, 16)}.part`

/** Removes incomplete downloads of other files. */
export async function removePartial(file: string, except: string): Promise<void> {
  const mine = (name: string): boolean => name.startsWith(`${basename(file)}.`) && name.endsWith('.part')
  for (const name of (await readdir(dirname(file))).filter(mine)) {
    const path = join(dirname(file), name)
    if (path !== except) await rm(path, { force: true })
  }
}

/** SHA-256 in hex. */
export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer)
  return hash.digest('hex')
}

/** Whether the file exists with that content. */
export async function hasChecksum(file: string, sha256: string): Promise<boolean> {
  // A file that cannot be read is downloaded or copied anew.
  return (await sha256Of(file).catch(() => undefined)) === sha256
}

const elfMachines: Partial<Record<NodeJS.Architecture, number>> = { ia32: 3, x64: 62, arm64: 183 }

/**
 * Checks that this machine can execute the file. execvp(3) passes a format unknown to the kernel to a shell, which
 * would execute a binary for another processor as commands. @throws UpdateFailure
 */
export async function checkRunnable(path: string): Promise<void> {
  if (process.platform !== 'linux') return
  const file = await open(path)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(20), 0, 20, 0)
    if (buffer.toString('latin1', 0, 2) === '#!') return
    const isElf = bytesRead === 20 && buffer.toString('latin1', 0, 4) === '\x7fELF'
    if (isElf && buffer.readUInt16LE(18) === elfMachines[process.arch]) return
    throw new UpdateFailure('refused', `it is not a program for ${process.arch}`)
  } finally {
    await file.close()
  }
}

/** @throws UpdateFailure naming the directory without enough space for these files */
export async function checkDiskSpace(wanted: { directory: string; bytes: number }[]): Promise<void> {
  const volumes = new Map<number, { directory: string; bytes: number; stats: StatsFs }>()
  for (const { directory, bytes } of wanted) {
    const { dev } = await stat(directory)
    const volume = volumes.get(dev) ?? { directory, bytes: reserveBytes, stats: await statfs(directory) }
    volumes.set(dev, { ...volume, bytes: volume.bytes + bytes })
  }
  for (const { directory, bytes, stats } of volumes.values()) {
    const free = stats.bavail * stats.bsize
    const mib = (count: number): number => Math.ceil(count / 2 ** 20)
    if (free < bytes) {
      const need = `not enough space in ${directory}: ${mib(bytes)} MiB are needed, ${mib(free)} MiB are free`
      throw new UpdateFailure('failed', need)
    }
  }
}

/** An atomic and durable copy. */
export async function copyAtomic(from: string, to: string): Promise<void> {
  const draft = `${to}.new`
  try {
    await rm(draft, { force: true })
    await copyFile(from, draft, constants.COPYFILE_FICLONE)
    await chmod(draft, 0o755)
    syncFile(draft)
    await moveAtomic(draft, to)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}

/** Replaces the target atomically, but where Windows does not: running processes retain the old file. */
export async function moveAtomic(from: string, to: string): Promise<void> {
  replaceProgram(from, to)
  syncDirectory(dirname(to))
}

/** Windows neither replaces nor removes the file of a running program, but renames it. */
export function replaceProgram(from: string, to: string, rename = renameSync): void {
  try {
    rename(from, to)
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    if (!inUseCodes.has(code) || !existsSync(from)) throw error
    const displaced = displacedFile(to)
    rmSync(displaced, { force: true })
    rename(to, displaced)
    // A machine that stops here has no program in its place: its task puts the displaced one back.
    try {
      rename(from, to)
    } catch (failure) {
      rename(displaced, to)
      throw failure
    }
  }
}

const inUseCodes = new Set(['EPERM', 'EACCES', 'EBUSY'])

import { constants, type Stats } from 'node:fs'
import { lstat, open, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { formatBytes } from '../../src/core/byte-size.ts'
import { type Finding, failed, passed, warning } from '../../src/core/finding.ts'
import { secretsFileName } from '../secrets/file.ts'
import type { Repair } from './finding.ts'

/* The data directory and its disk. */

const check = 'data directory'
const mebi = 2 ** 20

/** Files that hold the keys or the rows. */
const privateFiles = [secretsFileName, 'svc.sqlite', 'svc.sqlite-wal', 'svc.sqlite-shm']

/** Adds what can be mended to `repairs`. */
export async function checkDataDirectory(dataDir: string, repairs: Repair[]): Promise<Finding[]> {
  const directory = await statOrReason(dataDir)
  if (typeof directory === 'string') return [missing(`The data directory ${dataDir} ${directory}.`)]
  if (!directory.isDirectory()) return [missing(`${dataDir} is not a directory.`)]
  const findings = await checkMode(dataDir, directory, 0o700, repairs)
  for (const name of privateFiles) {
    const path = join(dataDir, name)
    const file = await statOrReason(path)
    if (typeof file === 'string') continue
    findings.push(...(await checkMode(path, file, 0o600, repairs)), ...checkOwner(path, file, directory))
  }
  return findings.length > 0 ? findings : [passed(check, dataDir)]
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'may not be read by this user',
  ENOTDIR: 'has a file in its path',
}

async function statOrReason(path: string): Promise<Stats | string> {
  try {
    return await stat(path)
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException
    return reasons[code] ?? `cannot be read (${code})`
  }
}

const missing = (message: string): Finding =>
  failed(check, {
    message,
    reason: 'Without it nothing else can be checked.',
    remedy:
      'name the directory of the service with --data-dir or SVC_DATA_DIR, and run this as its user; for a new installation start svc serve first',
  })

const octal = (mode: number): string => (mode & 0o777).toString(8).padStart(4, '0')

async function checkMode(
  path: string,
  { mode }: Stats,
  wanted: number,
  repairs: Repair[],
): Promise<Finding[]> {
  if (process.platform === 'win32' || (mode & 0o077) === 0) return []
  const plan = `chmod ${octal(wanted)} ${path}`
  // What a link leads to may belong to somebody else, such as a secret that an orchestrator mounts.
  const isLink = (await lstat(path)).isSymbolicLink()
  if (!isLink) repairs.push({ plan, run: () => changeMode(path, wanted) })
  return [
    warning(check, {
      message: `${path}${isLink ? ' is a link to what' : ''} has mode ${octal(mode)}.`,
      reason: 'Other users of this machine can read the database or the keys.',
      remedy: isLink ? 'restrict what the link leads to' : plan,
    }),
  ]
}

/** Follows no link that was put in its place meanwhile. */
async function changeMode(path: string, mode: number): Promise<void> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  try {
    await file.chmod(mode)
  } finally {
    await file.close()
  }
}

function checkOwner(path: string, file: Stats, directory: Stats): Finding[] {
  if (file.uid === directory.uid) return []
  return [
    warning(check, {
      message: `${path} belongs to user ${file.uid}, and its directory to user ${directory.uid}.`,
      reason: 'The service cannot open it as the user of its directory.',
      remedy: `chown ${directory.uid}:${directory.gid} ${path}`,
    }),
  ]
}

/** Free bytes at which the service should get more, and at which it is about to refuse writes. */
const little = { warning: 1024 * mebi, error: 64 * mebi }

export async function checkDisk(dataDir: string): Promise<Finding[]> {
  const { bavail, blocks, bsize } = await statfs(dataDir)
  const free = bavail * bsize
  const message = `${formatBytes(free)} of ${formatBytes(blocks * bsize)} are free for ${dataDir}`
  if (free >= little.warning) return [passed('disk', message)]
  const found = {
    message: `Only ${message}.`,
    reason: 'On a full disk the service answers every change with 503.',
    remedy:
      'give the file system more space, or lower LOG_BYTES_PER_ORG and the retention days (svc-serve(8))',
  }
  return [free < little.error ? failed('disk', found) : warning('disk', found)]
}

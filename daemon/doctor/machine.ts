import { chmod, lstat, readdir, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import type { Finding } from '../../src/core/finding.ts'
import { failed, passed, type Repair, warning } from './finding.ts'

/* The data directory and its disk. */

type Seen = { findings: Finding[]; repairs: Repair[] }

const check = 'data directory'
const mebi = 2 ** 20

/** Private files: others may neither read the keys nor the rows. */
const isPrivate = (name: string): boolean => name === 'secrets.json' || name.startsWith('svc.sqlite')

export async function checkDataDirectory(dataDir: string): Promise<Seen> {
  let mode: number
  try {
    const found = await lstat(dataDir)
    if (!found.isDirectory() && !found.isSymbolicLink()) return missing(`${dataDir} is not a directory.`)
    mode = found.isDirectory() ? found.mode : 0o700
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return missing(`There is no data directory ${dataDir}.`)
    return missing(`The data directory ${dataDir} cannot be read (${code}).`)
  }
  const open = process.platform === 'win32' ? [] : await openPaths(dataDir, mode)
  const findings = open.map(({ path, mode, wanted }) =>
    warning(check, {
      message: `${path} has mode ${octal(mode)}.`,
      reason: 'Other users of this machine can read the database or the keys.',
      remedy: `chmod ${octal(wanted)} ${path}`,
    }),
  )
  const repairs = open.map(({ path, wanted }) => ({
    check,
    plan: `chmod ${octal(wanted)} ${path}`,
    run: () => chmod(path, wanted),
  }))
  return { findings: findings.length > 0 ? findings : [passed(check, dataDir)], repairs }
}

function missing(message: string): Seen {
  const remedy =
    'start the service once with svc serve, or name its directory with --data-dir or SVC_DATA_DIR; run this as the user of the service'
  return {
    findings: [failed(check, { message, reason: 'Without it nothing else can be checked.', remedy })],
    repairs: [],
  }
}

type OpenPath = { path: string; mode: number; wanted: number }

const octal = (mode: number): string => (mode & 0o777).toString(8).padStart(4, '0')

async function openPaths(dataDir: string, mode: number): Promise<OpenPath[]> {
  const found: OpenPath[] = (mode & 0o077) === 0 ? [] : [{ path: dataDir, mode, wanted: 0o700 }]
  for (const name of (await readdir(dataDir)).filter(isPrivate)) {
    const path = join(dataDir, name)
    const { mode } = await lstat(path)
    if ((mode & 0o077) !== 0) found.push({ path, mode, wanted: 0o600 })
  }
  return found
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
      'give the file system more space, or lower LOG_BYTES_PER_ORG and the retention days (svc help serve)',
  }
  return [free < little.error ? failed('disk', found) : warning('disk', found)]
}

export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const at = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10))
  const amount = bytes / 1024 ** at
  return `${amount >= 100 || at === 0 ? Math.round(amount) : amount.toFixed(1)} ${units[at]}`
}

import { execFile } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import type { SoftwareReport } from '../agents/contract.ts'
import { withoutUndefined } from '../core/json.ts'

export const dpkgStatusFile = '/var/lib/dpkg/status'
const apkFile = '/lib/apk/db/installed'
const rpmDirectories = ['/usr/lib/sysimage/rpm', '/var/lib/rpm']

/** Files that change whenever a package is installed or removed. */
export const packageLists = [dpkgStatusFile, apkFile, ...rpmDirectories]

/** Installed packages, from the package manager of this machine. */
export async function readSoftware(): Promise<SoftwareReport[]> {
  if (existsSync(dpkgStatusFile)) return parseDpkgStatus(await readFile(dpkgStatusFile, 'utf8'), listedSince)
  if (existsSync(apkFile)) return parseApk(await readFile(apkFile, 'utf8'))
  if (!rpmDirectories.some((directory) => existsSync(directory))) throw new Error('no package list is known')
  const { stdout } = await promisify(execFile)('rpm', ['--query', '--all', `--queryformat=${rpmFormat}`], {
    maxBuffer: 64 * 1024 * 1024,
    timeout: 30_000,
  })
  return parseRpm(stdout)
}

/** The time of the package's file list: when this version was unpacked. */
function listedSince(name: string, architecture: string): string | undefined {
  for (const list of [name, `${name}:${architecture}`]) {
    const stats = statSync(`/var/lib/dpkg/info/${list}.list`, { throwIfNoEntry: false })
    if (stats) return dayOf(stats.mtime)
  }
  return undefined
}

const dayOf = (time: Date): string => time.toISOString().slice(0, 10)

/**
 * The installed packages in the text of a dpkg status file (deb-control(5), dpkg(1) on states). `since` returns the
 * day a package was installed, as 2026-01-31.
 */
export function parseDpkgStatus(
  text: string,
  since: (name: string, architecture: string) => string | undefined = () => undefined,
): SoftwareReport[] {
  return text.split(/\n\n+/).flatMap((stanza) => {
    const field = (name: string): string =>
      new RegExp(`^${name}: *(.*)$`, 'm').exec(stanza)?.[1]?.trim() ?? ''
    const name = field('Package')
    if (name === '' || !/\sinstalled$/.test(field('Status'))) return []
    return packageOf(name, field('Version'), field('Maintainer'), since(name, field('Architecture')))
  })
}

/** The same for Alpine: a stanza per package, with lines that begin with a letter and a colon (apk-v2(5)). */
export const parseApk = (text: string): SoftwareReport[] =>
  text.split(/\n\n+/).flatMap((stanza) => {
    const field = (letter: string): string =>
      new RegExp(`^${letter}:(.*)$`, 'm').exec(stanza)?.[1]?.trim() ?? ''
    return packageOf(field('P'), field('V'), field('m'))
  })

const rpmFormat = '%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{VENDOR}\\t%{INSTALLTIME}\\n'

/** The same for the output of rpm(8) in that format. Imported keys are listed as well, and are not packages. */
export const parseRpm = (text: string): SoftwareReport[] =>
  text.split('\n').flatMap((line) => {
    const [name = '', version = '', vendor = '', seconds = ''] = line.split('\t')
    if (name === 'gpg-pubkey') return []
    const since = Number(seconds) > 0 ? dayOf(new Date(Number(seconds) * 1000)) : undefined
    return packageOf(name, version.replace(/^0:/, ''), vendor === '(none)' ? '' : vendor, since)
  })

function packageOf(name: string, version: string, publisher: string, installDate?: string): SoftwareReport[] {
  if (name === '') return []
  return [
    withoutUndefined({
      name: name.slice(0, 500),
      version: version.slice(0, 255),
      publisher: publisher === '' ? undefined : publisher.slice(0, 255),
      installDate,
    }),
  ]
}

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import os from 'node:os'
import si from 'systeminformation'
import type { Enrollment } from '../agents/contract.ts'
import { Problem } from '../core/errors.ts'
import { bestEffort } from './best-effort.ts'

/** The description of a machine in its enrollment and every heartbeat. */
export type Description = Pick<Enrollment, 'hostname' | 'osType' | 'osVersion' | 'architecture'> & {
  deviceRole: 'server' | 'workstation' | 'unknown'
  isVirtual: boolean
  virtualizationPlatform?: string
  osBuild?: string
  isHeadless?: boolean
}

export async function describeMachine(): Promise<Description> {
  const osType = osTypeOf(process.platform)
  const [system, chassis, version, isHeadless] = await Promise.all([
    bestEffort(() => si.system()),
    bestEffort(() => si.chassis()),
    bestEffort(() => (osType === 'linux' ? linuxVersion() : otherVersion())),
    bestEffort(() => (osType === 'linux' ? isHeadlessLinux() : hasNoDisplay())),
  ])
  const osVersion = (version?.name ?? `${os.type()} ${os.release()}`).slice(0, 100)
  const isVirtual = (system?.virtual ?? false) || ((await bestEffort(runsUnderHypervisor)) ?? false)
  const description: Description = {
    hostname: os.hostname().slice(0, 255),
    osType,
    osVersion,
    architecture: architectureOf(os.machine()),
    deviceRole: guessRole({ osType, osVersion, chassis: chassis?.type ?? '', isVirtual, isHeadless }),
    isVirtual,
  }
  if (system?.virtualHost) description.virtualizationPlatform = system.virtualHost
  if (version?.build) description.osBuild = version.build.slice(0, 100)
  if (isHeadless !== undefined) description.isHeadless = isHeadless
  return description
}

export function osTypeOf(platform: NodeJS.Platform): Description['osType'] {
  const known: Partial<Record<NodeJS.Platform, Description['osType']>> = {
    linux: 'linux',
    darwin: 'macos',
    win32: 'windows',
  }
  const osType = known[platform]
  if (osType === undefined) throw new Problem('invalid_request', `The agent does not run on ${platform}`)
  return osType
}

/** Maps the kernel's machine name to the three names of the product. */
export function architectureOf(machine: string): string {
  const known: Record<string, string> = {
    x86_64: 'x64',
    amd64: 'x64',
    i386: 'x86',
    i586: 'x86',
    i686: 'x86',
    aarch64: 'arm64',
  }
  return known[machine.toLowerCase()] ?? machine.toLowerCase()
}

type Hints = {
  osType: Description['osType']
  osVersion: string
  chassis: string
  isVirtual: boolean
  isHeadless: boolean | undefined
}

export function guessRole({
  osType,
  osVersion,
  chassis,
  isVirtual,
  isHeadless,
}: Hints): Description['deviceRole'] {
  if (osType === 'windows') return /\bserver\b/i.test(osVersion) ? 'server' : 'workstation'
  if (osType === 'macos') return 'workstation'
  if (/rack mount|blade|main server|multi-system/i.test(chassis)) return 'server'
  if (/laptop|notebook|portable|convertible|detachable|tablet|all in one/i.test(chassis)) return 'workstation'
  if (isHeadless === undefined) return 'unknown'
  if (!isHeadless) return 'workstation'
  return isVirtual ? 'server' : 'unknown'
}

type Version = { name: string; build: string }

/**
 * Reads os-release(5) instead of osInfo(), which waits for the resolver to answer `hostname -f` and blocks every
 * heartbeat meanwhile.
 */
function linuxVersion(): Version {
  const file = ['/etc/os-release', '/usr/lib/os-release'].find((path) => existsSync(path))
  const name = file && prettyName(readFileSync(file, 'utf8'))
  return { name: name || `Linux ${os.release()}`, build: os.release() }
}

export function prettyName(osRelease: string): string | undefined {
  return /^PRETTY_NAME=(["']?)(.*)\1$/m.exec(osRelease)?.[2]
}

async function otherVersion(): Promise<Version> {
  const { distro, release, codename, build } = await si.osInfo()
  return { name: `${distro} ${release}${codename ? ` (${codename})` : ''}`, build }
}

/** Checks the CPU flag of every x86 guest; unlike the kernel log it needs no privileges. */
function runsUnderHypervisor(): boolean {
  return (
    process.platform === 'linux' &&
    /^flags\s*:.*\shypervisor(\s|$)/m.test(readFileSync('/proc/cpuinfo', 'utf8'))
  )
}

/** No display manager and no display server: nobody can use it locally. */
function isHeadlessLinux(): boolean {
  const displayServers = (directory: string, name: RegExp): boolean =>
    existsSync(directory) && readdirSync(directory).some((entry) => name.test(entry))
  return !(
    existsSync('/etc/systemd/system/display-manager.service') ||
    displayServers('/tmp/.X11-unix', /^X0$/) ||
    (existsSync('/run/user') &&
      readdirSync('/run/user').some((uid) => displayServers(`/run/user/${uid}`, /^wayland-\d+$/)))
  )
}

const hasNoDisplay = async (): Promise<boolean> => (await si.graphics()).displays.length === 0

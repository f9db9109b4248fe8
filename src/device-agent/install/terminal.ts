import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { askSecret, isInteractive, readSecret } from '../../cli/ask.ts'
import { usageError } from '../../cli/exit-codes.ts'
import { runSteps } from '../../cli/machine-steps.ts'
import { resolveSettings, type Settings } from '../../cli/settings.ts'
import { printNote } from '../../cli/stderr-notes.ts'
import type { Installer, InstallLocationFlags } from './installer.ts'
import { systemd } from './systemd.ts'
import { windowsInstaller } from './windows.ts'

type CommonFlags = InstallLocationFlags & { yes: boolean; 'no-input': boolean }
export type InstallFlags = CommonFlags & {
  url?: string | undefined
  'enrollment-key'?: string | undefined
  binary?: string | undefined
  print: boolean
}
export type UninstallFlags = CommonFlags & { purge: boolean }

/** The steps that were done, or would be; they are also printed as they happen. */
export type InstallResult = {
  done: boolean
  steps: string[]
  stateDir: string
  user: string
  unitFile: string
  /** Content of the unit, when only that was requested. */
  unit: string | null
}

const installerHere = (): Installer => (process.platform === 'win32' ? windowsInstaller() : systemd)

/** `own`: the single file of this program, installed by default. */
export async function installAtTerminal(
  flags: InstallFlags,
  own: string | undefined,
): Promise<InstallResult> {
  const installer = installerHere()
  try {
    return await install(installer, flags, own)
  } catch (error) {
    if (!flags['dry-run'] && !flags.print) installer.recordFailure((error as Error).message)
    throw error
  }
}

async function install(
  installer: Installer,
  flags: InstallFlags,
  own: string | undefined,
): Promise<InstallResult> {
  const settings = resolveSettings(flags)
  const place = installer.placeOf(flags)
  const isEnrolled = existsSync(join(place.stateDir, 'identity.json'))
  const { url } = settings
  const chosen = url.from === 'flag' || url.from === 'env' || !isEnrolled ? url.value : undefined
  if (flags.print) return { ...place, done: false, steps: [], unit: installer.unitText(place, chosen) }
  const binary = flags.binary ?? own
  if (binary === undefined) {
    throw usageError(
      'Missing --binary',
      'npm run build:agent -- --out FILE creates one; a release has one for each platform',
    )
  }
  if (!existsSync(binary)) throw usageError(`--binary ${binary} does not exist`)
  installer.checkPrivileges(flags, place)
  const isEnough = isEnrolled && flags['enrollment-key'] === undefined
  const enrollmentKey = isEnough || flags['dry-run'] ? undefined : await keyOf(flags, settings)
  const steps = installer.installSteps({ ...place, url: chosen, binary, enrollmentKey })
  const outcome = await runSteps(steps, flags, settings)
  if (outcome.done) installer.noteAfterInstall(place)
  return { ...place, ...outcome }
}

const noteStateStays = (stateDir: string): void =>
  printNote(`${stateDir} stays, with the identity of this machine: --purge removes it`)

export async function uninstallAtTerminal(flags: UninstallFlags): Promise<InstallResult> {
  const installer = installerHere()
  const place = installer.placeOf(flags)
  const { stateDir } = place
  installer.checkPrivileges(flags, place)
  const steps = installer.uninstallSteps(place, flags.purge)
  if (steps.length === 0) {
    printNote('Nothing to remove: no service of the agent is installed')
    if (existsSync(stateDir)) noteStateStays(stateDir)
    return { ...place, done: false, steps: [], unit: null }
  }
  const outcome = await runSteps(steps, flags, resolveSettings(flags))
  if (outcome.done && !flags.purge) {
    noteStateStays(stateDir)
  }
  return { ...place, ...outcome }
}

async function keyOf(flags: InstallFlags, settings: Settings): Promise<string> {
  const { SVC_ENROLLMENT_KEY } = process.env
  const { 'enrollment-key': flag } = flags
  const key =
    flag !== undefined
      ? await readSecret(flag, '--enrollment-key')
      : SVC_ENROLLMENT_KEY || (isInteractive(settings) ? await askSecret('Enrollment key:') : '')
  if (key.trim() !== '') return key.trim()
  throw usageError(
    'Missing --enrollment-key',
    'this machine is not enrolled yet: give -, @file or SVC_ENROLLMENT_KEY',
  )
}

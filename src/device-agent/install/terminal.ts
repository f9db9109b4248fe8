import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { askSecret, isInteractive, readSecret } from '../../cli/ask.ts'
import { usageError } from '../../cli/exit-codes.ts'
import { checkPrivileges, noteOf, runSteps, systemUnits } from '../../cli/machine-steps.ts'
import { resolveSettings, type Settings } from '../../cli/settings.ts'
import { printNote } from '../../cli/stderr-notes.ts'
import { installSteps, uninstallSteps } from './steps.ts'
import { unitName, unitText } from './unit.ts'

type CommonFlags = {
  'state-dir'?: string | undefined
  user?: string | undefined
  'unit-dir'?: string | undefined
  'dry-run': boolean
  yes: boolean
  'no-input': boolean
}
export type InstallFlags = CommonFlags & {
  url?: string | undefined
  'enrollment-key'?: string | undefined
  binary?: string | undefined
  print: boolean
}
export type UninstallFlags = CommonFlags & { purge: boolean }

function placeOf(flags: CommonFlags) {
  const stateDir = resolve(flags['state-dir'] ?? '/var/lib/svc-agent')
  const user = flags.user ?? 'svc-agent'
  // The values are written into a unit, and the directory may be removed recursively.
  if (!/^(\/[\w.+@-]+){2,}$/.test(stateDir)) throw usageError(`--state-dir cannot be ${stateDir}`)
  if (!/^[a-z_][a-z0-9_-]{0,31}$/.test(user)) throw usageError(`--user cannot be "${user}"`)
  return { stateDir, user, unitDir: resolve(flags['unit-dir'] ?? systemUnits) }
}

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

/** `own`: the single file of this program, installed by default. */
export async function installAtTerminal(
  flags: InstallFlags,
  own: string | undefined,
): Promise<InstallResult> {
  const settings = resolveSettings(flags)
  const { stateDir, user, unitDir } = placeOf(flags)
  const isEnrolled = existsSync(join(stateDir, 'identity.json'))
  const { url } = settings
  const chosen = url.from === 'flag' || url.from === 'env' || !isEnrolled ? url.value : undefined
  const place = { stateDir, user, unitFile: join(unitDir, unitName) }
  if (flags.print) {
    return { ...place, done: false, steps: [], unit: unitText({ stateDir, user, url: chosen }) }
  }
  const binary = flags.binary ?? own
  if (binary === undefined) {
    throw usageError(
      'Missing --binary',
      'npm run build:agent -- --out FILE creates one; a release has one for each platform',
    )
  }
  if (!existsSync(binary)) throw usageError(`--binary ${binary} does not exist`)
  checkPrivileges(flags, user, unitDir)
  const isEnough = isEnrolled && flags['enrollment-key'] === undefined
  const enrollmentKey = isEnough || flags['dry-run'] ? undefined : await keyOf(flags, settings)
  const installation = { stateDir, user, unitDir, url: chosen, binary, enrollmentKey }
  const outcome = await runSteps(installSteps(installation), flags, settings)
  if (outcome.done) noteOf(unitDir, unitName)
  return { ...place, ...outcome }
}

export async function uninstallAtTerminal(flags: UninstallFlags): Promise<InstallResult> {
  const { user, unitDir, stateDir } = placeOf(flags)
  checkPrivileges(flags, user, unitDir)
  const steps = uninstallSteps({ user, unitDir, stateDir, purge: flags.purge })
  const place = { stateDir, user, unitFile: join(unitDir, unitName) }
  if (steps.length === 0) {
    printNote('Nothing to remove')
    return { ...place, done: false, steps: [], unit: null }
  }
  const outcome = await runSteps(steps, flags, resolveSettings(flags))
  if (outcome.done && !flags.purge) {
    printNote(`${stateDir} stays, with the identity of this machine: --purge removes it`)
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

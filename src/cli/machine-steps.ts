import { execFileSync } from 'node:child_process'
import { chownSync, existsSync, readFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import { askYesNo, isInteractive } from './ask.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import type { Settings } from './settings.ts'
import { printNote } from './stderr-notes.ts'

/*
 * Changes of this machine, which are shown before they are made: what makes a program start with it, and undoes that.
 */

/** A change of the machine, and its description. */
export type InstallStep = { what: string; do: () => void }
export type StepFlags = { 'dry-run': boolean; yes: boolean }

export const systemUnits = '/etc/systemd/system'

const hasSystemd = (): boolean => existsSync('/run/systemd/system')

/** Checked before anything is changed. */
export function checkPrivileges(flags: Pick<StepFlags, 'dry-run'>, user: string, unitDir: string): void {
  if (process.platform !== 'linux') throw new CliError('Only Linux machines have systemd')
  const mine = user === userInfo().username && unitDir !== systemUnits
  if (flags['dry-run'] || mine || process.getuid?.() === 0) return
  throw new CliError('This requires root', { exit: exitCodes.forbidden, code: 'forbidden', hint: 'sudo' })
}

export async function runSteps(
  steps: readonly InstallStep[],
  flags: StepFlags,
  settings: Pick<Settings, 'noInput'>,
): Promise<{ done: boolean; steps: string[]; unit: null }> {
  const asks = !flags.yes && !flags['dry-run']
  if (asks && !isInteractive(settings))
    throw usageError('Missing --yes', '--dry-run shows what would be done')
  if (flags['dry-run'] || asks) for (const { what } of steps) printNote(`Would ${what}`)
  const names = steps.map(({ what }) => what)
  if (flags['dry-run']) return { done: false, steps: names, unit: null }
  if (asks && !(await askYesNo('Continue?'))) throw new CliError('Nothing was changed')
  for (const step of steps) {
    try {
      step.do()
    } catch (error) {
      if (error instanceof CliError) throw error
      throw new CliError(`Cannot ${step.what}: ${(error as Error).message}`)
    }
    printNote(`Done: ${step.what}`)
  }
  return { done: true, steps: names, unit: null }
}

/** What is left to do where systemd was not told. */
export function noteOf(unitDir: string, unitName: string): void {
  if (hasSystemd() && unitDir === systemUnits) return
  printNote(`systemd does not run here, or does not read ${unitDir}. Where it does, run:`)
  printNote(`  systemctl daemon-reload && systemctl enable --now ${unitName}`)
}

/** None where the user exists. */
export function userStep(user: string, home: string): InstallStep[] {
  if (userIds(user) !== undefined) return []
  const args = ['--system', '--user-group', '--no-create-home', '--home-dir', home]
  const create = (): void => void run('useradd', [...args, '--shell', '/usr/sbin/nologin', user])
  return [{ what: `create the user ${user}`, do: create }]
}

/** Only where systemd runs and reads that directory. */
export const systemctl = (unitDir: string, ...calls: string[][]): InstallStep[] =>
  hasSystemd() && unitDir === systemUnits
    ? calls.map((args) => ({ what: `systemctl ${args.join(' ')}`, do: () => void run('systemctl', args) }))
    : []

/** undefined when there is no such user. */
export function userIds(user: string): { uid: number; gid: number } | undefined {
  const row = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .find(([name]) => name === user)
  if (row) return { uid: Number(row[2]), gid: Number(row[3]) }
  try {
    const id = (flag: string): number =>
      Number(execFileSync('id', [flag, user], { stdio: ['ignore', 'pipe', 'ignore'], encoding: 'utf8' }))
    return { uid: id('-u'), gid: id('-g') }
  } catch {
    // `id` fails for a user that it does not know, and is missing only where nobody can be looked up.
    return undefined
  }
}

export function chownTo(path: string, user: string): void {
  const id = userIds(user)
  if (id && id.uid !== process.getuid?.()) chownSync(path, id.uid, id.gid)
}

/** Runs a program and returns what it prints; `env` is added to the environment. @throws CliError with what it says of its failure */
export function run(
  command: string,
  args: string[],
  { env, timeoutMs = 60_000 }: { env?: Record<string, string>; timeoutMs?: number } = {},
): string {
  try {
    return execFileSync(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: timeoutMs,
      encoding: 'utf8',
      windowsHide: true,
      ...(env && { env: { ...process.env, ...env } }),
    })
  } catch (error) {
    const { stderr, code } = error as NodeJS.ErrnoException & { stderr?: string }
    throw new CliError(
      `${[command, ...args].join(' ')} failed: ${stderr?.trim() || code || 'it cannot be run'}`,
    )
  }
}

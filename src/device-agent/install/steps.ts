import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CliError } from '../../cli/exit-codes.ts'
import { keyFilePath } from '../state.ts'
import { binaryPath, type Placement, unitName, unitText } from './unit.ts'

/** A change of the machine, and its description. */
export type InstallStep = { what: string; do: () => void }

export const hasSystemd = (): boolean => existsSync('/run/systemd/system')

export type InstallOptions = Placement & {
  binary: string
  unitDir: string
  /** undefined when the machine is already enrolled. */
  enrollmentKey: string | undefined
}

/** Installs the agent as a service; each step can be repeated. */
export function installSteps(installation: InstallOptions): InstallStep[] {
  const { stateDir, user, binary, unitDir, enrollmentKey } = installation
  const target = binaryPath(stateDir)
  const unit = join(unitDir, unitName)
  const steps: InstallStep[] = []
  if (userIds(user) === undefined) {
    const args = ['--system', '--user-group', '--no-create-home', '--home-dir', stateDir]
    const create = (): void => run('useradd', [...args, '--shell', '/usr/sbin/nologin', user])
    steps.push({ what: `create the user ${user}`, do: create })
  }
  steps.push({
    what: `create ${stateDir}, accessible by ${user} only`,
    do: () => {
      for (const directory of [stateDir, dirname(target)]) {
        mkdirSync(directory, { recursive: true, mode: 0o700 })
        chmodSync(directory, 0o700)
        chownTo(directory, user)
      }
    },
  })
  steps.push({
    what: `copy ${binary} to ${target}`,
    do: () => {
      const draft = join(dirname(target), `next-${basename(target)}`)
      copyFileSync(binary, draft)
      chmodSync(draft, 0o755)
      chownTo(draft, user)
      // On a volume mounted noexec this fails before anything else is changed.
      run(draft, ['--version'])
      renameSync(draft, target)
    },
  })
  if (enrollmentKey !== undefined) {
    const file = keyFilePath(stateDir)
    const write = (): void => {
      rmSync(file, { force: true })
      writeFileSync(file, `${enrollmentKey}\n`, { mode: 0o600, flag: 'wx' })
      chownTo(file, user)
    }
    steps.push({ what: `write the enrollment key to ${file}, which the agent removes`, do: write })
  }
  const text = unitText(installation)
  if (!existsSync(unit) || readFileSync(unit, 'utf8') !== text) {
    steps.push({
      what: `write ${unit}`,
      do: () => {
        mkdirSync(unitDir, { recursive: true })
        writeFileSync(unit, text, { mode: 0o644 })
      },
    })
  }
  return [...steps, ...systemctl(unitDir, ['daemon-reload'], ['enable', unitName], ['restart', unitName])]
}

/** `purge` also removes the identity and the user. */
export function uninstallSteps(where: {
  stateDir: string
  user: string
  unitDir: string
  purge: boolean
}): InstallStep[] {
  const { stateDir, user, unitDir, purge } = where
  const unit = join(unitDir, unitName)
  const steps: InstallStep[] = []
  if (existsSync(unit)) {
    steps.push(...systemctl(unitDir, ['disable', '--now', unitName]))
    steps.push({ what: `remove ${unit}`, do: () => rmSync(unit, { force: true }) })
    steps.push(...systemctl(unitDir, ['daemon-reload']))
  }
  if (!purge) return steps
  if (existsSync(stateDir)) {
    if (!existsSync(binaryPath(stateDir)) && !existsSync(join(stateDir, 'identity.json'))) {
      throw new CliError(`${stateDir} is not the state directory of an agent`)
    }
    steps.push({ what: `remove ${stateDir}`, do: () => rmSync(stateDir, { recursive: true }) })
  }
  if (userIds(user) !== undefined)
    steps.push({ what: `remove the user ${user}`, do: () => run('userdel', [user]) })
  return steps
}

/** Only where systemd runs and reads that directory. */
const systemctl = (unitDir: string, ...calls: string[][]): InstallStep[] =>
  hasSystemd() && unitDir === '/etc/systemd/system'
    ? calls.map((args) => ({ what: `systemctl ${args.join(' ')}`, do: () => run('systemctl', args) }))
    : []

/** undefined when there is no such user. */
function userIds(user: string): { uid: number; gid: number } | undefined {
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
    return undefined
  }
}

function chownTo(path: string, user: string): void {
  const id = userIds(user)
  if (id && id.uid !== process.getuid?.()) chownSync(path, id.uid, id.gid)
}

function run(command: string, args: string[]): void {
  try {
    execFileSync(command, args, { stdio: ['ignore', 'ignore', 'pipe'], timeout: 60_000, encoding: 'utf8' })
  } catch (error) {
    const { stderr, code } = error as NodeJS.ErrnoException & { stderr?: string }
    throw new CliError(
      `${[command, ...args].join(' ')} failed: ${stderr?.trim() || code || 'it cannot be run'}`,
    )
  }
}

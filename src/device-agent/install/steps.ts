import { chmodSync, copyFileSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { CliError } from '../../cli/exit-codes.ts'
import { chownTo, type InstallStep, run, systemctl, userIds, userStep } from '../../cli/machine-steps.ts'
import { makeFolder } from '../../core/make-folder.ts'
import { keyFilePath } from '../state.ts'
import { binaryPath, type Placement, unitName, unitText } from './unit.ts'

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
  steps.push(...userStep(user, stateDir))
  steps.push({
    what: `create ${stateDir}, accessible by ${user} only`,
    do: () => {
      for (const directory of [stateDir, dirname(target)]) {
        makeFolder(directory)
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
        makeFolder(unitDir, 0o777)
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

import { chmodSync, copyFileSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { usageError } from '../../cli/exit-codes.ts'
import {
  checkPrivileges,
  chownTo,
  type InstallStep,
  noteOf,
  run,
  systemctl,
  systemUnits,
  userIds,
  userStep,
} from '../../cli/machine-steps.ts'
import { makeFolder } from '../../core/make-folder.ts'
import { keyFilePath } from '../state.ts'
import type { Installation, Installer, InstallLocation } from './installer.ts'
import { removeStateStep } from './state-step.ts'
import { agentUnitName, agentUnitText, binaryPath } from './unit.ts'

/** The agent as a service of systemd, with a user of its own. */
export const systemd: Installer = {
  placeOf(flags) {
    const stateDir = resolve(flags['state-dir'] ?? '/var/lib/svc-agent')
    const user = flags.user ?? 'svc-agent'
    // The values are written into a unit, and the directory may be removed recursively.
    if (!/^(\/[\w.+@-]+){2,}$/.test(stateDir)) throw usageError(`--state-dir cannot be ${stateDir}`)
    if (!/^[a-z_][a-z0-9_-]{0,31}$/.test(user)) throw usageError(`--user cannot be "${user}"`)
    return { stateDir, user, unitFile: join(resolve(flags['unit-dir'] ?? systemUnits), agentUnitName) }
  },
  unitText: ({ stateDir, user }, url) => agentUnitText({ stateDir, user, url }),
  checkPrivileges: (flags, { user, unitFile }) => checkPrivileges(flags, user, dirname(unitFile)),
  installSteps,
  uninstallSteps,
  noteAfterInstall: ({ unitFile }) => noteOf(dirname(unitFile), agentUnitName),
  // Whoever runs it reads its output.
  recordFailure() {},
}

function installSteps(installation: Installation): InstallStep[] {
  const { stateDir, user, binary, unitFile, enrollmentKey } = installation
  const unitDir = dirname(unitFile)
  const target = binaryPath(stateDir)
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
  const text = agentUnitText(installation)
  if (!existsSync(unitFile) || readFileSync(unitFile, 'utf8') !== text) {
    steps.push({
      what: `write ${unitFile}`,
      do: () => {
        makeFolder(unitDir, 0o777)
        writeFileSync(unitFile, text, { mode: 0o644 })
      },
    })
  }
  return [
    ...steps,
    ...systemctl(unitDir, ['daemon-reload'], ['enable', agentUnitName], ['restart', agentUnitName]),
  ]
}

/** `purge` also removes the identity and the user. */
function uninstallSteps({ stateDir, user, unitFile }: InstallLocation, purge: boolean): InstallStep[] {
  const unitDir = dirname(unitFile)
  const steps: InstallStep[] = []
  if (existsSync(unitFile)) {
    steps.push(...systemctl(unitDir, ['disable', '--now', agentUnitName]))
    steps.push({ what: `remove ${unitFile}`, do: () => rmSync(unitFile, { force: true }) })
    steps.push(...systemctl(unitDir, ['daemon-reload']))
  }
  if (!purge) return steps
  if (existsSync(stateDir)) steps.push(removeStateStep(stateDir, [binaryPath(stateDir)]))
  if (userIds(user) !== undefined)
    steps.push({ what: `remove the user ${user}`, do: () => void run('userdel', [user]) })
  return steps
}

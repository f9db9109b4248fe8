import { appendFileSync, copyFileSync, existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { CliError, exitCodes, usageError } from '../../cli/exit-codes.ts'
import { type InstallStep, run } from '../../cli/machine-steps.ts'
import { makeFolder } from '../../core/make-folder.ts'
import { displacedFile, replaceProgram, stagedFile } from '../update/files.ts'
import type { Installation, Installer, InstallLocation } from './installer.ts'
import { removeStateStep } from './state-step.ts'
import { taskBytes, taskFile, taskName, taskText } from './task.ts'

/** SYSTEM and Administrators: their names differ by language. */
const trusted = ['S-1-5-18', 'S-1-5-32-544']
/** Integrity levels of an elevated process, and of one of the system. */
const elevated = /S-1-16-(12288|16384)\b/

export type WindowsMachine = {
  env: NodeJS.ProcessEnv
  /** This program, which cannot remove its own file. */
  self: string
  now: () => Date
  run: (
    program: string,
    args: string[],
    options?: { env?: Record<string, string>; timeoutMs?: number },
  ) => string
}

const thisMachine: WindowsMachine = {
  env: process.env,
  self: process.execPath,
  now: () => new Date(),
  run,
}

/** The agent as a scheduled task (docs/decisions/0056-the-agent-of-windows-is-a-scheduled-task.md). `machine` is replaced in tests. */
export function windowsInstaller(machine: WindowsMachine = thisMachine): Installer {
  const { env, now } = machine
  const programData = env.ProgramData ?? 'C:\\ProgramData'
  const binary = join(env.ProgramFiles ?? 'C:\\Program Files', 'svc-agent', 'svc-agent.exe')
  const system = join(env.SystemRoot ?? 'C:\\Windows', 'System32')
  const textOf = (stateDir: string, url: string | undefined): string =>
    taskText({ binary, displaced: displacedFile(binary), stateDir, url, shell: join(system, 'cmd.exe') })
  const logFile = (stateDir: string): string => join(stateDir, 'install.log')
  let log: string | undefined

  /** By its path: a program of that name in the present folder would be found first. */
  const call = (program: string, ...args: string[]): string =>
    machine.run(join(system, `${program}.exe`), args)

  function placeOf(flags: Parameters<Installer['placeOf']>[0]): InstallLocation {
    for (const name of ['user', 'unit-dir'] as const)
      if (flags[name] !== undefined)
        throw usageError(`--${name} is for Linux: here a task of SYSTEM starts the agent`)
    const stateDir = resolve(flags['state-dir'] ?? join(programData, 'svc-agent'))
    checkStateDir(stateDir)
    return { stateDir, user: 'SYSTEM', unitFile: taskFile(stateDir) }
  }

  function installSteps({ stateDir, url, binary: source, enrollmentKey }: Installation): InstallStep[] {
    const steps: InstallStep[] = []
    steps.push({
      what: `create ${stateDir}, accessible by SYSTEM and administrators only`,
      do: () => {
        protectStateDir(stateDir)
        log = logFile(stateDir)
        writeFileSync(log, '')
      },
    })
    if (isRegistered()) steps.push({ what: `end the task ${taskName}`, do: endTask })
    if (resolve(source).toLowerCase() !== binary.toLowerCase()) {
      steps.push({
        what: `copy ${source} to ${binary}`,
        do: () => {
          const draft = stagedFile(binary)
          makeFolder(dirname(binary))
          copyFileSync(source, draft)
          machine.run(draft, ['--version'])
          replaceProgram(draft, binary)
        },
      })
    }
    if (enrollmentKey !== undefined) {
      const args = ['run', '--once', '--no-input', '--state-dir', stateDir]
      if (url !== undefined) args.push('--url', url)
      steps.push({
        what: 'enroll this machine',
        // The environment of a process of an administrator is for administrators; its arguments are in the security log.
        do: () => {
          const options = { env: { SVC_ENROLLMENT_KEY: enrollmentKey }, timeoutMs: 180_000 }
          machine.run(binary, args, options)
        },
      })
    }
    const file = taskFile(stateDir)
    steps.push({
      what: `write ${file}`,
      do: () => writeFileSync(file, taskBytes(textOf(stateDir, url))),
    })
    const register = ['/Create', '/F', '/TN', taskName, '/XML', file]
    steps.push({ what: `register the task ${taskName}`, do: () => void call('schtasks', ...register) })
    steps.push({
      what: `start the task ${taskName}`,
      do: () => void call('schtasks', '/Run', '/TN', taskName),
    })
    return steps.map(logged)
  }

  /** Who could write to the directory before may have put an identity there, with a service that then commands this machine. */
  function protectStateDir(stateDir: string): void {
    makeFolder(stateDir)
    checkOwners(stateDir, '')
    call('icacls', stateDir, '/setowner', `*${trusted[1]}`)
    call('icacls', stateDir, '/inheritance:r', '/grant:r', ...trusted.map((sid) => `*${sid}:(OI)(CI)F`))
    checkOwners(stateDir, '-Recurse')
  }

  function checkOwners(stateDir: string, how: '' | '-Recurse'): void {
    const items = how
      ? 'Get-ChildItem -LiteralPath $env:SVC_PLACE -Force -Recurse'
      : 'Get-Item -LiteralPath $env:SVC_PLACE -Force'
    const script = `$ErrorActionPreference = 'Stop'; ${items} | ForEach-Object { (Get-Acl -LiteralPath $_.FullName).GetOwner([Security.Principal.SecurityIdentifier]).Value }`
    const powershell = join(system, 'WindowsPowerShell', 'v1.0', 'powershell.exe')
    const args = ['-NoProfile', '-NonInteractive', '-Command', script]
    const owners = machine
      .run(powershell, args, { env: { SVC_PLACE: stateDir } })
      .split(/\s+/)
      .filter(Boolean)
    const stranger = owners.find((sid) => !trusted.includes(sid))
    if (stranger === undefined) return
    throw new CliError(
      `${stateDir} ${how ? 'has files of' : 'belongs to'} ${stranger}, who is neither SYSTEM nor Administrators`,
      {
        hint: 'remove it, or give it to them once you know what is in it: icacls DIR /setowner *S-1-5-32-544 /T',
      },
    )
  }

  function isRegistered(): boolean {
    try {
      call('schtasks', '/Query', '/TN', taskName)
      return true
    } catch {
      // schtasks fails for a task that it does not know; where it fails for all, so does the registration.
      return false
    }
  }

  /** A task that does not run has nothing to end, which is an error of some versions of Windows. */
  function endTask(): void {
    try {
      call('schtasks', '/End', '/TN', taskName)
    } catch {
      // What is left of it would be seen by the next step.
    }
  }

  const logged = ({ what, do: work }: InstallStep): InstallStep => ({
    what,
    do: () => {
      work()
      note(`Done: ${what}`)
    },
  })

  const note = (text: string): void => {
    if (log !== undefined) appendFileSync(log, `${now().toISOString()} ${text}\r\n`)
  }

  function uninstallSteps({ stateDir }: InstallLocation, purge: boolean): InstallStep[] {
    const steps: InstallStep[] = []
    const remove = ['/Delete', '/F', '/TN', taskName]
    if (isRegistered()) {
      steps.push({ what: `end the task ${taskName}`, do: endTask })
      steps.push({ what: `remove the task ${taskName}`, do: () => void call('schtasks', ...remove) })
    }
    const programDir = dirname(binary)
    const isOwn = (file: string): boolean => file.toLowerCase() === machine.self.toLowerCase()
    const files = existsSync(programDir) ? readdirSync(programDir).map((name) => join(programDir, name)) : []
    const others = files.filter((file) => !isOwn(file))
    if (others.length > 0) {
      const rest = others.length < files.length ? `, but ${basename(machine.self)}, which runs` : ''
      steps.push({
        what: `remove what is in ${programDir}${rest}`,
        do: () => {
          for (const path of rest ? others : [programDir])
            rmSync(path, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 })
        },
      })
    }
    if (purge && existsSync(stateDir)) steps.push(removeStateStep(stateDir, [taskFile(stateDir)]))
    return steps
  }

  return {
    placeOf,
    unitText: ({ stateDir }, url) => textOf(stateDir, url),
    checkPrivileges(flags) {
      if (flags['dry-run'] || elevated.test(call('whoami', '/groups', '/fo', 'csv', '/nh'))) return
      throw new CliError('This requires an administrator', {
        exit: exitCodes.forbidden,
        code: 'forbidden',
        hint: 'run it in a terminal that was opened as administrator',
      })
    },
    installSteps,
    uninstallSteps,
    noteAfterInstall() {},
    recordFailure(message) {
      note(`Failed: ${message}`)
      try {
        const args = ['/L', 'APPLICATION', '/T', 'ERROR', '/SO', taskName, '/ID', '1', '/D']
        call('eventcreate', ...args, `svc-agent was not installed: ${message.slice(0, 1000)}`)
      } catch {
        // The failure itself is reported anyway.
      }
    },
  }
}

/** It is written into the arguments of a task, and may be removed recursively. */
export function checkStateDir(stateDir: string): void {
  if (!/^[A-Za-z]:(\\[^\\/:*?"<>|%\p{Cc}]+){2,}$/u.test(stateDir))
    throw usageError(`--state-dir cannot be ${stateDir}`)
}

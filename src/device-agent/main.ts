import { fileURLToPath } from 'node:url'
import { type ParseArgsOptionsConfig, parseArgs } from 'node:util'
import { usageError } from '../cli/exit-codes.ts'
import { runAndExit } from '../cli/run-and-exit.ts'
import { options } from './options.ts'
import { type Build, currentExecutable } from './update/executable.ts'

/** Inserted when the single file is built. */
declare const agentBuild: Build

const help = `svc-agent ${agentBuild.version}

  svc-agent run         enroll this machine when it is not enrolled yet, and report until SIGTERM or Ctrl-C
  svc-agent install     start it with this machine: as a service of systemd, or a scheduled task of Windows
  svc-agent uninstall   undo that
  svc-agent --version

The flags are those of svc agent run, install and uninstall; svc-agent(7) describes them.
`

/** The agent as a single file, without the rest of svc. */
async function run(command: string | undefined, argv: string[]): Promise<void> {
  const script = fileURLToPath(import.meta.url)
  switch (command) {
    case '--version':
      return void process.stdout.write(`${agentBuild.version}\n`)
    case 'run': {
      const { runAtTerminal } = await import('./terminal.ts')
      const { interval, ...flags } = flagsIn(argv, options.run)
      const seconds = interval === undefined ? undefined : secondsIn(interval)
      return runAtTerminal({ ...flags, interval: seconds }, agentBuild, script)
    }
    case 'install': {
      const { installAtTerminal } = await import('./install/terminal.ts')
      const { unit } = await installAtTerminal(
        flagsIn(argv, options.install),
        currentExecutable(agentBuild, script).file,
      )
      return void process.stdout.write(unit ?? '')
    }
    case 'uninstall': {
      const { uninstallAtTerminal } = await import('./install/terminal.ts')
      await uninstallAtTerminal(flagsIn(argv, options.uninstall))
      return
    }
    case undefined:
    case 'help':
    case '--help':
    case '-h':
      return void process.stdout.write(help)
    default:
      throw usageError(`Unknown command "${command}"`, 'svc-agent --help lists them')
  }
}

function flagsIn<T extends ParseArgsOptionsConfig>(args: string[], known: T) {
  try {
    return parseArgs({ args, options: known, allowPositionals: false }).values
  } catch (error) {
    throw usageError((error as Error).message.split('. ')[0]!, 'svc-agent(7) describes the flags')
  }
}

function secondsIn(text: string): number {
  const seconds = Number(text)
  if (/^\d+$/.test(text) && seconds >= 1 && seconds <= 86_400) return seconds
  throw usageError('--interval takes seconds, from 1 to 86400')
}

const [, , command, ...argv] = process.argv
await runAndExit(argv, () => run(command, argv))

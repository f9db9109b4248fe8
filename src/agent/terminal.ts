import { askSecret, attended, secretFrom } from '../cli/ask.ts'
import { CliError, usage } from '../cli/exit.ts'
import { say } from '../cli/print.ts'
import { type Settings, settingsOf } from '../cli/settings.ts'
import { nodeTransport, socketWay } from '../cli/transport.ts'
import { errors, Problem } from '../core/errors.ts'
import { type AgentEvent, lineOf } from './events.ts'
import { startAgent } from './start.ts'
import { stateDirFrom } from './state.ts'

/** What `svc agent run` was told. */
export type Flags = {
  'enrollment-key'?: string | undefined
  url?: string | undefined
  'state-dir'?: string | undefined
  interval?: number | undefined
  once: boolean
  json: boolean
  'no-input': boolean
}

/** The agent as a command: settings and key from where a person puts them, events to where one looks. */
export async function runAtTerminal(flags: Flags, version: string): Promise<void> {
  const settings = settingsOf(flags)
  const { url, caFile } = settings
  const start = {
    stateDir: flags['state-dir'] || stateDirFrom(process.env, process.getuid?.()),
    // A context is how a person reaches the service, not the agent.
    url: url.from === 'flag' || url.from === 'env' ? url.value : undefined,
    transport: nodeTransport({ caFile: caFile.value }),
    wayTo: (at: URL) => socketWay(at, { caFile: caFile.value }),
    enrollmentKey: await keySource(flags['enrollment-key'], settings),
    version,
    report: (event: AgentEvent) =>
      flags.json ? void process.stdout.write(`${JSON.stringify(event)}\n`) : say(lineOf(event)),
  }
  try {
    await startAgent(start, { once: flags.once, intervalSeconds: flags.interval })
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    throw new CliError(error.message, { exit: errors[error.code].exit, code: error.code })
  }
}

/** Reads the key when it is needed; says at once when it was put where others can read it. */
async function keySource(flag: string | undefined, settings: Settings): Promise<() => Promise<string>> {
  const keyInEnvironment = process.env.SVC_ENROLLMENT_KEY
  // Not for the programs that are asked about the machine.
  delete process.env.SVC_ENROLLMENT_KEY
  const fromFlag = (): Promise<string> => secretFrom(flag ?? '', '--enrollment-key')
  if (flag !== undefined && flag !== '-' && !flag.startsWith('@')) await fromFlag()
  return async () => {
    if (flag !== undefined) return fromFlag()
    if (keyInEnvironment) return keyInEnvironment
    if (attended(settings)) return askSecret('Enrollment key:')
    throw usage(
      'Missing --enrollment-key',
      'this machine is not enrolled yet: give -, @file or SVC_ENROLLMENT_KEY',
    )
  }
}

import { existsSync } from 'node:fs'
import { parseTrustKey } from '../agents/versions/manifest.ts'
import { askSecret, isInteractive, readSecret, readStdinOrFile, readTextFile } from '../cli/ask.ts'
import { toReport } from '../cli/error-report.ts'
import { CliError, exitCodes, SilentExit, usageError } from '../cli/exit-codes.ts'
import { resolveSettings, type Settings } from '../cli/settings.ts'
import { printNote } from '../cli/stderr-notes.ts'
import { nodeTransport, socketOptions } from '../cli/transport.ts'
import { errors, Problem } from '../core/errors.ts'
import { onOutputFailure } from '../core/terminal.ts'
import { NetworkError } from '../core/transport.ts'
import { type AgentEvent, formatEvent } from './events.ts'
import { startAgent } from './start.ts'
import { identityStore, keyFilePath, stateDirFrom } from './state.ts'
import { type Build, currentExecutable } from './update/executable.ts'
import { notifyWatchdog, takeRole } from './watchdog/messages.ts'

/** Flags of `svc agent run`. */
export type RunFlags = {
  'enrollment-key'?: string | undefined
  url?: string | undefined
  'state-dir'?: string | undefined
  interval?: number | undefined
  'trust-key'?: string[] | undefined
  once: boolean
  json: boolean
  'no-input': boolean
}

/**
 * The agent as a command: reads flags and key, prints events. Without --once this process is its watchdog. `script`:
 * path of the single file of this program, if it is a script.
 */
export async function runAtTerminal(flags: RunFlags, build: Build, script?: string): Promise<void> {
  const part = takeRole(process.env)
  // Output may fail (a full disk, a closed reader): that does not end the agent.
  onOutputFailure(() => {})
  // Beyond a file size limit writes fail: the failure is reported, the signal must not terminate the process.
  if (process.platform !== 'win32') process.on('SIGXFSZ', () => {})
  const settings = resolveSettings(flags)
  const { url, caFile } = settings
  const isWatchdog = part === 'trial' || (part === 'watchdog' && !flags.once)
  const stateDir = flags['state-dir'] || stateDirFrom(process.env, process.getuid?.())
  const start = {
    part,
    stateDir,
    // A CLI context applies to users, not to the agent.
    url: url.from === 'flag' || url.from === 'env' ? url.value : undefined,
    transport: nodeTransport({ caFile: caFile.value }),
    wayTo: (at: URL) => socketOptions(at, { caFile: caFile.value }),
    enrollmentKey: isWatchdog ? noKey : await keySource(flags['enrollment-key'], settings, stateDir),
    trustKeys: await trustKeysFrom(flags['trust-key']),
    self: currentExecutable(build, script),
    report: (event: AgentEvent) =>
      flags.json ? void process.stdout.write(`${JSON.stringify(event)}\n`) : printNote(formatEvent(event)),
  }
  if (part === 'watchdog' && flags['enrollment-key'] !== undefined && identityStore(stateDir).load())
    printNote('This machine is enrolled already: the enrollment key is not used')
  try {
    if (isWatchdog) {
      const { startWatchdog } = await import('./watchdog/start.ts')
      const exit = await startWatchdog(start, process.env)
      if (exit !== 0) throw new SilentExit(exit)
    } else await startAgent(start, { once: flags.once, intervalSeconds: flags.interval })
  } catch (error) {
    const failure = isProblem(error) ? toCliError(error) : withAddress(error, settings)
    // A conflict with another agent may be temporary, and a bug may not recur: both are worth a restart.
    const lasting = toReport(failure) !== undefined && !(isProblem(error) && error.code === 'conflict')
    if (!isWatchdog && lasting) await notifyWatchdog({ said: 'farewell' })
    throw failure
  }
}

const isProblem = (error: unknown): error is Problem => error instanceof Problem

/** Names the address to give where the context of the user is not that of the agent. */
function withAddress(error: unknown, { active, url }: Settings): unknown {
  if (!(error instanceof NetworkError) || error.proxy || error.hint) return error
  const isGiven = url.from === 'flag' || url.from === 'env'
  const hint =
    !isGiven && active
      ? `contexts are not for agents: --url ${url.value} is that of yours`
      : 'is the service running there? --url or SVC_URL chooses another one'
  return new CliError(error.message, { exit: exitCodes.unreachable, code: 'unreachable', hint, cause: error })
}

const toCliError = ({ message, code }: Problem): CliError =>
  new CliError(message, { exit: errors[code].exit, code })

/** Only the agent that a watchdog starts uses the key. */
const noKey = (): Promise<string> => Promise.reject(new Error('a watchdog has no enrollment key'))

/** Trust keys are public: given literally, or as `@file`. */
async function trustKeysFrom(flags: string[] | undefined): Promise<string[] | undefined> {
  if (!flags || flags.length === 0) return undefined
  return Promise.all(
    flags.map(async (flag) => {
      const text = (await readStdinOrFile(flag, '--trust-key')) ?? flag
      try {
        return parseTrustKey(text).publicKeyB64
      } catch {
        // It may be a private key by mistake: the message must not contain it.
        throw usageError('--trust-key is not an Ed25519 public key', 'in base64, or @file with base64 or PEM')
      }
    }),
  )
}

/** Returns a function that reads the key when needed; rejects a key on the command line immediately. */
async function keySource(
  flag: string | undefined,
  settings: Settings,
  stateDir: string,
): Promise<() => Promise<string>> {
  const keyInEnvironment = process.env.SVC_ENROLLMENT_KEY
  // Child processes must not inherit it.
  delete process.env.SVC_ENROLLMENT_KEY
  const fromFlag = (): Promise<string> => readSecret(flag ?? '', '--enrollment-key')
  if (flag !== undefined && flag !== '-' && !flag.startsWith('@')) await fromFlag()
  return async () => {
    if (flag !== undefined) return fromFlag()
    if (keyInEnvironment) return keyInEnvironment
    if (existsSync(keyFilePath(stateDir)))
      return readTextFile(keyFilePath(stateDir), 'the enrollment key').trim()
    if (isInteractive(settings)) return askSecret('Enrollment key:')
    throw usageError(
      'Missing --enrollment-key',
      'this machine is not enrolled yet: give -, @file or SVC_ENROLLMENT_KEY',
    )
  }
}

import { join } from 'node:path'
import { CliError } from '../../cli/exit-codes.ts'
import { Problem } from '../../core/errors.ts'
import { commandHistory } from '../commands/history.ts'
import { diagnosticsRecorder } from '../diagnostics.ts'
import { lockStateDir } from '../lock.ts'
import type { Spool } from '../spool/spool.ts'
import { buildUpdater, type StartOptions, sharedDependencies } from '../start.ts'
import { prepareStateDir } from '../state.ts'
import { openUpdateJournal } from '../update/journal.ts'
import { binarySwapper } from './binary-swap.ts'
import { Child } from './child.ts'
import { watchdogHeartbeats } from './heartbeats.ts'
import { type SupervisorOutcome, stagedSignal, supervise } from './supervisor.ts'

/**
 * Runs the watchdog: it starts the agent, and does little else that could fail. Resolves with the exit code; after an
 * update the process execs the new binary, and this never resolves.
 */
export async function startWatchdog(start: StartOptions, env: NodeJS.ProcessEnv): Promise<number> {
  const stop = new AbortController()
  const end = (): void => stop.abort()
  process.on('SIGTERM', end).on('SIGINT', end)
  // A binary on trial stops with the process that tries it.
  if (start.part === 'trial') process.on('disconnect', end)
  try {
    const outcome = await withLock(start, stop, () => superviseAgent(start, env, stop.signal))
    if (outcome !== 'become') return outcome.exit
  } catch (error) {
    if (!stop.signal.aborted || error instanceof Problem) throw error
    start.report({ event: 'stopped' })
    return 0
  } finally {
    process.off('SIGTERM', end).off('SIGINT', end).off('disconnect', end)
  }
  return execInto(start.self.restartCommand, env)
}

/** During a trial the process that tries the binary holds the lock. */
async function withLock(
  { stateDir, part }: StartOptions,
  stop: AbortController,
  run: () => Promise<SupervisorOutcome>,
): Promise<SupervisorOutcome> {
  prepareStateDir(stateDir)
  if (part === 'trial') return run()
  const unlock = await lockStateDir(stateDir, (reason) => stop.abort(reason), stop.signal)
  try {
    const outcome = await run()
    if (stop.signal.reason instanceof Problem) throw stop.signal.reason
    return outcome
  } finally {
    await unlock()
  }
}

async function superviseAgent(
  start: StartOptions,
  env: NodeJS.ProcessEnv,
  stop: AbortSignal,
): Promise<SupervisorOutcome> {
  const { stateDir, self, part } = start
  const ended = new AbortController()
  const signal = AbortSignal.any([stop, ended.signal])
  const onTrial = part === 'trial'
  const common = sharedDependencies(start, signal)
  const parts = { ...common, spool: closeAfterAppend(common.spool) }
  const { settings, spool } = parts
  const report = diagnosticsRecorder(spool).watch(start.report)
  const staged = stagedSignal()
  const updater = buildUpdater(start, parts, {
    // The agent itself reports whether it takes updates.
    report: (event) => (event.event === 'update' && event.state === 'off' ? undefined : start.report(event)),
    signal,
    tokenOf: ({ watchdogAuthToken }) => watchdogAuthToken,
    startTrial: staged.add,
  })
  const heartbeats = watchdogHeartbeats({
    ...parts,
    version: self.version,
    signal,
    report,
    commands: commandHistory(join(stateDir, 'watchdog-commands.json')),
    upgrade: updater.consider,
  })
  const installation =
    self.file === undefined || onTrial
      ? undefined
      : binarySwapper({
          ...parts,
          file: self.file,
          version: self.version,
          journal: openUpdateJournal(stateDir),
          report,
          signal: stop,
          now: () => new Date(),
          trialSeconds: () => settings.load().trialSeconds,
          start: (staged) => new Child({ ...self.restartCommand, file: staged }, 'trial', env),
        })
  if (!onTrial) void heartbeats.run()
  try {
    return await supervise({
      ...parts,
      report,
      heartbeats,
      installation,
      onTrial,
      signal: stop,
      settings: settings.load,
      start: () => new Child(self.restartCommand, onTrial ? 'agent-on-trial' : 'agent', env),
      staged,
    })
  } finally {
    ended.abort()
  }
}

/**
 * The agent reads and removes segments: this closes each one, so that nothing is appended to one that may have been
 * read.
 */
const closeAfterAppend = (spool: Spool): Spool => ({
  ...spool,
  append(record) {
    spool.append(record, { durable: true })
    spool.close()
  },
})

/** Without execve, as on Windows, systemd or the scheduled task starts the program again. */
function execInto({ file, args }: StartOptions['self']['restartCommand'], env: NodeJS.ProcessEnv): number {
  try {
    process.execve?.(file, [file, ...args], env)
    return 0
  } catch (error) {
    throw new CliError(`Cannot run ${file} in place of this process: ${(error as Error).message}`, {
      cause: error,
    })
  }
}

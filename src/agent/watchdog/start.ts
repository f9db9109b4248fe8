import { join } from 'node:path'
import { Problem } from '../../core/errors.ts'
import { commandsIn } from '../commands/memory.ts'
import { keepDiagnostics } from '../diagnostics.ts'
import { lockStateDir } from '../lock.ts'
import type { Spool } from '../spool/spool.ts'
import { partsOf, type Start, updaterFor } from '../start.ts'
import { prepareStateDir } from '../state.ts'
import { journalIn } from '../update/journal.ts'
import { Child } from './child.ts'
import { installationOf } from './installation.ts'
import { pulseOf } from './pulse.ts'
import { type Outcome, stagedOnes, watch } from './watch.ts'

/**
 * The watchdog as a process: it starts the agent proper, and itself does next to nothing that could fail. Resolves with the
 * exit code; where this program was replaced the process becomes the other one, and this never resolves.
 */
export async function startWatchdog(start: Start, env: NodeJS.ProcessEnv): Promise<number> {
  const stop = new AbortController()
  const end = (): void => stop.abort()
  process.on('SIGTERM', end).on('SIGINT', end)
  // A binary on trial ends with whoever tries it.
  if (start.part === 'trial') process.on('disconnect', end)
  try {
    const outcome = await alone(start, stop, () => watching(start, env, stop.signal))
    if (outcome !== 'become') return outcome.exit
  } catch (error) {
    if (!stop.signal.aborted || error instanceof Problem) throw error
    start.report({ event: 'stopped' })
    return 0
  } finally {
    process.off('SIGTERM', end).off('SIGINT', end).off('disconnect', end)
  }
  return become(start.self.again, env)
}

/** Whoever tries a binary has the lock for it. */
async function alone(
  { stateDir, part }: Start,
  stop: AbortController,
  run: () => Promise<Outcome>,
): Promise<Outcome> {
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

async function watching(start: Start, env: NodeJS.ProcessEnv, stop: AbortSignal): Promise<Outcome> {
  const { stateDir, self, part } = start
  const ended = new AbortController()
  const signal = AbortSignal.any([stop, ended.signal])
  const onTrial = part === 'trial'
  const common = partsOf(start, signal)
  const parts = { ...common, spool: closing(common.spool) }
  const { settings, spool } = parts
  const report = keepDiagnostics(spool).watch(start.report)
  const staged = stagedOnes()
  const updater = updaterFor(start, parts, {
    // The agent says whether it takes updates.
    report: (event) => (event.event === 'update' && event.state === 'off' ? undefined : start.report(event)),
    signal,
    tokenOf: ({ watchdogAuthToken }) => watchdogAuthToken,
    tryOut: staged.add,
  })
  const pulse = pulseOf({
    ...parts,
    version: self.version,
    signal,
    report,
    commands: commandsIn(join(stateDir, 'watchdog-commands.json')),
    upgrade: updater.consider,
  })
  const installation =
    self.file === undefined || onTrial
      ? undefined
      : installationOf({
          ...parts,
          file: self.file,
          version: self.version,
          journal: journalIn(stateDir),
          report,
          signal: stop,
          now: () => new Date(),
          trialSeconds: () => settings.load().trialSeconds,
          start: (staged) => new Child({ ...self.again, file: staged }, 'trial', env),
        })
  if (!onTrial) void pulse.keep()
  try {
    return await watch({
      ...parts,
      report,
      pulse,
      installation,
      onTrial,
      signal: stop,
      settings: settings.load,
      start: () => new Child(self.again, onTrial ? 'agent-on-trial' : 'agent', env),
      staged,
    })
  } finally {
    ended.abort()
  }
}

/** The agent reads the segments and removes them: none is added to that it may have read. */
const closing = (spool: Spool): Spool => ({
  ...spool,
  append(record) {
    spool.append(record, { durable: true })
    spool.close()
  },
})

/** Where that cannot be done, whoever started this process starts it again. */
function become({ file, args }: Start['self']['again'], env: NodeJS.ProcessEnv): number {
  try {
    process.execve?.(file, [file, ...args], env)
    return 0
  } catch {
    return 1
  }
}

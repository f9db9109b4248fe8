import { join } from 'node:path'
import { agentUpdates } from '../agents/upgrades/contract.ts'
import type { SocketOptions } from '../cli/transport.ts'
import type { Client, Transport } from '../core/client.ts'
import { Problem } from '../core/errors.ts'
import type { Agent } from './agent.ts'
import { reportAlive } from './alive-file.ts'
import { monotonicClock } from './clock.ts'
import { commandHistory } from './commands/history.ts'
import { agentClient, agentDialer } from './connection.ts'
import { diagnosticsRecorder } from './diagnostics.ts'
import type { Report } from './events.ts'
import { lockStateDir } from './lock.ts'
import { logPositionStore } from './log-position.ts'
import { isServiceFailure } from './retry.ts'
import { type RunOptions, runAgent } from './run.ts'
import { settingsStore } from './settings.ts'
import { openSpool } from './spool/spool.ts'
import { type Identity, identityStore, prepareStateDir } from './state.ts'
import type { Executable } from './update/executable.ts'
import { openUpdateJournal } from './update/journal.ts'
import { trustStore } from './update/trust-store.ts'
import { type Updater, updaterOf } from './update/updater.ts'
import { notifyWatchdog, type ProcessRole } from './watchdog/messages.ts'

export type StartOptions = {
  stateDir: string
  /** Overrides the service that the machine is enrolled with. */
  url: string | undefined
  transport: Transport
  /** Proxy and certificates of a WebSocket. */
  wayTo: (url: URL) => Promise<SocketOptions>
  enrollmentKey: () => Promise<string>
  /** Overrides the keys of the settings or the service. */
  trustKeys: readonly string[] | undefined
  self: Executable
  /** Role of this process. */
  part: ProcessRole
  report: Report
}

const defaultUrl = 'http://127.0.0.1:3000'

/** Runs the agent: alone on its state directory, until SIGTERM or SIGINT. */
export async function startAgent(start: StartOptions, pace: RunOptions): Promise<void> {
  const stop = new AbortController()
  const end = (): void => stop.abort()
  process.on('SIGTERM', end).on('SIGINT', end)
  // There must not be two agents on a machine: this one stops with the watchdog that started it.
  if (start.part !== 'watchdog') process.on('disconnect', end)
  try {
    // Work in progress may not react to the signal: a prompt, or a slow disk query.
    await Promise.race([runLocked(start, pace, stop), aborted(stop.signal)])
  } catch (error) {
    if (!stop.signal.aborted) throw error
    if (stop.signal.reason instanceof Problem) throw stop.signal.reason
    start.report({ event: 'stopped' })
  } finally {
    process.off('SIGTERM', end).off('SIGINT', end).off('disconnect', end)
  }
}

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

async function runLocked(start: StartOptions, pace: RunOptions, stop: AbortController): Promise<void> {
  const { stateDir, part } = start
  const { signal } = stop
  prepareStateDir(stateDir)
  const onLost = (reason: Problem): void => stop.abort(reason)
  const unlock = await lockStateDir(stateDir, onLost, signal, part === 'watchdog' ? 'agent' : 'main')
  try {
    // The watchdog expects signs of life from here on, while the machine description is still being read.
    const identity = identityStore(stateDir)
    const { version } = start.self
    const every = Math.min(15_000, settingsStore(stateDir).load().silenceSeconds * 250)
    using alive = part === 'watchdog' ? undefined : reportAlive({ stateDir, version, identity, every })
    const report = alive?.watch(start.report) ?? start.report
    const { thisMachine } = await import('./machine.ts')
    const parts = sharedDependencies({ ...start, report }, signal)
    const agent: Agent = {
      ...parts,
      ...start,
      report,
      version,
      signal,
      logPosition: logPositionStore(stateDir),
      commands: commandHistory(join(stateDir, 'commands.json')),
      machine: thisMachine(),
      dial: agentDialer({ url: parts.url, version }, start.wayTo),
      random: Math.random,
    }
    // Without a watchdog nothing would start the new version.
    if (part === 'watchdog') return await runAgent(agent, pace)
    const updater = buildUpdater(start, parts, {
      report,
      signal,
      tokenOf: ({ authToken }) => authToken,
      startTrial: (version) => void notifyWatchdog({ said: 'staged', version }),
    })
    // An agent on trial must not start another update.
    await runAgent(
      { ...agent, updater: part === 'agent' ? updater : { ...updater, consider: () => {} } },
      pace,
    )
  } finally {
    await unlock()
  }
}

/** Dependencies of both the agent and its watchdog. */
export function sharedDependencies({ stateDir, transport, ...start }: StartOptions, signal: AbortSignal) {
  const identity = identityStore(stateDir)
  const settings = settingsStore(stateDir)
  const url = start.url ?? identity.load()?.url ?? defaultUrl
  const { version } = start.self
  return {
    url,
    identity,
    settings,
    clock: monotonicClock,
    spool: openSpool(join(stateDir, 'spool')),
    trust: trustStore(stateDir, () => start.trustKeys ?? settings.load().trustKeys),
    connect: (authToken?: () => string, headers?: Record<string, string>): Client =>
      agentClient({ url, signal, transport, version }, authToken, headers),
  }
}
export type SharedDependencies = ReturnType<typeof sharedDependencies>

/** An updater that authenticates with the given token. */
export function buildUpdater(
  { stateDir, self, transport }: Pick<StartOptions, 'stateDir' | 'self' | 'transport'>,
  parts: SharedDependencies,
  name: {
    report: Report
    signal: AbortSignal
    tokenOf: (identity: Identity) => string | undefined
    startTrial: (version: string) => void
  },
): Updater {
  return updaterOf({
    ...parts,
    self,
    stateDir,
    journal: openUpdateJournal(stateDir),
    client: parts.connect(),
    source: { transport, service: parts.url, clock: parts.clock, random: Math.random, signal: name.signal },
    report: diagnosticsRecorder(parts.spool).watch(name.report),
    now: () => new Date(),
    async reportStarted(version) {
      const identity = parts.identity.load()
      const token = identity && name.tokenOf(identity)
      if (!identity || !token) return
      const client = parts.connect(() => token)
      const params = { id: identity.agentId }
      const body = { targetVersion: version, state: 'updating' } as const
      await client.call(agentUpdates.status, { params, body }).catch((error: unknown) => {
        // Only the progress is missing then: the outcome is spooled until the service has it.
        if (!isServiceFailure(error)) throw error
      })
    },
    startTrial: name.startTrial,
  })
}

import { join } from 'node:path'
import { agentUpdates } from '../agents/upgrades/contract.ts'
import type { SocketWay } from '../cli/transport.ts'
import type { Client, Transport } from '../core/client.ts'
import { Problem } from '../core/errors.ts'
import type { Agent } from './agent.ts'
import { showAlive } from './alive.ts'
import { systemClock } from './clock.ts'
import { commandsIn } from './commands/memory.ts'
import { clientAs, dialAs } from './connection.ts'
import { keepDiagnostics } from './diagnostics.ts'
import type { Report } from './events.ts'
import { lockStateDir } from './lock.ts'
import { logPositionIn } from './log-position.ts'
import { type Pace, runAgent } from './run.ts'
import { settingsIn } from './settings.ts'
import { spoolIn } from './spool/spool.ts'
import { type Identity, identityIn, prepareStateDir } from './state.ts'
import { journalIn } from './update/journal.ts'
import type { Self } from './update/self.ts'
import { trustIn } from './update/trust.ts'
import { type Updater, updaterOf } from './update/updater.ts'
import { type Part, tellWatchdog } from './watchdog/messages.ts'

export type Start = {
  stateDir: string
  /** Instead of the service the machine is enrolled with. */
  url: string | undefined
  transport: Transport
  /** Through which proxy and by which certificates a WebSocket goes. */
  wayTo: (url: URL) => Promise<SocketWay>
  enrollmentKey: () => Promise<string>
  /** Instead of the keys that the settings or the service name. */
  trustKeys: readonly string[] | undefined
  self: Self
  /** What of the agent this process is. */
  part: Part
  report: Report
}

const defaultUrl = 'http://127.0.0.1:3000'

/** The agent proper as a process: alone on its state directory, until SIGTERM or SIGINT. */
export async function startAgent(start: Start, pace: Pace): Promise<void> {
  const stop = new AbortController()
  const end = (): void => stop.abort()
  process.on('SIGTERM', end).on('SIGINT', end)
  // Two agents of one machine are one too many: it ends with the watchdog that started it.
  if (start.part !== 'watchdog') process.on('disconnect', end)
  try {
    // What is under way may be deaf to the signal: a prompt, or a process that was asked about a disk.
    await Promise.race([runAlone(start, pace, stop), aborted(stop.signal)])
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

async function runAlone(start: Start, pace: Pace, stop: AbortController): Promise<void> {
  const { stateDir, part } = start
  const { signal } = stop
  prepareStateDir(stateDir)
  const onLost = (reason: Problem): void => stop.abort(reason)
  const unlock = await lockStateDir(stateDir, onLost, signal, part === 'watchdog' ? 'agent' : 'main')
  try {
    // Its watchdog waits for a sign of life from here on, while the machine is still asked what it is.
    const identity = identityIn(stateDir)
    const { version } = start.self
    const every = Math.min(15_000, settingsIn(stateDir).load().silenceSeconds * 250)
    using alive = part === 'watchdog' ? undefined : showAlive({ stateDir, version, identity, every })
    const report = alive?.watch(start.report) ?? start.report
    const { thisMachine } = await import('./machine.ts')
    const parts = partsOf({ ...start, report }, signal)
    const agent: Agent = {
      ...parts,
      ...start,
      report,
      version,
      signal,
      logPosition: logPositionIn(stateDir),
      commands: commandsIn(join(stateDir, 'commands.json')),
      machine: thisMachine(),
      dial: dialAs({ url: parts.url, version }, start.wayTo),
      random: Math.random,
    }
    // Alone, it could end and nobody would start what it had become.
    if (part === 'watchdog') return await runAgent(agent, pace)
    const updater = updaterFor(start, parts, {
      report,
      signal,
      tokenOf: ({ authToken }) => authToken,
      tryOut: (version) => void tellWatchdog({ said: 'staged', version }),
    })
    // One that is on trial itself goes nowhere else meanwhile.
    await runAgent(
      { ...agent, updater: part === 'agent' ? updater : { ...updater, consider: () => {} } },
      pace,
    )
  } finally {
    await unlock()
  }
}

/** What the agent and its watchdog work with alike. */
export function partsOf({ stateDir, transport, ...start }: Start, signal: AbortSignal) {
  const identity = identityIn(stateDir)
  const settings = settingsIn(stateDir)
  const url = start.url ?? identity.load()?.url ?? defaultUrl
  const { version } = start.self
  return {
    url,
    identity,
    settings,
    clock: systemClock,
    spool: spoolIn(join(stateDir, 'spool')),
    trust: trustIn(stateDir, () => start.trustKeys ?? settings.load().trustKeys),
    connect: (authToken?: () => string): Client => clientAs({ url, signal, transport, version }, authToken),
  }
}
export type Parts = ReturnType<typeof partsOf>

/** Goes to other versions in the name of whoever has that token. */
export function updaterFor(
  { stateDir, self, transport }: Pick<Start, 'stateDir' | 'self' | 'transport'>,
  parts: Parts,
  name: {
    report: Report
    signal: AbortSignal
    tokenOf: (identity: Identity) => string | undefined
    tryOut: (version: string) => void
  },
): Updater {
  return updaterOf({
    ...parts,
    self,
    stateDir,
    journal: journalIn(stateDir),
    client: parts.connect(),
    source: { transport, service: parts.url, clock: parts.clock, random: Math.random, signal: name.signal },
    report: keepDiagnostics(parts.spool).watch(name.report),
    now: () => new Date(),
    async begun(version) {
      const identity = parts.identity.load()
      const token = identity && name.tokenOf(identity)
      if (!identity || !token) return
      const client = parts.connect(() => token)
      const params = { id: identity.agentId }
      const body = { targetVersion: version, state: 'updating' } as const
      await client.call(agentUpdates.status, { params, body }).catch(() => {})
    },
    tryOut: name.tryOut,
  })
}

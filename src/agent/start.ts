import type { SocketWay } from '../cli/transport.ts'
import type { Transport } from '../core/client.ts'
import { Problem } from '../core/errors.ts'
import { systemClock } from './clock.ts'
import { clientAs, dialAs } from './connection.ts'
import type { Report } from './events.ts'
import { lockStateDir } from './lock.ts'
import { logPositionIn } from './log-position.ts'
import { thisMachine } from './machine.ts'
import { type Pace, runAgent } from './run.ts'
import { identityIn, prepareStateDir } from './state.ts'

export type Start = {
  stateDir: string
  /** Instead of the service the machine is enrolled with. */
  url: string | undefined
  transport: Transport
  /** Through which proxy and by which certificates a WebSocket goes. */
  wayTo: (url: URL) => Promise<SocketWay>
  enrollmentKey: () => Promise<string>
  version: string
  report: Report
}

const defaultUrl = 'http://127.0.0.1:3000'

/** The agent as a process: alone on its state directory, until SIGTERM or SIGINT. */
export async function startAgent(start: Start, pace: Pace): Promise<void> {
  const stop = new AbortController()
  const end = (): void => stop.abort()
  process.on('SIGTERM', end).on('SIGINT', end)
  try {
    // What is under way may be deaf to the signal: a prompt, or a process that was asked about a disk.
    await Promise.race([runAlone(start, pace, stop), aborted(stop.signal)])
  } catch (error) {
    if (!stop.signal.aborted) throw error
    if (stop.signal.reason instanceof Problem) throw stop.signal.reason
    start.report({ event: 'stopped' })
  } finally {
    process.off('SIGTERM', end).off('SIGINT', end)
  }
}

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))

async function runAlone(
  { stateDir, transport, wayTo, ...start }: Start,
  pace: Pace,
  stop: AbortController,
): Promise<void> {
  const { signal } = stop
  prepareStateDir(stateDir)
  const unlock = await lockStateDir(stateDir, (reason) => stop.abort(reason), signal)
  try {
    const identity = identityIn(stateDir)
    const url = start.url ?? identity.load()?.url ?? defaultUrl
    await runAgent(
      {
        ...start,
        signal,
        identity,
        logPosition: logPositionIn(stateDir),
        machine: thisMachine(),
        dial: dialAs({ url, version: start.version }, wayTo),
        connect: (authToken) => clientAs({ url, signal, transport, version: start.version }, authToken),
        clock: systemClock,
        random: Math.random,
      },
      pace,
    )
  } finally {
    await unlock()
  }
}

import type { ChildProcess } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { newSimulatedAgent } from '../../src/device-agent/simulate/fleet.ts'
import { saveFleet } from '../../src/device-agent/simulate/fleet-file.ts'
import type { SimulationEvent } from '../../src/device-agent/simulate/run.ts'
import type { Summary } from '../../src/device-agent/simulate/summary.ts'
import { start, temporaryFolder } from './children.ts'
import { svc, svcEnv } from './servers.ts'
import type { World } from './world.ts'

export const intervalSeconds = 60

/** Ten seconds of a fleet. `at`: milliseconds of the monotonic clock when they ended. */
export type Progress = Extract<SimulationEvent, { event: 'progress' }> & { at: number }

export type SimulatedFleet = {
  child: ChildProcess
  /** Those so far. */
  windows: readonly Progress[]
  end: Promise<Summary>
}

type FleetOptions = {
  sockets: number
  seconds: number
  /** Entries a minute, of all agents together. */
  logs: number
  events: number
}

/** A fleet whose agents are there already, in a process of its own. */
export function startFleet(
  url: string,
  agents: World['agents'],
  { sockets, seconds, logs, events }: FleetOptions,
): SimulatedFleet {
  const file = join(temporaryFolder('fleet'), 'fleet.json')
  const known = agents.map(({ id, token }, at) => newSimulatedAgent(at + 1, id, token, '0.1.0'))
  saveFleet(file, { url, seed: 1, platform: 'linux/x64', agents: known })
  const flags = {
    count: agents.length,
    state: file,
    url,
    interval: `${intervalSeconds}s`,
    for: `${seconds}s`,
    websockets: sockets,
    logs,
    events,
    version: '0.1.0',
  }
  const told = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)])
  const child = start([svc, 'agent', 'simulate', '--json', ...told], { env: svcEnv() })
  const windows: Progress[] = []
  const ended = async (): Promise<Summary> => {
    for await (const line of createInterface({ input: child.stdout! })) {
      const said = JSON.parse(line) as SimulationEvent | ({ event: 'summary' } & Summary)
      if (said.event === 'progress') windows.push({ ...said, at: performance.now() })
      if (said.event === 'summary') return said
    }
    throw new Error('The simulator ended without a summary')
  }
  return { child, windows, end: ended() }
}

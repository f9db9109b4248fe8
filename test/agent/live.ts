import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { commandsIn } from '../../src/agent/commands/memory.ts'
import { clientAs } from '../../src/agent/connection.ts'
import type { AgentEvent } from '../../src/agent/events.ts'
import { logPositionIn } from '../../src/agent/log-position.ts'
import { type Machine, thisMachine } from '../../src/agent/machine.ts'
import { type Pace, runAgent } from '../../src/agent/run.ts'
import { settingsIn } from '../../src/agent/settings.ts'
import { spoolIn } from '../../src/agent/spool/spool.ts'
import { identityIn } from '../../src/agent/state.ts'
import { trustIn } from '../../src/agent/update/trust.ts'
import type { Updater } from '../../src/agent/update/updater.ts'
import { fetchTransport } from '../../src/core/client.ts'

const real = thisMachine()
const [description, inventory, metrics, activity] = await Promise.all([
  real.describe(),
  real.readInventory(),
  real.readMetrics(),
  real.readActivity(),
])
/** This machine as it was a moment ago: asking it anew for every test would take minutes. */
const snapshot: Machine = {
  describe: async () => description,
  readInventory: async () => inventory,
  readMetrics: async () => metrics,
  readActivity: async () => activity,
  inventorySignature: () => 'unchanged',
  liveLogs: real.liveLogs,
  readHostLogs: async (position) => ({ events: [], position }),
}

export type Setting = {
  seconds?: number
  pace?: Pace
  machine?: Partial<Machine>
  key?: () => Promise<string>
  random?: number
  updater?: Updater
}

/** Runs the agent on a clock that jumps from pause to pause, until so many seconds have gone by on it. */
async function live(
  stateDir: string,
  url: string,
  { seconds = 0, pace, machine, key, random = 0.5, updater }: Setting,
) {
  const stop = new AbortController()
  const pauses: number[] = []
  const events: AgentEvent[] = []
  let now = 0
  const agent: Agent = {
    machine: { ...snapshot, ...machine },
    identity: identityIn(stateDir),
    logPosition: logPositionIn(stateDir),
    settings: settingsIn(stateDir),
    spool: spoolIn(join(stateDir, 'spool')),
    commands: commandsIn(join(stateDir, 'commands.json')),
    trust: trustIn(stateDir, () => undefined),
    ...(updater && { updater }),
    connect: (token) =>
      clientAs({ url, version: '1.2.3', transport: fetchTransport, signal: stop.signal }, token),
    enrollmentKey: key ?? (async () => 'the-key'),
    version: '1.2.3',
    random: () => random,
    report: (event) => events.push(event),
    signal: stop.signal,
    clock: {
      now: () => now,
      async sleep(ms) {
        pauses.push(ms / 1000)
        now += ms
        if (now > seconds * 1000) stop.abort()
        stop.signal.throwIfAborted()
      },
    },
  }
  const failure = await runAgent(agent, pace).then(
    () => undefined,
    (error) => error,
  )
  return { pauses, events, failure, names: events.map(({ event }) => event), stopped: stop.signal.aborted }
}

/** Agents of one machine: what they keep lasts for a test. */
export function livingAgents() {
  let stateDir: string
  beforeEach(() => {
    stateDir = mkdtempSync(join(tmpdir(), 'svc-agent-'))
  })
  afterEach(() => rmSync(stateDir, { recursive: true, force: true }))
  return {
    live: (url: string, setting: Setting = {}) => live(stateDir, url, setting),
    stateDir: () => stateDir,
  }
}

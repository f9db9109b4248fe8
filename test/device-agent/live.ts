import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach } from 'vitest'
import { fetchTransport } from '../../src/core/client.ts'
import type { Agent } from '../../src/device-agent/agent.ts'
import { commandHistory } from '../../src/device-agent/commands/history.ts'
import { agentClient } from '../../src/device-agent/connection.ts'
import type { AgentEvent } from '../../src/device-agent/events.ts'
import { logPositionStore } from '../../src/device-agent/log-position.ts'
import { type Machine, thisMachine } from '../../src/device-agent/machine.ts'
import { type RunOptions, runAgent } from '../../src/device-agent/run.ts'
import { settingsStore } from '../../src/device-agent/settings.ts'
import { openSpool } from '../../src/device-agent/spool/spool.ts'
import { identityStore } from '../../src/device-agent/state.ts'
import { trustStore } from '../../src/device-agent/update/trust-store.ts'
import type { Updater } from '../../src/device-agent/update/updater.ts'

const real = thisMachine()
const [description, inventory, metrics, activity] = await Promise.all([
  real.describe(),
  real.readInventory(),
  real.readMetrics(),
  real.readActivity(),
])
/** This machine as read once: reading it anew for every test would take minutes. */
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
  pace?: RunOptions
  machine?: Partial<Machine>
  key?: () => Promise<string>
  random?: number
  updater?: Updater
}

/** Runs the agent on a clock that jumps from pause to pause, until this many seconds have passed on it. */
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
    identity: identityStore(stateDir),
    logPosition: logPositionStore(stateDir),
    settings: settingsStore(stateDir),
    spool: openSpool(join(stateDir, 'spool')),
    commands: commandHistory(join(stateDir, 'commands.json')),
    trust: trustStore(stateDir, () => undefined),
    ...(updater && { updater }),
    connect: (token, headers) =>
      agentClient({ url, version: '1.2.3', transport: fetchTransport, signal: stop.signal }, token, headers),
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

/** Agents of one machine, whose state lasts for one test. */
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

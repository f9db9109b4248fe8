import { pino } from 'pino'
import { readConfig } from '../../daemon/config.ts'
import { serve } from '../../daemon/serve.ts'
import type { RolloutProgress } from '../../src/agents/rollouts/contract.ts'
import { api } from '../../src/api.ts'
import { defaultLimits } from '../../src/core/limits.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Clock } from '../../src/core/time.ts'
import { insertUser } from '../../src/identity/store.ts'
import type { Storage } from '../../src/storage/open.ts'
import { addRelease } from '../agents/rollouts/records.ts'
import { clientsFor, type Fate, Fleet, type Outcome } from '../agents/rollouts/simulator.ts'
import { atEnd, temporaryFolder } from './children.ts'
import type { Row } from './figures.ts'
import { buildWorld, type Place, secrets, tokenOf } from './world.ts'

export type RolloutsOptions = { agents: number; newDatabase?: () => Promise<string> }

/** What the machines of `buildWorld` report. */
const base = '0.1.0'
const waves = [{ percent: 1 }, { percent: 20 }, { percent: 100 }]
const bounds = { gateMinutes: 15, soakMinutes: 10, maxFailurePercent: 5 }
/** A device that reports every five minutes is silent after six. */
const offlineAfterSeconds = 360
const parallel = 48

type Ended = RolloutProgress['status']
type Scenario = {
  name: string
  fate: (n: number) => Fate
  /** How it has to end; where it is halted, none but the first wave has seen the version. */
  ends: Ended
  /** Of these agents every one is away for the first so many minutes. */
  away?: { every: number; minutes: number }
  /** What a person does then. */
  afterwards?: (fleet: Fleet, id: string, move: Move) => Promise<void>
}
type Move = (verb: 'halt' | 'resume' | 'rollBack', id: string) => Promise<unknown>

const all = (fate: Fate) => () => fate
const some = (every: number, fate: Fate) => (n: number) => (n % every === 0 ? fate : 'well')
const ways: Fate[] = ['crash', 'silent', 'slow', 'wrong version', 'refuses', 'rolls back', 'dies later']

const scenarios: Scenario[] = [
  ...ways.map((fate): Scenario => ({ name: `every agent: ${fate}`, fate: all(fate), ends: 'halted' })),
  { name: 'one agent in five: crash', fate: some(5, 'crash'), ends: 'halted' },
  {
    name: 'all refuse; resumed when it works, rolled back in the second wave',
    fate: all('refuses'),
    ends: 'halted',
    async afterwards(fleet, id, move) {
      fleet.fare(all('well'))
      await move('resume', id)
      while ((await fleet.status(id)).wave !== 2) await fleet.live()
      await fleet.live(10)
      await move('rollBack', id)
      await fleet.live(10)
    },
  },
  { name: 'every agent: well', fate: all('well'), ends: 'completed' },
  {
    name: 'two in a hundred fail in all ways, one in ten is away at first',
    fate: (n) => (n % 50 === 7 ? ways[Math.floor(n / 50) % ways.length]! : 'well'),
    away: { every: 10, minutes: 45 },
    ends: 'completed',
  },
]

/** Rollouts to a fleet that is simulated on a clock of its own: what becomes of versions that do not work. */
export async function rollouts(options: RolloutsOptions, say: (line: string) => void): Promise<Row[]> {
  const ground = await groundOf(options)
  const rows: Row[] = []
  for (const [n, scenario] of scenarios.entries()) {
    say(`rollouts: ${scenario.name}`)
    rows.push(await played(ground, scenario, `1.0.${n + 1}`))
  }
  return rows
}

type Ground = Awaited<ReturnType<typeof groundOf>>

async function played(ground: Ground, scenario: Scenario, version: string): Promise<Row> {
  const { machines, system, storage } = ground
  const began = performance.now()
  const fleet = await rested(ground)
  await addRelease({ storage }, version)
  fleet.fare(scenario.fate)
  const { away } = scenario
  for (const [n, agent] of fleet.agents.entries()) {
    if (away && n % away.every === 0) agent.awayUntil = away.minutes * 60
  }
  const id = await fleet.start({ version, waves, ...bounds })
  const outcome = await fleet.settle(id)
  const { status, touched, outside, firstWave, minutes } = outcome
  const isMet = status.status === scenario.ends && (scenario.ends !== 'halted' || outside === 0)
  const move: Move = (verb, rollout) => system.call(api.agentRollouts[verb], { params: { id: rollout } })
  await scenario.afterwards?.(fleet, id, move)
  return {
    bench: 'rollouts',
    subject: scenario.name,
    aim: scenario.ends === 'halted' ? 'halted in its first wave' : scenario.ends,
    met: isMet && (!scenario.afterwards || (await isBack(fleet, id))),
    figures: {
      devices: count(machines.length),
      ended: `${status.status} in wave ${status.wave}`,
      after: `${minutes} min`,
      'first wave': count(firstWave),
      'offered or ran it': count(touched),
      ...(scenario.ends === 'halted' && { 'outside of the first wave': count(outside) }),
      requests: count(fleet.requests),
      took: `${Math.round((performance.now() - began) / 1000)} s`,
      why: whyOf(outcome),
    },
  }
}

const count = (n: number): string => n.toLocaleString('en-US')

const isBack = async (fleet: Fleet, id: string): Promise<boolean> =>
  (await fleet.status(id)).status === 'rolled_back' && fleet.onVersion === 0

const whyOf = ({ status: { haltReason, failures } }: Outcome): string =>
  haltReason ?? failures.reasons.map(({ reason, devices }) => `${devices} × ${reason}`).join('; ')

/** Agents that have nothing to do with the rollout before. */
async function rested({ storage, clock, system, machines }: Ground): Promise<Fleet> {
  const { data } = await system.call(api.agentRollouts.list, { query: { limit: 1 } })
  const [last] = data
  if (last?.status === 'halted' || last?.status === 'running') {
    await system.call(api.agentRollouts.abort, { params: { id: last.id } })
  }
  await system.call(api.agentVersions.promote, { body: { version: base } })
  const fleet = new Fleet({ storage, clock, system, offlineAfterSeconds }, machines, base, parallel)
  await fleet.live()
  return fleet
}

async function groundOf({ agents, newDatabase }: RolloutsOptions) {
  const dataDir = temporaryFolder('rollouts')
  const place: Place = newDatabase ? { dataDir, databaseUrl: await newDatabase() } : { dataDir }
  const world = await buildWorld(place, agents)
  const limits = Object.keys(defaultLimits).map((name) => [`RATE_LIMIT_${name}`, 'off'])
  const env = {
    ...Object.fromEntries(limits),
    ...secrets,
    ...(place.databaseUrl !== undefined && { DATABASE_URL: place.databaseUrl }),
    SVC_DATA_DIR: dataDir,
    PORT: '0',
    OFFLINE_AFTER_SECONDS: String(offlineAfterSeconds),
  }
  const clock = drivenClock()
  const service = await serve(readConfig(env), clock, {
    log: pino({ level: 'error' }, pino.destination({ fd: 2, sync: true })),
  })
  const clients = clientsFor(service.url, parallel)
  atEnd(async () => {
    await clients.close()
    await service.close()
  })
  const { storage } = service
  const deviceIds = await devicesOf(storage)
  await addRelease({ storage }, base, { promoted: true })
  return {
    storage,
    clock,
    system: clients.of(await systemToken(storage)),
    machines: world.agents.map(({ id: agentId, token }) => ({
      agentId,
      deviceId: deviceIds.get(agentId)!,
      client: clients.of(token),
    })),
  }
}

/** It begins in the past, where the tokens that were made now are good for as long as it takes. */
function drivenClock(): Clock & { forward(seconds: number): void } {
  let now = Date.now() - 60 * 86_400_000
  return Object.assign(() => new Date(now).toISOString(), {
    forward: (seconds: number) => {
      now += seconds * 1000
    },
  })
}

const systemToken = (storage: Storage): Promise<string> =>
  storage.write(async (tx) => {
    const id = newId()
    const now = new Date().toISOString()
    await insertUser(
      tx,
      { id, email: 'system@example.com', name: 'System', passwordHash: null, isSystem: true },
      now,
    )
    await tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', id).execute()
    return tokenOf(tx, id, { kind: 'system' }, now)
  })

async function devicesOf({ read }: Storage): Promise<Map<string, string>> {
  const rows = await read.selectFrom('devices').select(['id', 'agent_id']).execute()
  return new Map(rows.map(({ id, agent_id }) => [agent_id, id]))
}

import { expect, vi } from 'vitest'
import type { NewRollout } from '../../../src/agents/rollouts/contract.ts'
import { reconcileRollout } from '../../../src/agents/rollouts/jobs.ts'
import type { UpdateStatus } from '../../../src/agents/upgrades/contract.ts'
import { api } from '../../../src/api.ts'
import type { BodyOf } from '../../../src/core/endpoint.ts'
import type { Open } from '../../databases.ts'
import { enroller } from '../../devices/device-fixture.ts'
import { type ServiceOptions, startService, testClock } from '../../harness.ts'
import { buildWorld } from '../../world.ts'
import { addRelease } from './records.ts'

export type Machine = { agentId: string; deviceId: string; authToken: string }

/** The version that `machine` in test/devices/device-fixture.ts reports when it enrolls. */
export const before = '0.1.0'

const offlineAfterSeconds = 300

/**
 * A service on a test clock whose world is decommissioned: its only devices are those that are enrolled
 * here.
 */
export async function begin(open: Open, options: Omit<ServiceOptions, 'clock'> = {}) {
  const clock = testClock()
  const service = await startService(open, { ...options, clock })
  const world = await buildWorld(service)
  const system = service.client(world.tokens.system)
  for (const { deviceId: id } of Object.values(world.orgs)) {
    await system.call(api.devices.decommission, { params: { id } })
  }
  const enroll = await enroller(service, world.tokens.bakery)
  const beat = async (
    { agentId: id, authToken }: Machine,
    agentVersion = before,
    more: Partial<BodyOf<typeof api.agents.heartbeat>> = {},
    at = service,
  ) => {
    const body = { status: 'ok' as const, agentVersion, ...more }
    return (await at.client(authToken).call(api.agents.heartbeat, { params: { id }, body })).upgradeTo
  }
  const say = ({ agentId: id, authToken }: Machine, body: UpdateStatus) =>
    service.client(authToken).call(api.agentUpdates.status, { params: { id }, body })
  const show = ({ deviceId: id }: Machine) => system.call(api.devices.show, { params: { id } })
  const round = (at = service) => reconcileRollout({ storage: at.storage, clock, offlineAfterSeconds })
  const start = async (body: Partial<NewRollout> & Pick<NewRollout, 'waves'>) => {
    const { id } = await system.call(api.agentRollouts.start, { body: { version: '1.0.0', ...body } })
    // The service prepares it by itself, at once.
    await vi.waitFor(async () => expect((await status(id)).status).not.toBe('preparing'), { timeout: 10_000 })
    return id
  }
  const status = (id: string) => system.call(api.agentRollouts.show, { params: { id } })
  const move = (verb: 'halt' | 'resume' | 'abort' | 'rollBack', id: string) =>
    system.call(api.agentRollouts[verb], { params: { id } })
  const placesOf = async (id: string) =>
    (await system.call(api.agentRollouts.devices, { params: { id }, query: { limit: 100 } })).data
  const release = (version: string, more: Parameters<typeof addRelease>[2] = {}) =>
    addRelease(service, version, more)
  return {
    service,
    clock,
    world,
    bakery: world.orgs.bakery,
    system,
    enroll,
    beat,
    say,
    show,
    round,
    start,
    status,
    move,
    placesOf,
    release,
  }
}

/** The same with this many devices, and 1.0.0 with an agent for them. */
export async function withFleet(open: Open, count: number, options: Omit<ServiceOptions, 'clock'> = {}) {
  const stage = await begin(open, options)
  const fleet: Machine[] = []
  for (let n = 0; n < count; n++) fleet.push(await stage.enroll(`pc-${n}`))
  await stage.release('1.0.0')
  const { beat, placesOf, clock, round } = stage
  /** The devices of each wave, counted from 1. */
  const wavesOf = async (id: string) => {
    const places = await placesOf(id)
    const machineOf = (deviceId: string) => fleet.find((one) => one.deviceId === deviceId)!
    return (wave: number) => places.filter((one) => one.wave === wave).map((one) => machineOf(one.id))
  }
  /** The version that each device is offered when it reports this one. */
  const offers = async (some: readonly Machine[], version = before) => {
    const all: (string | null)[] = []
    for (const one of some) all.push(await beat(one, version))
    return all
  }
  /** Time passes, and each of these devices reports every minute. */
  const live = async (minutes: number, reports: ReadonlyMap<Machine, string>) => {
    for (let n = 0; n < minutes; n++) {
      clock.forward(60)
      for (const [machine, version] of reports) await beat(machine, version)
      await round()
    }
  }
  return { ...stage, fleet, wavesOf, offers, live }
}

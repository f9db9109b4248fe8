import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { onEveryDatabase } from '../../databases.ts'
import { depth, isSoak, isTried } from '../../depth.ts'
import { before, begin } from './rollout-fixture.ts'
import { clientsFor, type Fate, Fleet, type Machine } from './simulator.ts'

const count = depth(100, 200)
/** A device that reports every five minutes is offline after eleven. */
const offlineAfterSeconds = 660
const bounds = {
  waves: [{ percent: 10 }, { percent: 50 }, { percent: 100 }],
  gateMinutes: 15,
  soakMinutes: 10,
  maxFailurePercent: 5,
}
const firstWave = count / 10

/** The rules of a rollout are the same on both databases: in `npm test` Postgres gets one of the cases. */
const fates = [
  ['crash', 'Not seen since it was offered the version'],
  ['dies later', 'Silent within 10 minutes of its update'],
  ['silent', 'Still on 0.1.0 15 minutes after it was offered the version'],
  ['slow', 'Still on 0.1.0 15 minutes after it was offered the version'],
  ['wrong version', 'Reports 0.0.1 instead of 1.0.'],
  ['refuses', 'Refused: checksum'],
  ['rolls back', 'Rolled back: exit 1'],
] as const

onEveryDatabase((kind, open) => {
  const inDepth = it.runIf(kind === 'sqlite' || isSoak)
  let stage: Awaited<ReturnType<typeof begin>>
  let machines: Machine[]
  let clients: ReturnType<typeof clientsFor>
  let serial = 0

  beforeAll(async () => {
    stage = await begin(open, { env: { OFFLINE_AFTER_SECONDS: String(offlineAfterSeconds) } })
    clients = clientsFor(stage.service.url, 16)
    machines = []
    for (let n = 0; n < count; n += 20) {
      const some = Array.from({ length: 20 }, (_, at) => stage.enroll(`pc-${n + at}`))
      for (const { agentId, deviceId, authToken } of await Promise.all(some)) {
        machines.push({ agentId, deviceId, client: clients.of(authToken) })
      }
    }
    await stage.release(before, { promoted: true })
  })
  afterAll(async () => {
    await clients.close()
    await stage.service.close()
  })

  /** A fleet that is online and in no earlier rollout, and a new version. */
  const start = async () => {
    const { service, clock, system, release } = stage
    const { data } = await system.call(api.agentRollouts.list, { query: { limit: 100 } })
    for (const { id, status } of data) {
      const isOpen = status === 'running' || status === 'halted'
      if (isOpen) await system.call(api.agentRollouts.abort, { params: { id } })
    }
    // A completed rollout is promoted, and nothing older could be rolled out beside it.
    await service.storage.write((tx) =>
      tx.updateTable('agent_builds').set({ promoted_at: null }).where('version', '!=', before).execute(),
    )
    serial += 1
    const version = `1.0.${serial}`
    await release(version)
    const ground = { storage: service.storage, clock, system, offlineAfterSeconds }
    const fleet = new Fleet(ground, machines, before)
    await fleet.live()
    return { ...stage, fleet, wanted: { version, ...bounds } }
  }

  describe('a version that works', () => {
    inDepth(
      'reaches every device, initially offline ones by its promotion',
      {
        timeout: 300_000,
      },
      async () => {
        const { fleet, wanted } = await start()
        for (const [n, agent] of fleet.agents.entries()) if (n % 10 === 0) agent.awayUntil = 40 * 60
        const id = await fleet.start(wanted)
        const { status, minutes } = await fleet.settle(id)
        expect(status).toMatchObject({
          status: 'completed',
          isCurrent: false,
          waves: [{ devices: firstWave }, { devices: count * 0.4 }, { devices: count * 0.5 }],
        })
        expect(minutes).toBeLessThan(180)
        await fleet.live(60)
        expect(fleet.onVersion).toBe(count)
      },
    )

    inDepth(
      'is completed although a few devices fail',
      {
        timeout: 300_000,
      },
      async () => {
        const { fleet, wanted } = await start()
        const some: Fate[] = ['crash', 'refuses', 'silent', 'wrong version', 'rolls back', 'dies later']
        const id = await fleet.start({ ...wanted, maxFailurePercent: 20 })
        // Six of a wave that has at least forty are not enough to halt it.
        const first = new Set(await fleet.firstWave(id))
        const others = [...fleet.agents.keys()].filter((n) => !first.has(machines[n]!.deviceId))
        const fates = new Map(some.map((fate, at) => [others[at]!, fate]))
        fleet.fare((n) => fates.get(n) ?? 'well')
        const { status } = await fleet.settle(id)
        expect(status.status).toBe('completed')
        expect(fleet.onVersion).toBeGreaterThanOrEqual(count - 8)
      },
    )
  })

  describe('a version that fails', () => {
    it.each(fates.filter((_, index) => isTried(kind, index, fates.length)))(
      'because it makes agents %s is halted in its first wave, with the reason',
      async (fate, why) => {
        const { fleet, wanted } = await start()
        fleet.fare(() => fate)
        const id = await fleet.start(wanted)
        const outcome = await fleet.settle(id)
        expect(outcome).toMatchObject({ outside: 0, firstWave })
        expect(outcome.status).toMatchObject({
          status: 'halted',
          wave: 1,
          haltReason: expect.stringContaining(why),
        })
        // It stays halted, however long it is left alone.
        await fleet.live(60)
        const later = await fleet.settle(id)
        expect(later).toMatchObject({ outside: 0, status: { status: 'halted' } })
        expect(later.touched).toBeLessThanOrEqual(firstWave)
      },
      300_000,
    )

    inDepth(
      'on some devices only is halted in the first wave that has too many of them',
      {
        timeout: 300_000,
      },
      async () => {
        const { fleet, wanted } = await start()
        const id = await fleet.start(wanted)
        // A quarter of the devices of the first wave, and of the others: of a quarter of all, too few might be
        // drawn.
        const first = new Set(await fleet.firstWave(id))
        const numbers = Map.groupBy(fleet.agents.keys(), (n) => first.has(machines[n]!.deviceId))
        const some = [...numbers.values()].flatMap((part) => part.filter((_, at) => at % 4 === 0))
        fleet.fare((n) => (some.includes(n) ? 'crash' : 'well'))
        expect(await fleet.settle(id)).toMatchObject({ outside: 0, status: { status: 'halted', wave: 1 } })
      },
    )
  })

  describe('after a halt', () => {
    inDepth('the rollout continues where it was, once the version works', { timeout: 300_000 }, async () => {
      const { fleet, wanted, move } = await start()
      fleet.fare(() => 'refuses')
      const id = await fleet.start(wanted)
      expect((await fleet.settle(id)).status).toMatchObject({ status: 'halted', wave: 1 })
      fleet.fare(() => 'well')
      await move('resume', id)
      expect((await fleet.settle(id)).status.status).toBe('completed')
      await fleet.live(30)
      expect(fleet.onVersion).toBe(count)
    })

    inDepth('a rollback brings back all devices that are online', { timeout: 300_000 }, async () => {
      const { fleet, wanted, move, status, system } = await start()
      const id = await fleet.start(wanted)
      while ((await status(id)).wave !== 3) await fleet.live()
      await fleet.live(10)
      expect(fleet.onVersion).toBeGreaterThan(count * 0.75)
      await move('halt', id)
      await move('rollBack', id)
      await fleet.live(15)
      expect(fleet.onVersion).toBe(0)
      expect(await status(id)).toMatchObject({ status: 'rolled_back', next: null })
      const { data } = await system.call(api.devices.list, { query: { limit: 100, status: 'online' } })
      expect(new Set(data.map(({ agentVersion }) => agentVersion))).toEqual(new Set([before]))
    })
  })
})

import { describe, expect, it, vi } from 'vitest'
import { api } from '../../../src/api.ts'
import { onEveryDatabase } from '../../databases.ts'
import { serviceOn } from '../../harness.ts'
import { addPlace, addRollout } from './records.ts'
import { before, type Machine, withFleet } from './rollout-fixture.ts'

const waves = [{ percent: 50 }, { percent: 100 }]
const strict = { gateMinutes: 15, soakMinutes: 10, maxFailurePercent: 0 }

onEveryDatabase((kind, open) => {
  /** A rollout whose first wave, half of the devices, was offered its version. */
  const startFirstWave = async (count: number, bounds: Partial<typeof strict> = {}) => {
    const stage = await withFleet(open, count)
    const { start, wavesOf, offers, system, status } = stage
    const id = await start({ waves, ...strict, ...bounds })
    const wave = await wavesOf(id)
    await offers(wave(1))
    const audited = async () =>
      (await system.call(api.auditLogs.list, { query: { limit: 100 } })).data.filter(({ action }) =>
        action.startsWith('agent.rollout.'),
      )
    const reasonOf = async () => (await status(id)).haltReason
    return { ...stage, id, first: wave(1), second: wave(2), audited, reasonOf }
  }

  describe('a rollout halts by itself', () => {
    it('at once when more devices report a failure than allowed', async () => {
      const { id, first, second, say, status, offers, audited } = await startFirstWave(80, {
        maxFailurePercent: 5,
      })
      const failed = { targetVersion: '1.0.0', state: 'rolled_back', reason: 'exit 1' } as const
      await say(first[0]!, failed)
      await say(first[1]!, { ...failed, state: 'refused', reason: 'wrong checksum' })
      expect(await status(id)).toMatchObject({ status: 'running', failures: { counted: 2, allowed: 2 } })
      await say(first[2]!, failed)
      expect(await status(id)).toMatchObject({
        status: 'halted',
        haltReason: '3 failed in wave 1 of 40, where 5 % (2) may: Rolled back: exit 1',
        failures: {
          counted: 3,
          allowed: 2,
          reasons: [
            { reason: 'Rolled back: exit 1', devices: 2 },
            { reason: 'Refused: wrong checksum', devices: 1 },
          ],
        },
        next: { step: 'decide' },
      })
      expect(await offers([...first.slice(3), ...second])).toEqual(Array(77).fill(null))
      const [entry] = (await audited()).filter(({ action }) => action === 'agent.rollout.halt')
      expect(entry).toMatchObject({
        user: { role: 'system' },
        resource: { type: 'agent_rollout', id, name: '1.0.0' },
        details: { wave: 1, devices: 40, allowed: 2, reason: expect.stringContaining('Rolled back') },
      })
    })

    it('when devices keep reporting the previous version, or are not seen any more', async () => {
      const { clock, id, first, offers, round, status } = await startFirstWave(8)
      clock.forward(14 * 60)
      await offers(first.slice(0, 3))
      await round()
      expect(await status(id)).toMatchObject({ status: 'running', waves: [{ offered: 4 }, {}] })
      clock.forward(60)
      await round()
      expect(await status(id)).toMatchObject({
        status: 'halted',
        failures: {
          counted: 4,
          reasons: [
            { reason: 'Still on 0.1.0 15 minutes after it was offered the version', devices: 3 },
            { reason: 'Not seen since it was offered the version', devices: 1 },
          ],
        },
      })
    })

    it('when a device comes up with another version', async () => {
      const { clock, first, beat, round, reasonOf } = await startFirstWave(2)
      clock.forward(60)
      await beat(first[0]!, '0.9.0')
      clock.forward(15 * 60)
      await round()
      expect(await reasonOf()).toContain('Reports 0.9.0 instead of 1.0.0')
    })

    it('when an updated device leaves the version again', async () => {
      const { first, beat, reasonOf, placesOf, id } = await startFirstWave(2)
      await beat(first[0]!, '1.0.0')
      await beat(first[0]!, before)
      expect(await reasonOf()).toContain('Reports 0.1.0 after it was updated')
      expect((await placesOf(id))[0]).toMatchObject({ state: 'failed', agentVersion: before })
    })

    it('when an updated device falls silent during its soak, but not in maintenance', async () => {
      const { first, beat, status, id, system, live } = await startFirstWave(6)
      for (const one of first) await beat(one, '1.0.0')
      const [, resting, well] = first
      const params = { id: resting!.deviceId }
      await system.call(api.devices.maintenance, { params, body: { enable: true } })
      await live(5, new Map([[well!, '1.0.0']]))
      expect(await status(id)).toMatchObject({ status: 'running', failures: { counted: 0 } })
      await live(1, new Map([[well!, '1.0.0']]))
      expect(await status(id)).toMatchObject({
        status: 'halted',
        haltReason: expect.stringContaining('Silent within 10 minutes of its update'),
        failures: { counted: 1 },
      })
    })

    it('even when this happens at the very end, and opens no wave meanwhile', async () => {
      const { first, status, id, live } = await startFirstWave(4)
      const [, well] = first
      await live(9, new Map(first.map((one) => [one, '1.0.0'])))
      for (let minute = 10; minute <= 14; minute++) {
        await live(1, new Map([[well!, '1.0.0']]))
        expect(await status(id)).toMatchObject({ status: 'running', wave: 1 })
      }
      await live(1, new Map([[well!, '1.0.0']]))
      expect(await status(id)).toMatchObject({
        status: 'halted',
        wave: 1,
        waves: [{ failed: 1, updated: 1 }, {}],
      })
    })

    it('but not when a device falls silent after its soak', async () => {
      const { first, status, id, clock, round, live } = await startFirstWave(2)
      await live(11, new Map([[first[0]!, '1.0.0']]))
      expect(await status(id)).toMatchObject({ status: 'running', wave: 2 })
      clock.forward(3600)
      await round()
      expect(await status(id)).toMatchObject({ status: 'running', waves: [{ updated: 1 }, { waiting: 1 }] })
    })

    it('when no device of a wave is left that could prove the version', async () => {
      const { id, first, system, round, status, move } = await startFirstWave(2)
      await system.call(api.devices.decommission, { params: { id: first[0]!.deviceId } })
      await round()
      await round()
      expect(await status(id)).toMatchObject({
        status: 'halted',
        haltReason: 'No device of wave 1 is left that could run the version',
        waves: [{ withdrawn: 1, failed: 0 }, { waiting: 1 }],
      })
      await expect(move('resume', id)).rejects.toMatchObject({ status: 409, code: 'conflict' })
    })
  })

  describe('withdrawn devices are no failures', () => {
    it('when decommissioned, or with updates turned off', async () => {
      const { id, first, system, service, round, status, clock, beat } = await startFirstWave(6)
      const [gone, off, well] = first
      await system.call(api.devices.decommission, { params: { id: gone!.deviceId } })
      await service.storage.write((tx) =>
        tx.updateTable('devices').set({ auto_update: 0 }).where('id', '=', off!.deviceId).execute(),
      )
      await beat(well!, '1.0.0')
      clock.forward(15 * 60)
      await beat(well!, '1.0.0')
      await round()
      expect(await status(id)).toMatchObject({
        status: 'running',
        waves: [{ withdrawn: 2, updated: 1, failed: 0 }, {}],
      })
    })

    it('and a device that moves to another organization stays in the rollout', async () => {
      const { id, first, service, beat, world, placesOf } = await startFirstWave(2)
      await service.storage.write((tx) =>
        tx
          .updateTable('devices')
          .set({ org_id: world.orgs.garage.id, site_id: null })
          .where('id', '=', first[0]!.deviceId)
          .execute(),
      )
      await beat(first[0]!, '1.0.0')
      expect((await placesOf(id))[0]).toMatchObject({ state: 'soaking', orgId: world.orgs.garage.id })
    })
  })

  describe('a halted rollout', () => {
    it('continues when it is resumed, with the failures so far accepted', async () => {
      const { id, first, second, say, move, status, offers, live } = await startFirstWave(8)
      await say(first[0]!, { targetVersion: '1.0.0', state: 'failed', reason: 'disk full' })
      expect(await offers(first.slice(1))).toEqual([null, null, null])
      const resumed = await move('resume', id)
      expect(resumed).toMatchObject({ status: 'running', haltReason: null, wave: 1 })
      expect(await offers(first)).toEqual([null, '1.0.0', '1.0.0', '1.0.0'])
      await live(11, new Map(first.slice(1).map((one) => [one, '1.0.0'])))
      expect(await status(id)).toMatchObject({ wave: 2, failures: { counted: 0 } })
      expect(await offers(second)).toEqual(Array(4).fill('1.0.0'))
      await say(second[0]!, { targetVersion: '1.0.0', state: 'failed' })
      expect((await status(id)).status).toBe('halted')
    })

    it('keeps updated devices on the version, even late ones, until it is rolled back', async () => {
      const { id, first, second, move, offers, release, status } = await startFirstWave(6)
      await release('0.5.0', { promoted: true })
      const [there, late] = first
      expect(await offers([there!], '1.0.0')).toEqual([null])
      await move('halt', id)
      expect(await offers([late!], '1.0.0')).toEqual([null])
      expect(await offers(first.slice(2))).toEqual(['0.5.0'])
      await move('abort', id)
      expect(await offers([there!, late!], '1.0.0')).toEqual([null, null])
      await move('rollBack', id)
      expect(await status(id)).toMatchObject({
        next: { step: 'return', because: '2 devices on the version to come back' },
      })
      expect(await offers([there!, late!], '1.0.0')).toEqual(['0.5.0', '0.5.0'])
      expect(await offers([there!, late!], '0.5.0')).toEqual([null, null])
      expect(await offers(second)).toEqual(['0.5.0', '0.5.0', '0.5.0'])
      expect(await status(id)).toMatchObject({ status: 'rolled_back', next: null })
    })

    it('is rolled back to the registered previous version where none is promoted', async () => {
      const { id, first, move, offers, release } = await startFirstWave(4)
      await offers(first, '1.0.0')
      await move('rollBack', id)
      expect(await offers(first, '1.0.0')).toEqual([null, null])
      await release(before)
      expect(await offers(first, '1.0.0')).toEqual([before, before])
      expect(await offers(first, before)).toEqual([null, null])
    })
  })

  describe('the rollout after an aborted one', () => {
    it('does not move back the devices that are still on the version of that one', async () => {
      const { id, first, second, move, offers, release, start, wavesOf, status } = await startFirstWave(8)
      await release('0.5.0', { promoted: true })
      await offers(first, '1.0.0')
      await move('abort', id)
      await release('1.1.0')
      const next = await start({ version: '1.1.0', waves })
      expect(await status(id)).toMatchObject({ isCurrent: false })
      const wave = await wavesOf(next)
      for (const [n, offered] of [
        [1, '1.1.0'],
        [2, null],
      ] as const) {
        const held = wave(n).filter((one) => first.includes(one))
        expect(await offers(held, '1.0.0')).toEqual(held.map(() => offered))
      }
      const others = wave(2).filter((one) => second.includes(one))
      expect(await offers(others)).toEqual(others.map(() => '0.5.0'))
    })

    it('lets them go to a version that was promoted in between', async () => {
      const { id, first, move, offers, release, start, clock, wavesOf } = await startFirstWave(8)
      await offers(first, '1.0.0')
      await move('abort', id)
      clock.forward(60)
      await release('1.0.5', { promoted: clock() })
      await release('1.1.0')
      const wave = await wavesOf(await start({ version: '1.1.0', waves }))
      const waiting = wave(2).filter((one) => first.includes(one))
      expect(await offers(waiting, '1.0.0')).toEqual(waiting.map(() => '1.0.5'))
    })
  })

  describe('the transitions of a rollout', () => {
    it('depend on its status', async () => {
      const { id, move, first, offers, audited } = await startFirstWave(2)
      const refused = (verb: Parameters<typeof move>[0]) =>
        expect(move(verb, id)).rejects.toMatchObject({ status: 409, code: 'conflict' })
      await refused('resume')
      await move('halt', id)
      await refused('halt')
      await move('resume', id)
      await offers(first, '1.0.0')
      await move('abort', id)
      for (const verb of ['halt', 'resume', 'abort'] as const) await refused(verb)
      await move('rollBack', id)
      for (const verb of ['halt', 'resume', 'abort', 'rollBack'] as const) await refused(verb)
      const actions = (await audited()).map(({ action, result }) => `${action} ${result}`).reverse()
      expect(actions).toEqual(
        ['start', 'halt', 'resume', 'abort', 'roll_back'].map((verb) => `agent.rollout.${verb} success`),
      )
    })
  })

  describe('concurrent heartbeats', () => {
    it('never bring the version to a device outside of the open waves, or after a halt', async () => {
      const { service, clock, fleet, first, id, move, status, beat } = await startFirstWave(24)
      const replicas = [service, kind === 'postgres' ? await serviceOn(service, { clock }) : service]
      const offered = new Set<Machine>()
      const late: Machine[] = []
      let isHalted = false
      const flood = async (n: number) => {
        for (const one of fleet) {
          const wasHalted = isHalted
          if ((await beat(one, before, {}, replicas[n % 2])) !== '1.0.0') continue
          offered.add(one)
          if (wasHalted) late.push(one)
        }
      }
      const halting = async () => {
        await new Promise((resolve) => setTimeout(resolve, 50))
        await move('halt', id)
        isHalted = true
      }
      await Promise.all([...[1, 2, 3, 4, 5].map(flood), halting()])
      expect([...offered].filter((one) => !first.includes(one))).toEqual([])
      expect(late).toEqual([])
      expect((await status(id)).status).toBe('halted')
    })

    it('that report failures halt it once', async () => {
      const { first, say, id, status, audited } = await startFirstWave(24)
      await Promise.all(
        first.map((one) => say(one, { targetVersion: '1.0.0', state: 'failed', reason: 'x' })),
      )
      expect(await status(id)).toMatchObject({ status: 'halted', waves: [{ failed: 12 }, {}] })
      expect((await audited()).filter(({ action }) => action === 'agent.rollout.halt')).toHaveLength(1)
    })

    it('and concurrent reconciliations open each wave once', async () => {
      const { service, first, offers, clock, round, status, id, audited, placesOf } = await startFirstWave(8)
      const other = kind === 'postgres' ? await serviceOn(service, { clock }) : service
      await offers(first, '1.0.0')
      clock.forward(9 * 60)
      clock.forward(60)
      await offers(first, '1.0.0')
      await Promise.all([round(), round(other), round(), round(other), round()])
      expect(await status(id)).toMatchObject({ status: 'running', wave: 2 })
      expect((await placesOf(id)).map(({ wave }) => wave)).toEqual([1, 1, 1, 1, 2, 2, 2, 2])
      expect((await audited()).map(({ action }) => action)).toEqual(['agent.rollout.start'])
    })

    it('and concurrent preparations draw each device once', async () => {
      const stage = await withFleet(open, 30)
      const { service, clock, system, round, placesOf, status } = stage
      const other = kind === 'postgres' ? await serviceOn(service, { clock }) : service
      const { id } = await system.call(api.agentRollouts.start, { body: { version: '1.0.0', waves } })
      await Promise.all([round(), round(other), round(), round(other)])
      await vi.waitFor(async () => expect((await status(id)).status).toBe('running'), { timeout: 30_000 })
      const places = await placesOf(id)
      expect(new Set(places.map((one) => one.id)).size).toBe(30)
      expect((await status(id)).waves.map(({ devices }) => devices)).toEqual([15, 15])
    })
  })

  it('a preparation of a dead process is repeated once its claim has expired', async () => {
    const stage = await withFleet(open, 4)
    const { service, clock, round, status, fleet, bakery, placesOf } = stage
    const id = await addRollout(service, 'preparing')
    await addPlace(service, id, { id: bakery.id, deviceId: fleet[0]!.deviceId }, 'waiting')
    const claimed = { version: '1.0.0', claimed_by: 'who died', claimed_until: clock(), wave_began_at: null }
    clock.forward(-1)
    await service.storage.write((tx) =>
      tx.updateTable('agent_rollouts').set(claimed).where('id', '=', id).execute(),
    )
    await round()
    expect((await status(id)).status).toBe('preparing')
    expect(await placesOf(id)).toHaveLength(1)
    clock.forward(1)
    await round()
    expect(await status(id)).toMatchObject({ status: 'running', waves: [{ devices: 4, waiting: 4 }] })
  })
})

import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { inTurn } from '../../databases.ts'
import { before, type Machine, withFleet } from './rollout-fixture.ts'

/** The clock begins at Sunday, 1 March 2026, noon in UTC. */
const atOne = { every: 'Sun 13:00', durationMinutes: 60, timezone: 'UTC' }
const opensAt = '2026-03-01T13:00:00.000Z'

inTurn((open) => {
  const setUp = async (count: number) => {
    const stage = await withFleet(open, count)
    const { system, bakery, placesOf } = stage
    const keep = ({ deviceId: id }: Machine, window: typeof atOne | null = atOne) =>
      system.call(api.devices.maintenance, { params: { id }, body: { window } })
    const keepOrg = (maintenanceWindow: string | null) =>
      system.call(api.orgs.update, {
        params: { id: bakery.id },
        body: { settings: { defaults: { maintenanceWindow } } },
      })
    const stateOf = async (id: string, { deviceId }: Machine) =>
      (await placesOf(id)).find((place) => place.id === deviceId)!
    return { ...stage, keep, keepOrg, stateOf }
  }
  const all = { waves: [{ percent: 100 }], gateMinutes: 15, soakMinutes: 5 }
  const reports = (...pairs: [Machine, string][]) => new Map(pairs)

  describe('a device outside of its maintenance window', () => {
    it('is offered neither a promoted version nor that of a rollout, until the window opens', async () => {
      const { fleet, beat, keep, start, release, clock } = await setUp(1)
      const [pc] = fleet as [Machine]
      await release('0.5.0', { promoted: true })
      await keep(pc)
      expect(await beat(pc)).toBeNull()
      await start(all)
      expect(await beat(pc)).toBeNull()
      clock.forward(3599)
      expect(await beat(pc)).toBeNull()
      clock.forward(1)
      expect(await beat(pc)).toBe('1.0.0')
      clock.forward(3600)
      expect(await beat(pc)).toBeNull()
    })

    it('waits in its wave without failing or halting it, and the status says until when', async () => {
      const { fleet, keep, start, live, status, stateOf } = await setUp(2)
      const [pc, other] = fleet as [Machine, Machine]
      await keep(pc)
      await keep(other, { ...atOne, every: 'Mon 03:00' })
      const id = await start({ ...all, maxFailurePercent: 0 })
      await live(40, reports([pc, before], [other, before]))
      expect(await status(id)).toMatchObject({
        status: 'running',
        wave: 1,
        failures: { counted: 0 },
        awaitingWindow: { devices: 2, nextOpensAt: opensAt },
        waves: [{ waiting: 2, failed: 0 }],
      })
      await live(25, reports([pc, before], [other, before]))
      expect(await stateOf(id, pc)).toMatchObject({ state: 'offered' })
      expect(await status(id)).toMatchObject({
        awaitingWindow: { devices: 1, nextOpensAt: '2026-03-02T03:00:00.000Z' },
      })
    })

    it('does not hold up the next wave, and is offered the version in its window', async () => {
      const { keep, start, live, status, wavesOf, beat } = await setUp(4)
      const id = await start({ ...all, waves: [{ percent: 50 }, { percent: 100 }] })
      const [held, free] = (await wavesOf(id))(1) as [Machine, Machine]
      await keep(held)
      await live(1, reports([held, before], [free, before]))
      // Before its gate has passed.
      await live(9, reports([held, before], [free, '1.0.0']))
      expect(await status(id)).toMatchObject({
        status: 'running',
        wave: 2,
        waves: [{ waiting: 1, updated: 1 }, {}],
      })
      await live(50, reports([held, before], [free, '1.0.0']))
      expect(await beat(held)).toBe('1.0.0')
    })

    it('is waited for by a wave in which no other device could show that the version works', async () => {
      const { keep, start, live, status, wavesOf } = await setUp(2)
      const id = await start({ ...all, waves: [{ percent: 50 }, { percent: 100 }] })
      const [held] = (await wavesOf(id))(1) as [Machine]
      await keep(held)
      await live(50, reports([held, before]))
      expect(await status(id)).toMatchObject({
        status: 'running',
        wave: 1,
        next: { step: 'open_wave', because: 'waits for a first device of the wave on the version' },
      })
      await live(15, reports([held, before]))
      await live(20, reports([held, '1.0.0']))
      expect(await status(id)).toMatchObject({ wave: 2 })
    })

    it('is waited for at the end of a rollout that does not promote its version', async () => {
      const { fleet, keep, start, live, status, system, bakery, beat } = await setUp(2)
      const [held, free] = fleet as [Machine, Machine]
      await keep(held)
      const filter = await system.call(api.filters.create, {
        body: {
          name: 'All',
          orgId: bakery.id,
          conditions: {
            operator: 'AND',
            conditions: [{ field: 'hostname', operator: 'contains', value: 'pc' }],
          },
        },
      })
      const id = await start({ ...all, waves: [{ filterId: filter.id }] })
      await live(1, reports([held, before], [free, before]))
      await live(30, reports([held, before], [free, '1.0.0']))
      expect(await status(id)).toMatchObject({
        status: 'running',
        waves: [{ waiting: 1, updated: 1 }],
        next: {
          step: 'complete',
          at: opensAt,
          because: 'waits for 1 device outside of its maintenance window',
        },
      })
      // The window has opened, and the device has not asked yet.
      await live(29, reports([free, '1.0.0']))
      await live(1, reports([held, before], [free, '1.0.0']))
      expect(await beat(held)).toBe('1.0.0')
      await live(10, reports([held, '1.0.0'], [free, '1.0.0']))
      expect(await status(id)).toMatchObject({ status: 'completed', waves: [{ updated: 2 }] })
    })

    it('waits again when it closed before the device began to update, and fails the second time', async () => {
      const { fleet, keep, start, live, status, clock, stateOf, beat } = await setUp(1)
      const [pc] = fleet as [Machine]
      await keep(pc)
      const id = await start({ ...all, maxFailurePercent: 100 })
      clock.forward(3600 + 50 * 60)
      expect(await beat(pc)).toBe('1.0.0')
      await live(16, reports([pc, before]))
      expect(await stateOf(id, pc)).toMatchObject({
        state: 'waiting',
        offeredAt: null,
        reason: 'Its maintenance window closed before it began to update',
      })
      clock.forward(7 * 86_400 - 16 * 60)
      expect(await beat(pc)).toBe('1.0.0')
      await live(16, reports([pc, before]))
      expect(await stateOf(id, pc)).toMatchObject({
        state: 'failed',
        reason: `Still on ${before} 15 minutes after it was offered the version`,
      })
      expect((await status(id)).status).toBe('halted')
    })

    it('fails when it had its gate within the window, had begun, or is dead', async () => {
      const { fleet, keep, start, live, clock, stateOf, offers, say } = await setUp(3)
      const [early, begun, dead] = fleet as [Machine, Machine, Machine]
      for (const one of fleet) await keep(one)
      const id = await start({ ...all, maxFailurePercent: 100 })
      clock.forward(3600)
      expect(await offers([early])).toEqual(['1.0.0'])
      clock.forward(55 * 60)
      expect(await offers([begun, dead])).toEqual(['1.0.0', '1.0.0'])
      clock.forward(1)
      await say(begun, { targetVersion: '1.0.0', state: 'updating' })
      await live(16, reports([early, before], [begun, before]))
      for (const one of fleet) expect(await stateOf(id, one)).toMatchObject({ state: 'failed' })
      expect(await stateOf(id, dead)).toMatchObject({ reason: 'Not seen since it was offered the version' })
    })
  })

  describe('the window of an organization', () => {
    it('holds its devices likewise, except those with a window of their own', async () => {
      const { fleet, keep, keepOrg, start, live, status, offers } = await setUp(3)
      const [kept, later, now] = fleet as [Machine, Machine, Machine]
      await keepOrg('Sun 13:00-14:00')
      await keep(later, { ...atOne, every: 'Sun 15:00' })
      await keep(now, { ...atOne, every: 'daily 12:00' })
      const id = await start(all)
      expect(await offers(fleet)).toEqual([null, null, '1.0.0'])
      await live(3, reports([kept, before], [later, before], [now, '1.0.0']))
      expect((await status(id)).awaitingWindow).toEqual({ devices: 2, nextOpensAt: opensAt })
      await live(57, reports([kept, before], [later, before], [now, '1.0.0']))
      // Completed meanwhile: the version is promoted, and is offered in the windows.
      expect((await status(id)).status).toBe('completed')
      expect(await offers([kept, later])).toEqual(['1.0.0', null])
    })
  })
})

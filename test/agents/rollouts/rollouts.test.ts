import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { inTurn } from '../../databases.ts'
import { before, begin, type Machine, withFleet } from './rollout-fixture.ts'

const quick = { gateMinutes: 15, soakMinutes: 10, maxFailurePercent: 5 }

inTurn((open) => {
  const setUp = (count: number) => withFleet(open, count)

  describe('a rollout', () => {
    it('opens each wave after the previous one has soaked, and is then promoted', async () => {
      const { fleet, start, status, wavesOf, offers, live } = await setUp(20)
      const id = await start({ waves: [{ percent: 5 }, { percent: 50 }, { percent: 100 }], ...quick })
      const wave = await wavesOf(id)
      expect([1, 2, 3].map((n) => wave(n).length)).toEqual([1, 9, 10])
      expect(await status(id)).toMatchObject({
        status: 'running',
        wave: 1,
        next: { step: 'open_wave', wave: 2 },
      })

      const reports = new Map(fleet.map((one) => [one, before]))
      for (const n of [1, 2, 3]) {
        const waiting = [2, 3].filter((later) => later > n).flatMap(wave)
        expect(await offers(waiting)).toEqual(waiting.map(() => null))
        expect(await offers(wave(n))).toEqual(wave(n).map(() => '1.0.0'))
        for (const one of wave(n)) reports.set(one, '1.0.0')
        await live(10, reports)
        const next = n === 3 ? { step: 'complete', wave: null } : { step: 'open_wave', wave: n + 1 }
        const because = `waits for ${wave(n).length} device${n === 1 ? '' : 's'} to stay alive`
        expect(await status(id)).toMatchObject({ status: 'running', wave: n, next: { ...next, because } })
        await live(1, reports)
      }
      expect(await status(id)).toMatchObject({
        status: 'completed',
        isCurrent: false,
        next: null,
        waves: [
          { devices: 1, updated: 1, onVersion: 1 },
          { devices: 9, updated: 9, onVersion: 9 },
          { devices: 10, updated: 10, onVersion: 10 },
        ],
      })
    })

    it('promotes its version for devices that were not in it', async () => {
      const { enroll, start, live, fleet, beat } = await setUp(1)
      await start({ waves: [{ percent: 100 }], ...quick })
      const late = await enroll('late')
      expect(await beat(late)).toBeNull()
      expect(await beat(fleet[0]!)).toBe('1.0.0')
      await live(12, new Map([[fleet[0]!, '1.0.0']]))
      expect(await beat(late)).toBe('1.0.0')
    })

    it('that does not cover all devices promotes nothing, and its devices stay on its version', async () => {
      const { start, status, wavesOf, live, offers, fleet, release } = await setUp(4)
      await release('0.5.0', { promoted: true })
      const id = await start({ waves: [{ percent: 25 }], ...quick })
      const wave = await wavesOf(id)
      const [one] = wave(1)
      const others = fleet.filter((machine) => machine !== one)
      expect(await offers(others)).toEqual(['0.5.0', '0.5.0', '0.5.0'])
      expect(await offers([one!])).toEqual(['1.0.0'])
      await live(12, new Map([[one!, '1.0.0']]))
      expect(await status(id)).toMatchObject({ status: 'completed', isCurrent: true })
      expect(await offers([one!], '1.0.0')).toEqual([null])
      expect(await offers(others)).toEqual(['0.5.0', '0.5.0', '0.5.0'])
    })

    it('continues after the gate without offline devices, which count when they return', async () => {
      const { clock, start, status, wavesOf, beat, round, live } = await setUp(10)
      const id = await start({ waves: [{ percent: 50 }, { percent: 100 }], ...quick })
      const wave = await wavesOf(id)
      const [first, away, ...rest] = wave(1)
      const reports = new Map(rest.map((one) => [one, '1.0.0']))
      reports.set(first!, '1.0.0')
      for (const one of [first!, ...rest]) await beat(one)
      // One was never seen: it counts as online for five minutes, and then no longer blocks.
      await live(11, reports)
      expect(await status(id)).toMatchObject({
        wave: 1,
        next: { because: 'waits for 1 device online to ask' },
      })
      await live(4, reports)
      expect(await status(id)).toMatchObject({ wave: 2, waves: [{ waiting: 1, updated: 4 }, { waiting: 5 }] })
      expect(await beat(away!)).toBe('1.0.0')
      clock.forward(15 * 60)
      await round()
      expect(await status(id)).toMatchObject({
        status: 'halted',
        wave: 2,
        failures: {
          counted: 1,
          allowed: 0,
          reasons: [{ reason: 'Not seen since it was offered the version' }],
        },
      })
    })

    it('opens no wave before a device of the current one has proved the version', async () => {
      const { start, status, clock, round } = await setUp(4)
      const id = await start({ waves: [{ percent: 50 }, { percent: 100 }], ...quick })
      clock.forward(3600)
      await round()
      expect(await status(id)).toMatchObject({
        status: 'running',
        wave: 1,
        next: { at: null, because: 'waits for a first device of the wave on the version' },
      })
    })

    it('is the only active one', async () => {
      const { system, release, start, move, status } = await setUp(3)
      await release('1.1.0')
      const first = await start({ waves: [{ percent: 100 }] })
      const again = () =>
        system.call(api.agentRollouts.start, { body: { version: '1.1.0', waves: [{ percent: 100 }] } })
      await expect(again()).rejects.toMatchObject({ status: 409, code: 'rollout_in_progress' })
      await move('halt', first)
      await expect(again()).rejects.toMatchObject({ status: 409, code: 'rollout_in_progress' })
      await move('abort', first)
      const started = await Promise.allSettled([again(), again(), again()])
      expect(started.map((one) => one.status).sort()).toEqual(['fulfilled', 'rejected', 'rejected'])
      expect(await status(first)).toMatchObject({ status: 'aborted', isCurrent: false })
    })
  })

  describe('the devices of a rollout', () => {
    it('are those that can and may run the version', async () => {
      const { enroll, release, start, placesOf, service, system, beat, world } = await setUp(1)
      const machines = ['there', 'beyond', 'developer', 'off', 'unwilling', 'other', 'quarantined', 'gone']
      const made = new Map<string, Machine>()
      for (const name of machines) made.set(name, await enroll(name))
      const put = (name: string, columns: object) =>
        service.storage.write((tx) =>
          tx.updateTable('devices').set(columns).where('id', '=', made.get(name)!.deviceId).execute(),
        )
      await beat(made.get('there')!, '2.0.0')
      await beat(made.get('beyond')!, '2.0.1-rc.1')
      await beat(made.get('developer')!, 'dev-1')
      await put('off', { auto_update: 0 })
      await beat(made.get('unwilling')!, before, { autoUpdate: false })
      await put('other', { architecture: 'arm64' })
      await put('quarantined', { status: 'quarantined' })
      await system.call(api.devices.decommission, { params: { id: made.get('gone')!.deviceId } })
      const { orgs } = world
      const manual = { settings: { defaults: { agentUpdatePolicy: 'manual' as const } } }
      await system.call(api.orgs.update, { params: { id: orgs.garage.id }, body: manual })
      await service.storage.write((tx) =>
        tx
          .updateTable('devices')
          .set({ status: 'online' })
          .where('id', 'in', [orgs.garage.deviceId, orgs.harbor.deviceId])
          .execute(),
      )
      await system.call(api.orgs.update, { params: { id: orgs.harbor.id }, body: { status: 'suspended' } })
      await release('2.0.0')
      const id = await start({ version: '2.0.0', waves: [{ percent: 100 }] })
      expect((await placesOf(id)).map(({ hostname }) => hostname)).toEqual(['pc-0'])
    })

    it('are shuffled for each rollout, and a filter takes those it matches that are left', async () => {
      const { system, bakery, start, placesOf, fleet, move } = await setUp(10)
      for (const { deviceId: id } of fleet.slice(0, 3)) {
        await system.call(api.devices.update, { params: { id }, body: { addTags: ['pilot'] } })
      }
      const filter = await system.call(api.filters.create, {
        body: {
          orgId: bakery.id,
          name: 'Pilots',
          conditions: {
            operator: 'AND',
            conditions: [{ field: 'tags', operator: 'hasAny', value: ['pilot'] }],
          },
        },
      })
      const waves = [{ filterId: filter.id }, { percent: 50 }, { percent: 100 }]
      let id = await start({ waves })
      const places = await placesOf(id)
      const pilots = places.filter(({ wave }) => wave === 1).map(({ hostname }) => hostname)
      expect(pilots.sort()).toEqual(['pc-0', 'pc-1', 'pc-2'])
      expect([2, 3].map((n) => places.filter(({ wave }) => wave === n).length)).toEqual([2, 5])
      const shown = await system.call(api.agentRollouts.show, { params: { id } })
      expect(shown.waves[0]).toMatchObject({ filterName: 'Pilots', devices: 3, percent: null })

      const orders = new Set<string>()
      for (let n = 0; n < 3; n++) {
        await move('abort', id)
        id = await start({ waves: [{ percent: 50 }, { percent: 100 }] })
        const some = (await placesOf(id)).filter(({ wave }) => wave === 1).map(({ hostname }) => hostname)
        orders.add(some.sort().join())
      }
      expect(orders.size).toBeGreaterThan(1)
    })

    it('must not be none', async () => {
      const { system, release, bakery, fleet, beat } = await setUp(1)
      const start = (body: { version?: string; waves?: object[] }) =>
        system.call(api.agentRollouts.start, {
          body: { version: '1.0.0', waves: [{ percent: 100 }], ...body },
        })
      await expect(start({ version: '3.0.0' })).rejects.toMatchObject({ status: 404 })
      const none = await system.call(api.filters.create, {
        body: {
          orgId: bakery.id,
          name: 'Nobody',
          conditions: {
            operator: 'AND',
            conditions: [{ field: 'hostname', operator: 'equals', value: 'x' }],
          },
        },
      })
      await expect(start({ waves: [{ filterId: none.id }] })).rejects.toMatchObject({
        status: 409,
        message: 'The filter Nobody matches no device that can run 1.0.0',
      })
      for (const reported of ['1.0.0', '1.0.1']) {
        await beat(fleet[0]!, reported)
        await expect(start({})).rejects.toMatchObject({ status: 409, code: 'conflict' })
      }
      await release('1.1.0', { promoted: true })
      await expect(start({ version: '1.1.0' })).rejects.toMatchObject({
        status: 409,
        message: '1.1.0 is promoted: it is already offered to all agents',
      })
      expect((await system.call(api.agentRollouts.list)).data.map(({ version }) => version)).not.toContain(
        '1.0.0',
      )
    })

    it.each([
      [[], 'body.waves', 'must name at least one wave'],
      [[{}], 'body.waves.0', 'must have either percent or filterId'],
      [[{ percent: 0 }], 'body.waves.0.percent', 'must be at least 0.01'],
      [[{ percent: 101 }], 'body.waves.0.percent', 'must be at most 100'],
      [
        [{ percent: 10 }, { percent: 10 }],
        'body.waves.1.percent',
        'wave 2 must be more than 10 %: a percentage counts the waves before',
      ],
      [[{ percent: 100 }, { percent: 100 }], 'body.waves.1', 'wave 2 comes after all devices'],
    ])('with the waves %j is refused', async (waves, path, message) => {
      const { system } = await begin(open)
      const body = { version: '1.0.0', waves } as never
      await expect(system.call(api.agentRollouts.start, { body })).rejects.toMatchObject({
        status: 400,
        details: [{ path, message }],
      })
    })
  })
})

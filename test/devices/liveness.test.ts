import { describe, expect, it, vi } from 'vitest'
import { api } from '../../src/api.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { findOverdue, markOffline } from '../../src/devices/liveness.ts'
import { onEveryDatabase } from '../databases.ts'
import { testClock } from '../harness.ts'
import { begin } from './device-fixture.ts'

const settings = { offlineAfterSeconds: 300 }

onEveryDatabase((kind, open) => {
  const setUp = async () => {
    const clock = testClock()
    const stage = await begin(open, { clock })
    const { service, bakery, client, show } = stage
    const state = async () => (await show(bakery.deviceId)).status
    const check = () => checkLiveness(service.storage, settings, clock())
    const beat = () =>
      service.client(bakery.agentToken).call(api.agents.heartbeat, {
        params: { id: bakery.agentId },
        body: { status: 'ok', agentVersion: '0.1.0' },
      })
    const put = (status: string) =>
      service.storage.write((tx) =>
        tx.updateTable('devices').set({ status }).where('id', '=', bakery.deviceId).execute(),
      )
    const maintain = (body: { enable: boolean; durationHours?: number }) =>
      client.call(api.devices.maintenance, { params: { id: bakery.deviceId }, body })
    return { ...stage, clock, state, check, beat, put, maintain }
  }

  describe('a device', () => {
    it('is offline after five minutes of silence, and online with the next heartbeat', async () => {
      const { clock, state, check, beat } = await setUp()
      clock.forward(300)
      expect(await check()).toEqual([])
      expect(await state()).toBe('online')
      clock.forward(1)
      expect(await check()).toHaveLength(3)
      expect(await state()).toBe('offline')
      expect(await check()).toEqual([])
      await beat()
      expect(await state()).toBe('online')
    })

    it('that is pending is online with its first heartbeat', async () => {
      const { state, beat, put } = await setUp()
      await put('pending')
      await beat()
      expect(await state()).toBe('online')
    })

    it('in quarantine stays there, and its agent is told', async () => {
      const { clock, state, check, beat, put, maintain } = await setUp()
      await put('quarantined')
      await expect(beat()).rejects.toMatchObject({
        status: 403,
        code: 'device_quarantined',
        message: 'Device is quarantined pending admin approval',
      })
      await expect(maintain({ enable: true })).rejects.toMatchObject({ status: 409, code: 'conflict' })
      clock.forward(1000)
      await check()
      expect(await state()).toBe('quarantined')
    })
  })

  describe('maintenance', () => {
    it('continues despite heartbeats and silence, and ends on time', async () => {
      const { clock, state, check, beat, maintain, show, bakery } = await setUp()
      const made = await maintain({ enable: true, durationHours: 2 })
      expect(made).toMatchObject({ status: 'maintenance', maintenanceUntil: '2026-03-01T14:00:00.000Z' })
      clock.forward(3600)
      await beat()
      await check()
      expect(await state()).toBe('maintenance')
      expect((await show(bakery.deviceId)).lastSeenAt).toBe(clock())
      clock.forward(3599)
      await check()
      expect(await state()).toBe('maintenance')
      await beat()
      clock.forward(1)
      await check()
      expect(await show(bakery.deviceId)).toMatchObject({ status: 'online', maintenanceUntil: null })
    })

    it('of a silent device ends offline', async () => {
      const { clock, state, check, maintain } = await setUp()
      await maintain({ enable: true, durationHours: 1 })
      clock.forward(3600)
      await check()
      expect(await state()).toBe('offline')
    })

    it('without an end lasts until it is ended, and the state follows the last heartbeat', async () => {
      const { clock, state, check, beat, maintain } = await setUp()
      expect(await maintain({ enable: true })).toMatchObject({ maintenanceUntil: null })
      clock.forward(400 * 3600)
      await check()
      expect(await state()).toBe('maintenance')
      expect(await maintain({ enable: false })).toMatchObject({ status: 'offline' })
      await beat()
      await maintain({ enable: true, durationHours: 168 })
      expect(await maintain({ enable: false })).toMatchObject({ status: 'online', maintenanceUntil: null })
      expect(await maintain({ enable: false })).toMatchObject({ status: 'online' })
    })

    it('lasts an hour to a week, and is refused for a decommissioned device', async () => {
      const { client, bakery, maintain } = await setUp()
      for (const durationHours of [0, 169, 1.5]) {
        await expect(maintain({ enable: true, durationHours })).rejects.toMatchObject({ status: 400 })
      }
      await expect(maintain({ enable: false, durationHours: 1 })).rejects.toMatchObject({ status: 400 })
      await client.call(api.devices.decommission, { params: { id: bakery.deviceId } })
      await expect(maintain({ enable: true })).rejects.toMatchObject({ status: 409, code: 'conflict' })
    })
  })

  it('concurrent checks mark each device offline once', async () => {
    const { clock, check, enroll } = await setUp()
    for (let n = 0; n < 20; n++) await enroll(`pc-${n}`)
    clock.forward(301)
    const moved = (await Promise.all([check(), check(), check(), check()])).flat()
    expect(moved).toHaveLength(23)
    expect(new Set(moved.map(({ id }) => id)).size).toBe(23)
  })

  it.runIf(kind === 'sqlite')(
    'the service checks automatically, but gives agents time to report after its start',
    async () => {
      const { clock, state, bakery, service } = await setUp()
      await service.storage.write((tx) =>
        tx
          .updateTable('devices')
          .set({ last_seen_at: '2026-01-01T00:00:00.000Z' })
          .where('id', '=', bakery.deviceId)
          .execute(),
      )
      await new Promise((resolve) => setTimeout(resolve, 10_500))
      expect(await state()).toBe('online')
      clock.forward(90)
      await vi.waitFor(async () => expect(await state()).toBe('offline'), { timeout: 15_000, interval: 200 })
    },
  )

  it('a device that reports between the check and the update stays online', async () => {
    const { service, clock, bakery, state, beat } = await setUp()
    clock.forward(301)
    const due = { now: clock(), before: new Date(Date.parse(clock()) - 300_000).toISOString() }
    const { silent } = await findOverdue(service.storage.heavy, due, '', 100)
    expect(silent).toContain(bakery.deviceId)
    await beat()
    const moved = await service.storage.write((tx) => markOffline(tx, silent, due))
    expect(moved).toHaveLength(silent.length - 1)
    expect(await state()).toBe('online')
  })
})

import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import type { Maintenance } from '../../../src/devices/contract.ts'
import { inTurn } from '../../databases.ts'
import { listen } from '../../events/listener.ts'
import { testClock } from '../../harness.ts'
import { begin } from '../device-fixture.ts'

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const stage = await begin(open, { clock })
    const { client, bakery } = stage
    const params = { id: bakery.deviceId }
    const maintain = (body: Maintenance) => client.call(api.devices.maintenance, { params, body })
    const shown = () => stage.show(bakery.deviceId)
    const moveTo = async (siteId: string | null) =>
      client.call(api.devices.update, { params, body: { siteId } })
    return { ...stage, clock, maintain, shown, moveTo }
  }
  const sunday = { every: 'Sun 02:00', durationMinutes: 120 }

  describe('the maintenance window of a device', () => {
    it('is shown with its next occurrence, and with none once it is removed', async () => {
      const { maintain, shown, clock } = await start()
      expect(await shown()).toMatchObject({ maintenanceWindow: null, nextWindow: null })
      // The clock is at Sunday, 1 March 2026, noon in UTC.
      const window = { ...sunday, every: 'sun 14:00', timezone: 'Europe/Paris' }
      const nextWindow = { opensAt: '2026-03-01T13:00:00.000Z', closesAt: '2026-03-01T15:00:00.000Z' }
      const set = { maintenanceWindow: { ...window, every: 'Sun 14:00' }, nextWindow }
      expect(await maintain({ window })).toMatchObject({ ...set, status: 'online' })
      clock.forward(7200)
      expect(await shown()).toMatchObject(set)
      clock.forward(3600)
      expect((await shown()).nextWindow?.opensAt).toBe('2026-03-08T13:00:00.000Z')
      expect(await maintain({ window: null })).toMatchObject({ maintenanceWindow: null, nextWindow: null })
      expect(await shown()).toMatchObject({ maintenanceWindow: null, nextWindow: null })
    })

    it('has the time zone of the site when it is set, or UTC', async () => {
      const { maintain, shown, moveTo, client, bakery } = await start()
      const zone = async () => (await shown()).maintenanceWindow?.timezone
      await client.call(api.sites.update, {
        params: { id: bakery.siteId },
        body: { timezone: 'America/New_York' },
      })
      await moveTo(bakery.siteId)
      await maintain({ window: sunday })
      expect(await zone()).toBe('America/New_York')
      await moveTo(null)
      expect(await zone()).toBe('America/New_York')
      await maintain({ window: sunday })
      expect(await zone()).toBe('UTC')
    })

    it('is set apart from maintenance, or with it', async () => {
      const { maintain } = await start()
      const window = { ...sunday, timezone: 'UTC' }
      await maintain({ enable: true, durationHours: 1 })
      const set = await maintain({ window })
      expect(set).toMatchObject({ status: 'maintenance', maintenanceWindow: window })
      expect(set.maintenanceUntil).not.toBeNull()
      const ended = await maintain({ enable: false })
      expect(ended).toMatchObject({ status: 'online', maintenanceWindow: window })
      expect(await maintain({ enable: true, window: null })).toMatchObject({
        status: 'maintenance',
        maintenanceUntil: null,
        maintenanceWindow: null,
      })
    })

    it('is in the audit log and the event of the change, before and after', async () => {
      const { maintain, service, client, bakery } = await start()
      const received = await listen(service, bakery.id)
      await maintain({ window: sunday })
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'device.maintenance' } })
      const after = { maintenanceWindow: { ...sunday, timezone: 'UTC' } }
      expect(data).toMatchObject([
        { resource: { id: bakery.deviceId }, details: { before: { maintenanceWindow: null }, after } },
      ])
      expect((await received()).map(({ data: said }) => said)).toContainEqual(
        expect.objectContaining({ fields: ['maintenanceWindow'], ...after }),
      )
    })

    it.each<[string, unknown]>([
      ['body.window.every', { window: { ...sunday, every: 'at night' } }],
      ['body.window.every', { window: { durationMinutes: 60 } }],
      ['body.window.durationMinutes', { window: { ...sunday, durationMinutes: 14 } }],
      ['body.window.durationMinutes', { window: { ...sunday, durationMinutes: 1441 } }],
      ['body.window.timezone', { window: { ...sunday, timezone: 'Mars/Olympus' } }],
      ['body.durationHours', { window: sunday, durationHours: 2 }],
      ['body.durationHours', { enable: false, durationHours: 2 }],
      ['body.enable', {}],
    ])('that is invalid is refused by naming %s: %o', async (path, body) => {
      const { maintain, shown } = await start()
      await expect(maintain(body as Maintenance)).rejects.toMatchObject({
        status: 400,
        details: [expect.objectContaining({ path })],
      })
      expect(await shown()).toMatchObject({ status: 'online', maintenanceWindow: null })
    })

    it('is refused for a decommissioned device, and stays when it is restored', async () => {
      const { maintain, client, bakery, shown } = await start()
      await maintain({ window: sunday })
      const params = { id: bakery.deviceId }
      await client.call(api.devices.decommission, { params })
      await expect(maintain({ window: null })).rejects.toMatchObject({ status: 409, code: 'conflict' })
      await client.call(api.devices.restore, { params })
      expect((await shown()).maintenanceWindow).not.toBeNull()
    })
  })
})

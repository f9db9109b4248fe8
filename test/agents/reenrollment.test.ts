import { describe, expect, it } from 'vitest'
import { reenrollDevice } from '../../src/agents/rules.ts'
import { api } from '../../src/api.ts'
import { Device, DeviceChange } from '../../src/devices/contract.ts'
import { inTurn } from '../databases.ts'
import { begin, machine } from '../devices/device-fixture.ts'

describe('a device that enrolls again', () => {
  const settable = Object.keys(DeviceChange.shape).filter((field) => Object.hasOwn(Device.shape, field))

  it.each(settable)('keeps %s, which users can set', (field) => {
    const device = {
      deviceRoleSource: 'manual',
      autoUpdate: {},
      [field]: 'set by a user',
    } as unknown as Device
    const made = { deviceRoleSource: 'auto', autoUpdate: {}, [field]: 'new' } as unknown as Device
    expect(reenrollDevice(device, made)).toMatchObject({ [field]: 'set by a user' })
  })
})

inTurn((open) => {
  const start = async () => {
    const stage = await begin(open)
    const { service, bakery, client, enroll } = stage
    const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'again', maxUsage: 100 } })
    const first = await enroll('till-1')
    const again = (more: Record<string, string> = {}, headers: Record<string, string> = {}) =>
      service.client(undefined, headers).call(api.agents.enroll, {
        body: { enrollmentKey: key, hostname: 'till-1', ...machine, osVersion: 'Debian 13', ...more },
      })
    const beat = (agentId: string, token: string) =>
      service.client(token).call(api.agents.heartbeat, {
        params: { id: agentId },
        body: { status: 'ok', agentVersion: '0.1.0' },
      })
    const cap = (max: number | null) =>
      service.storage.write((tx) =>
        tx.updateTable('organizations').set({ max_devices: max }).where('id', '=', bakery.id).execute(),
      )
    return { ...stage, first, again, beat, cap }
  }

  describe('a machine that enrolls again', () => {
    it('keeps its device with new credentials when it proves its token, also at the limit', async () => {
      const { client, first, again, beat, cap, show } = await start()
      const params = { id: first.deviceId }
      const body = {
        displayName: 'Till',
        tags: ['front'],
        customFields: { a: 'b' },
        deviceRole: 'iot',
      } as const
      const before = await client.call(api.devices.update, { params, body: { ...body, tags: ['front'] } })
      await cap(2)
      const proofs = [
        () => again({ reenrollmentToken: token }),
        () => again({}, { 'x-agent-reenrollment-token': token }),
        () => again({}, { authorization: `Bearer ${token}` }),
      ]
      let token = first.authToken
      let agentId = first.agentId
      for (const proven of proofs) {
        const made = await proven()
        expect(made.deviceId).toBe(first.deviceId)
        await expect(beat(agentId, token)).rejects.toMatchObject({ code: 'invalid_agent_credentials' })
        await beat(made.agentId, made.authToken)
        token = made.authToken
        agentId = made.agentId
      }
      const { agentId: _, lastSeenAt: __, enrolledAt: ___, updatedAt: ____, ...kept } = before
      expect(await show(first.deviceId)).toMatchObject({ ...kept, osVersion: 'Debian 13', agentId })
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'agent.enroll', limit: 1 } })
      expect(data[0]).toMatchObject({ resource: { id: first.deviceId }, details: { reenrolled: true } })
      expect(JSON.stringify(data)).not.toContain(token)
    })

    it('is a new device with no or another token, under another hostname, or at another site', async () => {
      const { service, first, again, bakery, orgs, beat, client } = await start()
      const elsewhere = await client.call(api.enrollmentKeys.create, {
        body: { name: 'site', siteId: bakery.siteId, maxUsage: 10 },
      })
      const made = [
        await again(),
        await again({ reenrollmentToken: 'svc_wrong' }),
        await again({ reenrollmentToken: orgs.garage.agentToken }),
        await again({ reenrollmentToken: bakery.agentToken }),
        await again({ reenrollmentToken: first.authToken, hostname: 'till-2' }),
        await again({ reenrollmentToken: first.authToken, enrollmentKey: elsewhere.key }),
      ].map(({ deviceId }) => deviceId)
      expect(new Set([...made, first.deviceId]).size).toBe(7)
      await beat(first.agentId, first.authToken)
      const rows = service.storage.read.selectFrom('devices').select('id').where('hostname', '=', 'till-1')
      expect(await rows.execute()).toHaveLength(6)
    })

    it('stays in maintenance and keeps its window, is a new device once decommissioned, and stays quarantined', async () => {
      const { service, client, first, again, cap, show } = await start()
      const params = { id: first.deviceId }
      const window = { every: 'Sun 02:00', durationMinutes: 60, timezone: 'UTC' }
      await client.call(api.devices.maintenance, { params, body: { enable: true, durationHours: 1, window } })
      const made = await again({ reenrollmentToken: first.authToken })
      expect(await show(made.deviceId)).toMatchObject({
        id: first.deviceId,
        status: 'maintenance',
        maintenanceUntil: expect.any(String),
        maintenanceWindow: window,
      })
      await service.storage.write((tx) =>
        tx.updateTable('devices').set({ status: 'quarantined' }).where('id', '=', made.deviceId).execute(),
      )
      const reenrollmentToken = made.authToken
      await expect(again({ reenrollmentToken })).rejects.toMatchObject({ code: 'device_quarantined' })
      await client.call(api.devices.decommission, { params })
      await cap(1)
      await expect(again({ reenrollmentToken })).rejects.toMatchObject({ code: 'device_limit_reached' })
      await cap(null)
      expect((await again({ reenrollmentToken })).deviceId).not.toBe(first.deviceId)
    })
  })

  it('a heartbeat is one statement on one row, with or without metrics and changes', async () => {
    const { service, bakery } = await begin(open)
    const agent = service.client(bakery.agentToken)
    const row = () =>
      service.storage.read
        .selectFrom('devices')
        .select(['last_user', 'cpu_percent', 'status', 'hostname_key', 'uptime_seconds'])
        .where('id', '=', bakery.deviceId)
        .executeTakeFirstOrThrow()
    const beat = (more: Record<string, unknown>) =>
      agent.call(api.agents.heartbeat, {
        params: { id: bakery.agentId },
        body: { status: 'ok', agentVersion: '0.1.0', ...more } as never,
      })
    const metrics = { cpuPercent: 7 }
    // The first of each kind also builds the query.
    await beat({})
    await beat({ metrics })
    const statements = watchStatements(service.storage.write)
    service.storage.write = statements.write
    await beat({})
    await beat({ metrics })
    await beat({ metrics, lastUser: 'Ada', hostname: 'ÉCLAIR', uptime: 5 })
    await beat({ lastUser: 'Ada', hostname: 'ÉCLAIR' })
    // A changed hostname is an event for webhooks.
    // Work in the background that finds nothing to write is none of them.
    expect(statements.counts.filter((count) => count > 0)).toEqual([1, 1, 2, 1])
    expect(await row()).toEqual({
      last_user: 'Ada',
      cpu_percent: 7,
      status: 'online',
      hostname_key: 'éclair',
      uptime_seconds: 5,
    })
  })
})

type Write = Awaited<ReturnType<typeof begin>>['service']['storage']['write']

/** Counts the statements of each write. */
function watchStatements(write: Write): { write: Write; counts: number[] } {
  const counts: number[] = []
  const counted: Write = (work, options) =>
    write((tx) => {
      let count = 0
      const counting = <T extends object>(watched: T, name: string, more: Partial<T> = {}): T =>
        new Proxy(watched, {
          // All its queries take the same path.
          has: (target, key) => key !== 'executeNow' && key in target,
          get: (target, key) => {
            if (key in more) return more[key as keyof T]
            const value = Reflect.get(target, key) as unknown
            if (typeof value !== 'function') return value
            if (key === name) count++
            return value.bind(target) as unknown
          },
        })
      const executor = counting(tx.getExecutor(), 'executeQuery')
      const watched = counting(tx, 'updateTable', { getExecutor: () => executor })
      return work(watched).finally(() => counts.push(count))
    }, options)
  return { write: counted, counts }
}

import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { addDevice } from '../groups/fleet.ts'
import { startService, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addGroup, addOrgUser, buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })
const said = (status: number, message: string) => expect.objectContaining({ status, message })

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const admin = service.client(world.tokens.bakery)
    const raise = (title: string, more: Record<string, unknown> = {}) =>
      admin.call(api.alerts.create, { body: { severity: 'high', title, ...more } })
    return { clock, service, world, bakery, admin, raise }
  }

  describe('an alert', () => {
    it('has a rule of its caller, never one that the service raises alerts of', async () => {
      const { raise, service } = await start()
      const refusal = raise('Nothing', { ruleId: 'copied-machine' })
      await expect(refusal).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.ruleId', message: 'is reserved for alerts of the service' }],
      })
      const query = service.storage.read.selectFrom('alerts').select('id')
      expect(await query.where('rule_id', '=', 'copied-machine').execute()).toEqual([])
      expect(await raise('Disk full', { ruleId: 'disk' })).toMatchObject({ ruleId: 'disk' })
    })

    it('is acknowledged once, and only while it is active', async () => {
      const { admin, raise, clock } = await start()
      const { id, status } = await raise('Disk full')
      expect(status).toBe('active')
      clock.forward(60)
      const after = await admin.call(api.alerts.acknowledge, { params: { id } })
      expect(after).toMatchObject({
        status: 'acknowledged',
        acknowledgedAt: clock(),
        triggeredAt: expect.any(String),
      })
      const again = admin.call(api.alerts.acknowledge, { params: { id } })
      await expect(again).rejects.toEqual(said(400, 'Cannot acknowledge alert with status: acknowledged'))
      await admin.call(api.alerts.resolve, { params: { id } })
      const late = admin.call(api.alerts.acknowledge, { params: { id } })
      await expect(late).rejects.toEqual(said(400, 'Cannot acknowledge alert with status: resolved'))
    })

    it('is resolved once, from any state, with a note', async () => {
      const { admin, raise } = await start()
      const { id } = await raise('Disk full')
      const body = { resolutionNote: 'Replaced' }
      const after = await admin.call(api.alerts.resolve, { params: { id }, body })
      expect(after).toMatchObject({ status: 'resolved', resolutionNote: 'Replaced' })
      expect(after.resolvedBy).not.toBeNull()
      const again = admin.call(api.alerts.resolve, { params: { id } })
      await expect(again).rejects.toEqual(said(400, 'Alert is already resolved'))
    })

    it('can be escalated repeatedly until it is resolved', async () => {
      const { admin, raise, clock } = await start()
      const { id } = await raise('Disk full')
      const first = await admin.call(api.alerts.escalate, { params: { id } })
      await admin.call(api.alerts.acknowledge, { params: { id } })
      clock.forward(60)
      const second = await admin.call(api.alerts.escalate, { params: { id } })
      expect([first.status, second.status]).toEqual(['active', 'acknowledged'])
      expect(second.escalatedAt! > first.escalatedAt!).toBe(true)
      await admin.call(api.alerts.resolve, { params: { id } })
      const late = admin.call(api.alerts.escalate, { params: { id } })
      await expect(late).rejects.toEqual(said(400, 'Cannot escalate alert with status: resolved'))
    })

    it('is acknowledged by only one of several concurrent requests', async () => {
      const { service, world, raise } = await start()
      const { id } = await raise('Disk full')
      const results = await Promise.allSettled(
        [world.tokens.bakery, world.tokens.acme, world.tokens.system].map((token) =>
          service.client(token).call(api.alerts.acknowledge, { params: { id } }),
        ),
      )
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    })

    it('has its changes in the audit log', async () => {
      const { service, admin, raise } = await start()
      const { id } = await raise('Disk full')
      const news = await newEntries(service)
      await admin.call(api.alerts.resolve, { params: { id }, body: { resolutionNote: 'Replaced' } })
      expect(await news()).toMatchObject([
        {
          action: 'alert.resolve',
          resourceName: 'Disk full',
          details: {
            before: { status: 'active', resolutionNote: null },
            after: { status: 'resolved', resolutionNote: 'Replaced' },
          },
        },
      ])
    })

    it('cannot be created for a device of another organization', async () => {
      const { service, world, bakery, raise } = await start()
      const { garage, harbor } = world.orgs
      for (const deviceId of [garage.deviceId, harbor.deviceId]) {
        await expect(raise('x', { deviceId })).rejects.toEqual(refused(404, 'not_found'))
      }
      const acme = service.client(world.tokens.acme)
      const body = { orgId: bakery.id, deviceId: garage.deviceId, severity: 'low', title: 'x' } as const
      await expect(acme.call(api.alerts.create, { body })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.deviceId' }],
      })
      const nowhere = acme.call(api.alerts.create, { body: { severity: 'low', title: 'x' } })
      await expect(nowhere).rejects.toMatchObject({ status: 400, details: [{ path: 'body.orgId' }] })
    })

    it('requires the permission for each action', async () => {
      const { service, bakery, raise } = await start()
      const { id } = await raise('Disk full')
      const token = await addOrgUser(service, 'technician', bakery.id, { role: 'Org Technician' })
      const technician = service.client(token)
      const create = technician.call(api.alerts.create, { body: { severity: 'low', title: 'x' } })
      await expect(create).rejects.toEqual(refused(403, 'forbidden'))
      await expect(technician.call(api.alerts.resolve, { params: { id } })).rejects.toEqual(
        refused(403, 'forbidden'),
      )
      await technician.call(api.alerts.escalate, { params: { id } })
      await technician.call(api.alerts.acknowledge, { params: { id } })
    })

    it('can be created by a program with an API key, in its organization', async () => {
      const { service, admin, bakery } = await start()
      const { key } = await admin.call(api.apiKeys.create, {
        body: { name: 'monitor', scopes: ['alerts:write', 'alerts:read'] },
      })
      const program = service.client(undefined, { 'x-api-key': key })
      const alert = await program.call(api.alerts.create, { body: { severity: 'info', title: 'From afar' } })
      expect(alert).toMatchObject({ orgId: bakery.id, status: 'active' })
      expect((await program.call(api.alerts.list)).data[0]?.id).toBe(alert.id)
      await expect(program.call(api.alerts.acknowledge, { params: { id: alert.id } })).rejects.toMatchObject({
        status: 403,
      })
    })

    it('stores texts in a normalized form for searches', async () => {
      const { service, raise } = await start()
      const { id } = await raise('ΣΊΣΥΦΟΣ Down', { message: 'STRASSE' })
      const row = await service.storage.read
        .selectFrom('alerts')
        .select(['title_key', 'message_key'])
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      expect(row).toEqual({ title_key: 'σίσυφοσ down', message_key: 'strasse' })
    })
  })

  describe('the list of alerts', () => {
    it('is sorted newest first, and continues by cursor', async () => {
      const { admin, raise, clock } = await start()
      for (let n = 0; n < 5; n++) {
        clock.forward(n % 2)
        await raise(`alert ${n}`)
      }
      const all = await admin.call(api.alerts.list)
      expect(all.pagination).toMatchObject({ total: 6, nextCursor: null })
      const titles: string[] = []
      let cursor: string | undefined
      for (let turn = 0; turn < 4; turn++) {
        const query = { limit: '2', ...(cursor !== undefined && { cursor }) }
        const page = await admin.call(api.alerts.list, { query })
        titles.push(...page.data.map(({ title }) => title))
        cursor = page.pagination.nextCursor ?? undefined
        if (cursor === undefined) break
      }
      expect(titles).toEqual(all.data.map(({ title }) => title))
      expect(titles.slice(0, 5)).toEqual(['alert 4', 'alert 3', 'alert 2', 'alert 1', 'alert 0'])
    })

    it('can be filtered by device, state, severity, time and text', async () => {
      const { service, world, admin, bakery, raise, clock } = await start()
      const began = clock()
      clock.forward(10)
      const about = await raise('Über the limit', { deviceId: bakery.deviceId, severity: 'critical' })
      clock.forward(10)
      const done = await raise('100% done', { message: 'all of it', severity: 'info' })
      await admin.call(api.alerts.resolve, { params: { id: done.id } })
      const ids = async (query: Record<string, string>, token = world.tokens.bakery) =>
        (await service.client(token).call(api.alerts.list, { query })).data.map(({ id }) => id)
      expect(await ids({ deviceId: bakery.deviceId })).toEqual([about.id, bakery.alertId])
      expect(await ids({ status: 'resolved' })).toEqual([done.id])
      expect(await ids({ severity: 'critical' })).toEqual([about.id])
      expect(await ids({ until: about.triggeredAt })).toEqual([bakery.alertId])
      expect(await ids({ since: about.triggeredAt, until: done.triggeredAt })).toEqual([about.id])
      expect(await ids({ since: began }).then((all) => all.length)).toBe(3)
      expect(await ids({ search: 'ÜBER' })).toEqual([about.id])
      expect(await ids({ search: '0%' })).toEqual([done.id])
      expect(await ids({ search: 'OF IT' })).toEqual([done.id])
      expect(await ids({ orgId: world.orgs.garage.id }, world.tokens.acme)).toEqual([
        world.orgs.garage.alertId,
      ])
      await expect(ids({ orgId: world.orgs.harbor.id }, world.tokens.acme)).rejects.toEqual(
        refused(403, 'org_access_denied'),
      )
      await expect(ids({ cursor: 'nonsense' })).rejects.toMatchObject({ status: 400 })
    })

    it('shows restricted members only the alerts within their sites and groups', async () => {
      const { service, world, bakery, admin, raise } = await start()
      const site = await admin.call(api.sites.create, { body: { orgId: bakery.id, name: 'Depot' } })
      const deviceId = await addDevice(service, world, bakery, 'depot-pc', { siteId: site.id })
      const depot = await raise('In the depot', { deviceId })
      const whole = await raise('Everywhere')
      const groupId = await addGroup(service, bakery.id, 'Depot machines', [deviceId])
      const reaches = {
        ofSite: await addOrgUser(service, 'of-site', bakery.id, { siteIds: [site.id] }),
        ofGroup: await addOrgUser(service, 'of-group', bakery.id, { groupIds: [groupId] }),
        ofNone: await addOrgUser(service, 'of-none', bakery.id, { groupIds: [] }),
      }
      const seen = async (token: string) => {
        const { data, pagination } = await service.client(token).call(api.alerts.list)
        expect(pagination.total).toBe(data.length)
        return data.map(({ id }) => id)
      }
      expect(await seen(reaches.ofSite)).toEqual([depot.id])
      expect(await seen(reaches.ofGroup)).toEqual([depot.id])
      expect(await seen(reaches.ofNone)).toEqual([])
      for (const token of [reaches.ofSite, reaches.ofGroup]) {
        const client = service.client(token)
        for (const id of [whole.id, bakery.alertId]) {
          await expect(client.call(api.alerts.show, { params: { id } })).rejects.toEqual(
            refused(404, 'not_found'),
          )
          await expect(client.call(api.alerts.resolve, { params: { id } })).rejects.toEqual(
            refused(404, 'not_found'),
          )
        }
        const everywhere = client.call(api.alerts.create, { body: { severity: 'low', title: 'x' } })
        await expect(everywhere).rejects.toEqual(refused(403, 'site_access_denied'))
        const unseen = { severity: 'low', title: 'x', deviceId: bakery.deviceId } as const
        await expect(client.call(api.alerts.create, { body: unseen })).rejects.toEqual(
          refused(404, 'not_found'),
        )
        await client.call(api.alerts.escalate, { params: { id: depot.id } })
      }
    })
  })
})

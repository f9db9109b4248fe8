import { hash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock, testSecrets } from '../harness.ts'
import { addGroup, addOrgUser, buildWorld } from '../world.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const begin = async (env: Record<string, string> = {}) => {
    const clock = testClock(new Date().toISOString())
    const service = await startService(open, { clock, env })
    const world = await buildWorld(service)
    return { service, clock, ...world, client: service.client(world.tokens.bakery) }
  }
  const machine = {
    hostname: 'pc',
    osType: 'linux',
    osVersion: '12',
    architecture: 'amd64',
    agentVersion: '0.1.0',
  } as const

  describe('an enrollment key', () => {
    it('is 64 hex characters, shown once, and stored only as a peppered hash', async () => {
      const { service, client, orgs } = await begin()
      const { key, ...minted } = await client.call(api.enrollmentKeys.create, { body: { name: 'laptops' } })
      expect(key).toMatch(/^[0-9a-f]{64}$/)
      const { id } = minted
      expect(await client.call(api.enrollmentKeys.show, { params: { id } })).toEqual(minted)
      const { data } = await client.call(api.enrollmentKeys.list)
      expect(data.find((one) => one.id === id)).toEqual(minted)
      const stored = await service.storage.read
        .selectFrom('enrollment_keys')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      expect(stored.key_hash).toBe(hash('sha256', `${testSecrets.ENROLLMENT_KEY_PEPPER}:${key}`, 'hex'))
      expect(JSON.stringify(stored)).not.toContain(key)
      expect(minted).toMatchObject({ orgId: orgs.bakery.id, siteId: null, usageCount: 0, maxUsage: 1 })
    })

    it('expires an hour after creation by default', async () => {
      const { service, client, clock } = await begin()
      const { key, expiresAt } = await client.call(api.enrollmentKeys.create, { body: { name: 'short' } })
      expect(Date.parse(expiresAt) - Date.parse(clock())).toBe(3_600_000)
      clock.forward(3601)
      const enroll = service.client().call(api.agents.enroll, { body: { enrollmentKey: key, ...machine } })
      await expect(enroll).rejects.toEqual(failing(401, 'enrollment_key_expired'))
    })

    it('enrolls maxUsage machines, even concurrently', async () => {
      const { service, client } = await begin()
      const body = { name: 'three', maxUsage: 3 }
      const { id, key } = await client.call(api.enrollmentKeys.create, { body })
      const enroll = () =>
        service.client().call(api.agents.enroll, { body: { enrollmentKey: key, ...machine } })
      const results = await Promise.allSettled(Array.from({ length: 12 }, enroll))
      expect(results.filter((one) => one.status === 'fulfilled')).toHaveLength(3)
      for (const one of results) {
        if (one.status === 'rejected') expect(one.reason).toEqual(failing(401, 'enrollment_key_exhausted'))
      }
      expect((await client.call(api.enrollmentKeys.show, { params: { id } })).usageCount).toBe(3)
      expect((await client.call(api.devices.list, { query: { search: 'pc' } })).data).toHaveLength(4)
    })

    it('is listed while it is in use and expires before a time, and gets another expiry by rotation', async () => {
      const { client, clock } = await begin()
      const later = (seconds: number) => new Date(Date.parse(clock()) + seconds * 1000).toISOString()
      const mint = (name: string, seconds: number) =>
        client.call(api.enrollmentKeys.create, { body: { name, expiresAt: later(seconds) } })
      await mint('past', 10)
      const { id } = await mint('soon', 100)
      await mint('late', 10_000)
      clock.forward(20)
      const named = async (seconds: number) => {
        const query = { expiresBefore: later(seconds) }
        return (await client.call(api.enrollmentKeys.list, { query })).data.map(({ name }) => name)
      }
      expect(await named(200)).toEqual(['soon'])
      const expiresAt = later(50_000)
      const renewed = await client.call(api.enrollmentKeys.rotate, { params: { id }, body: { expiresAt } })
      expect(renewed.expiresAt).toBe(expiresAt)
      expect(await named(200)).toEqual([])
    })

    it('is invalid after rotation, and counts from 0 again', async () => {
      const { service, client } = await begin()
      const old = await client.call(api.enrollmentKeys.create, { body: { name: 'rotating', maxUsage: 2 } })
      const { id } = old
      const enroll = (enrollmentKey: string) =>
        service.client().call(api.agents.enroll, { body: { enrollmentKey, ...machine } })
      await enroll(old.key)
      const fresh = await client.call(api.enrollmentKeys.rotate, { params: { id }, body: { maxUsage: null } })
      expect(fresh).toMatchObject({
        id,
        usageCount: 0,
        maxUsage: null,
        expiresAt: old.expiresAt,
        name: 'rotating',
      })
      await expect(enroll(old.key)).rejects.toEqual(failing(401, 'enrollment_key_not_found'))
      await enroll(fresh.key)
    })

    it('is removed for good when deleted', async () => {
      const { client, orgs } = await begin()
      const params = { id: orgs.bakery.keyId }
      await client.call(api.enrollmentKeys.remove, { params })
      await expect(client.call(api.enrollmentKeys.show, { params })).rejects.toEqual(
        failing(404, 'not_found'),
      )
      await expect(client.call(api.enrollmentKeys.remove, { params })).rejects.toEqual(
        failing(404, 'not_found'),
      )
    })

    it('cannot be created expired, or for a site of another organization', async () => {
      const { client, orgs } = await begin()
      const mint = (body: { expiresAt?: string; siteId?: string }) =>
        client.call(api.enrollmentKeys.create, { body: { name: 'no', ...body } })
      const past = mint({ expiresAt: '2020-01-01T00:00:00Z' })
      await expect(past).rejects.toMatchObject({ status: 400, details: [{ path: 'body.expiresAt' }] })
      const foreign = mint({ siteId: orgs.garage.siteId })
      await expect(foreign).rejects.toMatchObject({ status: 400, details: [{ path: 'body.siteId' }] })
    })

    it('needs a named organization outside organization scope', async () => {
      const { service, tokens } = await begin()
      const mint = service.client(tokens.acme).call(api.enrollmentKeys.create, { body: { name: 'where' } })
      await expect(mint).rejects.toMatchObject({ status: 400, details: [{ path: 'body.orgId' }] })
    })

    it('can be listed by whether it has expired', async () => {
      const { client, clock } = await begin({ ENROLLMENT_KEY_DEFAULT_TTL_MINUTES: '5' })
      await client.call(api.enrollmentKeys.create, { body: { name: 'old' } })
      clock.forward(10 * 60)
      const body = { name: 'new', expiresAt: new Date(Date.parse(clock()) + 60_000).toISOString() }
      await client.call(api.enrollmentKeys.create, { body })
      const names = async (expired: 'true' | 'false') =>
        (await client.call(api.enrollmentKeys.list, { query: { expired } })).data.map((one) => one.name)
      expect(await names('false')).toEqual(['new'])
      expect(await names('true')).toEqual(['old', 'bakery key'])
    })

    it('lists the machines it enrolled, newest first and within reach', async () => {
      const { service, client, clock, orgs, tokens } = await begin()
      const body = { name: 'many', maxUsage: 5 }
      const { id, key } = await client.call(api.enrollmentKeys.create, { body })
      for (const hostname of ['one', 'two', 'three']) {
        clock.forward(1)
        const enrolling = { enrollmentKey: key, ...machine, hostname }
        await service.client().call(api.agents.enroll, { body: enrolling })
      }
      const list = (query = {}) => client.call(api.enrollmentKeys.devices, { params: { id }, query })
      const { data, pagination } = await list()
      expect(data.map(({ hostname }) => hostname)).toEqual(['three', 'two', 'one'])
      expect(data[0]).toEqual({
        id: expect.any(String),
        orgId: orgs.bakery.id,
        siteId: null,
        hostname: 'three',
        osType: 'linux',
        status: 'online',
        enrolledAt: clock(),
        enrollmentIp: '127.0.0.1',
      })
      expect(pagination).toEqual({ page: 1, limit: 50, total: 3 })
      expect((await list({ page: 2, limit: 2 })).data.map(({ hostname }) => hostname)).toEqual(['one'])
      const stranger = service.client(tokens.garage).call(api.enrollmentKeys.devices, { params: { id } })
      await expect(stranger).rejects.toEqual(failing(404, 'not_found'))
    })

    it.each(['organizations', 'partners'] as const)(
      'enrolls no more machines than the cap of %s',
      async (table) => {
        const { service, client, orgs, partners } = await begin()
        const { key } = await client.call(api.enrollmentKeys.create, { body: { name: 'x', maxUsage: 9 } })
        const id = table === 'organizations' ? orgs.bakery.id : partners.acme
        // The organization already has one machine, the partner two.
        const max_devices = table === 'organizations' ? 3 : 4
        await service.storage.write((tx) =>
          tx.updateTable(table).set({ max_devices }).where('id', '=', id).execute(),
        )
        const results = await Promise.allSettled(
          Array.from({ length: 6 }, () =>
            service.client().call(api.agents.enroll, { body: { enrollmentKey: key, ...machine } }),
          ),
        )
        expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
        for (const one of results) {
          if (one.status === 'rejected') expect(one.reason).toEqual(failing(403, 'device_limit_reached'))
        }
      },
    )

    it('of a site is invisible to members of other sites, who can create keys for theirs only', async () => {
      const { service, client, orgs } = await begin()
      const other = await client.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Annex' } })
      const token = await addOrgUser(service, 'narrow', orgs.bakery.id, { siteIds: [other.id] })
      const narrow = service.client(token)
      const params = { id: orgs.bakery.keyId }
      await expect(narrow.call(api.enrollmentKeys.show, { params })).rejects.toEqual(
        failing(404, 'not_found'),
      )
      const remove = narrow.call(api.enrollmentKeys.remove, { params })
      await expect(remove).rejects.toEqual(failing(404, 'not_found'))
      const anywhere = narrow.call(api.enrollmentKeys.create, { body: { name: 'anywhere' } })
      await expect(anywhere).rejects.toEqual(failing(403, 'site_access_denied'))
      await narrow.call(api.enrollmentKeys.create, { body: { name: 'annex', siteId: other.id } })
      const build = narrow.call(api.sites.create, { body: { orgId: orgs.bakery.id, name: 'Mine' } })
      await expect(build).rejects.toEqual(failing(403, 'site_access_denied'))
      expect((await narrow.call(api.sites.list)).data.map((site) => site.name)).toEqual(['Annex'])
      expect((await narrow.call(api.devices.list)).data).toEqual([])
    })

    it('cannot be handled by restricted members who would not see its devices', async () => {
      const { service, client, orgs } = await begin()
      const { id: orgId, siteId, deviceId } = orgs.bakery
      const group = await addGroup(service, orgId, 'counter', [deviceId])
      const everywhere = await client.call(api.enrollmentKeys.create, { body: { name: 'all' } })
      const atSite = await client.call(api.enrollmentKeys.create, { body: { name: 'shop', siteId } })
      const denied = failing(403, 'site_access_denied')
      const tokens = {
        sites: await addOrgUser(service, 'of-site', orgId, { siteIds: [siteId] }),
        groups: await addOrgUser(service, 'of-group', orgId, { groupIds: [group] }),
        both: await addOrgUser(service, 'of-both', orgId, { siteIds: [siteId], groupIds: [group] }),
      }
      for (const [who, token] of Object.entries(tokens)) {
        const narrow = service.client(token)
        const acts = (id: string, body: { name: string; siteId?: string }) => [
          () => narrow.call(api.enrollmentKeys.create, { body }),
          () => narrow.call(api.enrollmentKeys.rotate, { params: { id }, body: {} }),
          () => narrow.call(api.enrollmentKeys.remove, { params: { id } }),
        ]
        for (const act of acts(everywhere.id, { name: 'mine' }))
          await expect(act(), who).rejects.toEqual(denied)
        if (who === 'sites') continue
        for (const act of acts(atSite.id, { name: 'mine', siteId }))
          await expect(act(), who).rejects.toEqual(denied)
      }
      const { data } = await client.call(api.enrollmentKeys.list)
      expect(data.map(({ name }) => name)).not.toContain('mine')
      // Neither key was removed or replaced meanwhile.
      for (const [n, { key: enrollmentKey }] of [everywhere, atSite].entries()) {
        const body = { ...machine, hostname: `pc-${n}`, enrollmentKey }
        await service.client().call(api.agents.enroll, { body })
      }
      const own = service.client(tokens.sites)
      const { id } = await own.call(api.enrollmentKeys.create, { body: { name: 'mine', siteId } })
      await own.call(api.enrollmentKeys.rotate, { params: { id }, body: {} })
      await own.call(api.enrollmentKeys.remove, { params: { id } })
    })
  })
})

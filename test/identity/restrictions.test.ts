import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { findUserByEmail } from '../../src/identity/store.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { addGroup, addOrgUser, buildWorld, type World } from '../world.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  let service: TestService
  let world: World
  let annex: string
  /** Devices of the bakery by hostname: bakery-pc and till at its site, oven in the annex, van at no site. */
  let ids: Record<string, string>
  let counter: string

  beforeEach(async () => {
    service = await startService(open)
    world = await buildWorld(service)
    const { bakery } = world.orgs
    const system = service.client(world.tokens.system)
    annex = (await system.call(api.sites.create, { body: { orgId: bakery.id, name: 'Annex' } })).id
    const enroll = async (hostname: string, siteId?: string) => {
      const body = { orgId: bakery.id, name: hostname, ...(siteId !== undefined && { siteId }) }
      const { key } = await system.call(api.enrollmentKeys.create, { body })
      const machine = {
        osType: 'linux',
        osVersion: '12',
        architecture: 'x64',
        agentVersion: '0.1.0',
      } as const
      const enrolled = await service
        .client()
        .call(api.agents.enroll, { body: { enrollmentKey: key, hostname, ...machine } })
      return enrolled.deviceId
    }
    ids = {
      'bakery-pc': bakery.deviceId,
      till: await enroll('till', bakery.siteId),
      oven: await enroll('oven', annex),
      van: await enroll('van'),
    }
    counter = await addGroup(service, bakery.id, 'counter', [ids.till!, ids.oven!])
  })

  const idOf = async (name: string) =>
    (await findUserByEmail(service.storage.read, `${name}@example.com`))!.id

  /** The devices that a member sees, checked in the list, its total, a search and one by one. */
  const seenBy = async (token: string) => {
    const client = service.client(token)
    const { data, pagination } = await client.call(api.devices.list)
    const listed = data.map(({ hostname }) => hostname)
    expect(pagination.total).toBe(listed.length)
    const found = await client.call(api.devices.list, { query: { search: 'e' } })
    expect(listed).toEqual(expect.arrayContaining(found.data.map(({ hostname }) => hostname)))
    const page = await client.call(api.devices.list, { query: { limit: 1, page: 2 } })
    expect(page.pagination.total).toBe(listed.length)
    for (const [hostname, id] of Object.entries(ids)) {
      const shown = client.call(api.devices.show, { params: { id } })
      if (listed.includes(hostname)) await expect(shown).resolves.toMatchObject({ hostname })
      else await expect(shown).rejects.toEqual(failing(404, 'not_found'))
    }
    return listed
  }

  const member = (name: string, reach: { siteIds?: string[]; groupIds?: string[] }) =>
    addOrgUser(service, name, world.orgs.bakery.id, reach)

  describe('a member', () => {
    it.each([
      ['without a limit sees every device', undefined, undefined, ['bakery-pc', 'oven', 'till', 'van']],
      ['of one site sees the devices of that site', ['site'], undefined, ['bakery-pc', 'till']],
      ['of one group sees the devices of that group', undefined, ['counter'], ['oven', 'till']],
      ['of a site and a group sees what is in both', ['site'], ['counter'], ['till']],
      ['of another site and a group sees what is in both', ['annex'], ['counter'], ['oven']],
      [
        'of two groups sees the devices of both',
        undefined,
        ['counter', 'own'],
        ['bakery-pc', 'oven', 'till'],
      ],
      ['of no group sees no device', undefined, [], []],
      ['of no site sees no device', [], undefined, []],
    ])('%s', async (_what, sites, groups, seen) => {
      const { bakery } = world.orgs
      const known: Record<string, string> = {
        site: bakery.siteId,
        annex,
        counter,
        own: bakery.groupId,
      }
      const idsOf = (names: string[]) => names.map((name) => known[name]!)
      const token = await member('narrow', {
        ...(sites && { siteIds: idsOf(sites) }),
        ...(groups && { groupIds: idsOf(groups) }),
      })
      // More than once: a statement prepared for one scope must not serve another.
      expect(await seenBy(world.tokens.bakery)).toEqual(['bakery-pc', 'oven', 'till', 'van'])
      expect(await seenBy(token)).toEqual(seen)
      expect(await seenBy(world.tokens.bakery)).toEqual(['bakery-pc', 'oven', 'till', 'van'])
      expect(await seenBy(token)).toEqual(seen)
    })

    it('has changed restrictions from the next request on', async () => {
      const token = await member('moving', {})
      const params = { id: await idOf('moving') }
      const { bakery } = world.orgs
      const bakeryAdmin = service.client(world.tokens.bakery)
      const change = (body: object) => bakeryAdmin.call(api.users.changeAccess, { params, body })
      expect(await change({ siteIds: [annex] })).toMatchObject({ siteIds: [annex], deviceGroupIds: null })
      expect(await seenBy(token)).toEqual(['oven'])
      const both = await change({ deviceGroupIds: [counter] })
      expect(both).toMatchObject({ siteIds: [annex], deviceGroupIds: [counter] })
      await change({ siteIds: null })
      expect(await seenBy(token)).toEqual(['oven', 'till'])
      await change({ deviceGroupIds: [] })
      expect(await seenBy(token)).toEqual([])
      expect(await change({ deviceGroupIds: null })).toMatchObject({ siteIds: null, deviceGroupIds: null })
      expect(await seenBy(token)).toHaveLength(4)
      await expect(change({})).rejects.toMatchObject({ status: 400, message: 'No updates provided' })
      const { garage } = world.orgs
      for (const [body, path] of [
        [{ siteIds: [bakery.siteId, garage.siteId] }, 'body.siteIds.1'],
        [{ deviceGroupIds: [garage.groupId] }, 'body.deviceGroupIds.0'],
        [{ orgAccess: 'all' }, 'body.orgAccess'],
      ] as const) {
        await expect(change(body)).rejects.toMatchObject({ status: 400, details: [{ path }] })
      }
    })

    it('with restrictions cannot change members with fewer, or grant more than their own', async () => {
      const token = await member('narrow', { groupIds: [counter] })
      await member('peer', { groupIds: [counter] })
      await member('wide', {})
      const narrow = service.client(token)
      const limited = failing(403, 'site_access_denied')
      const params = { id: await idOf('wide') }
      await expect(narrow.call(api.users.remove, { params })).rejects.toEqual(limited)
      const rename = narrow.call(api.users.change, { params, body: { name: 'x' } })
      await expect(rename).rejects.toEqual(limited)
      const peer = { id: await idOf('peer') }
      const widen = narrow.call(api.users.changeAccess, { params: peer, body: { deviceGroupIds: null } })
      await expect(widen).rejects.toEqual(limited)
      await narrow.call(api.users.remove, { params: peer })
    })

    it('of a partner reaches the selected organizations from the next request on', async () => {
      const acme = service.client(world.tokens.acme)
      const params = { id: await idOf('acme-none') }
      const { bakery, garage, harbor } = world.orgs
      const seen = async () =>
        (await service.client(world.tokens.acmeNone).call(api.orgs.list)).data.map(({ name }) => name)
      const change = (body: object) => acme.call(api.users.changeAccess, { params, body })
      expect(await seen()).toEqual([])
      await change({ orgAccess: 'selected', orgIds: [garage.id] })
      expect(await seen()).toEqual(['garage'])
      await change({ orgIds: [bakery.id, garage.id] })
      expect(await seen()).toEqual(['bakery', 'garage'])
      await expect(change({ orgIds: [harbor.id] })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.orgIds.0' }],
      })
      expect(await change({ orgAccess: 'all' })).toMatchObject({ orgAccess: 'all', orgIds: null })
      expect(await seen()).toEqual(['bakery', 'garage'])
      await change({ orgAccess: 'none' })
      expect(await seen()).toEqual([])
    })
  })
})

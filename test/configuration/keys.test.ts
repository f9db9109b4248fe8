import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { addSeconds } from '../../src/core/time.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addRole, buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const made = 'is not there, or has ended, and files make none: a key is shown once'

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const bakery = by(world.tokens.bakery)
    const mint = (name: string, expiresAt: string | null = null) =>
      bakery.client.call(api.apiKeys.create, { body: { name, scopes: ['devices:read'], expiresAt } })
    const enroll = (name: string, more = {}) =>
      bakery.client.call(api.enrollmentKeys.create, { body: { name, maxUsage: 5, ...more } })
    const { siteId } = world.orgs.bakery
    return { clock, service, world, by, bakery, mint, enroll, siteId }
  }

  describe('keys in files', () => {
    it('are taken over, changed and ended as the files say, each with its audit entry', async () => {
      const { service, bakery, mint, enroll, siteId, clock } = await start()
      const [key, door] = [await mint('Export'), await enroll('Door', { siteId })]
      const files = {
        apiKeys: [{ name: 'Export', scopes: ['sites:read', 'devices:read'], rateLimit: 50 }],
        enrollmentKeys: [
          {
            name: 'Front door',
            renamedFrom: 'Door',
            maxUsage: 9,
            expiresAt: addSeconds(clock(), 900),
          },
        ],
      }
      await expect(bakery.plan(files)).rejects.toMatchObject({
        details: [
          { message: expect.stringContaining('--adopt') },
          { message: expect.stringContaining('--adopt') },
        ],
      })
      const news = await newEntries(service)
      const { changes } = await bakery.apply(files, { adopt: true })
      expect(changes).toMatchObject([
        { action: 'adopt', section: 'apiKeys', id: key.id },
        {
          action: 'update',
          section: 'apiKeys',
          after: { rateLimit: 50, scopes: ['devices:read', 'sites:read'] },
        },
        { action: 'adopt', section: 'enrollmentKeys', id: door.id },
        { action: 'update', section: 'enrollmentKeys', renamedFrom: 'Door', before: { maxUsage: 5 } },
      ])
      expect((await bakery.plan(files)).changes).toEqual([])
      const params = { id: key.id }
      expect(await bakery.client.call(api.apiKeys.show, { params })).toMatchObject({ rateLimit: 50 })
      // The key itself is what it was.
      const owner = service.client(undefined, { 'x-api-key': key.key })
      expect((await owner.call(api.auth.caller)).kind).toBe('api_key')

      const gone = await bakery.apply({ apiKeys: [], enrollmentKeys: [] }, { prune: true })
      expect(gone.changes).toMatchObject([
        { action: 'delete', section: 'enrollmentKeys', name: 'Front door' },
        { action: 'delete', section: 'apiKeys', name: 'Export' },
      ])
      expect(await bakery.client.call(api.apiKeys.show, { params })).toMatchObject({ status: 'revoked' })
      await expect(owner.call(api.auth.caller)).rejects.toMatchObject({ code: 'api_key_revoked' })
      const entries = (await news()).filter(({ action }) => !action.startsWith('config.'))
      expect(entries.map(({ action, resourceName }) => [action, resourceName])).toEqual([
        ['api_key.update', 'Export'],
        ['enrollment_key.update', 'Front door'],
        ['enrollment_key.delete', 'Front door'],
        ['api_key.revoke', 'Export'],
      ])
    })

    it('are made by no file, and what is fixed when they are made is changed by none', async () => {
      const { bakery, mint } = await start()
      await mint('Export')
      const later = { name: 'Export', expiresAt: '2027-01-01' }
      await expect(
        bakery.plan(
          {
            apiKeys: [later, { name: 'New' }],
            enrollmentKeys: [{ name: 'New' }, { name: 'bakery key', site: 'bakery site' }],
          },
          { adopt: true },
        ),
      ).rejects.toMatchObject({
        status: 400,
        details: [
          { path: 'body.document.apiKeys.0.expiresAt', message: 'cannot be changed by a file' },
          { path: 'body.document.apiKeys.1', message: expect.stringContaining(made) },
          { path: 'body.document.enrollmentKeys.0', message: expect.stringContaining(made) },
          { path: 'body.document.enrollmentKeys.1.site', message: expect.any(String) },
        ],
      })
    })

    it('are let be once they have expired as a file says, and are at fault where none says so', async () => {
      const { bakery, mint, clock } = await start()
      const expiresAt = addSeconds(clock(), 600)
      await mint('Short', expiresAt)
      const says = { apiKeys: [{ name: 'Short', expiresAt }] }
      await bakery.apply(says, { adopt: true })
      clock.forward(601)
      expect(await bakery.plan(says, { prune: true })).toMatchObject({ changes: [], left: [] })
      await expect(bakery.plan({ apiKeys: [{ name: 'Short' }] })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining(made) }],
      })
      expect((await bakery.exported()).document.apiKeys!.map(({ name }) => name)).toEqual(['bakery api key'])
    })

    it('are exported without the key, and then nothing is left to do', async () => {
      const { bakery, enroll } = await start()
      const { key } = await enroll('Door')
      const { document, uncovered } = await bakery.exported()
      expect(JSON.stringify(document)).not.toContain(key)
      expect(document.enrollmentKeys!.map(({ name }) => name).toSorted()).toEqual(['Door', 'bakery key'])
      expect(Object.keys(document.apiKeys![0]!)).toEqual(
        expect.arrayContaining(['name', 'scopes', 'rateLimit']),
      )
      const { apiKeys, enrollmentKeys } = document
      const { changes } = await bakery.apply(
        { apiKeys: apiKeys!, enrollmentKeys: enrollmentKeys! },
        { adopt: true },
      )
      expect(new Set(changes.map(({ action }) => action))).toEqual(new Set(['adopt']))
      expect(uncovered.map(({ what }) => what)).toEqual(
        expect.arrayContaining(['new apiKeys', 'new enrollmentKeys']),
      )
    })

    it('come back by no rollback, which says so; their limits do', async () => {
      const { bakery, mint, enroll } = await start()
      await mint('Export')
      await enroll('Door')
      await bakery.apply(
        { apiKeys: [{ name: 'Export' }], enrollmentKeys: [{ name: 'Door' }] },
        { adopt: true },
      )
      const { applyId } = await bakery.apply(
        { apiKeys: [], enrollmentKeys: [{ name: 'Door', maxUsage: 7 }] },
        { prune: true },
      )
      const params = { id: applyId }
      const plan = await bakery.client.call(api.configurationApplies.plan, { params, body: {} })
      expect(plan.lost).toMatchObject([
        { section: 'apiKeys', name: 'Export', reason: expect.stringContaining('shown once') },
      ])
      expect(plan.changes).toMatchObject([
        { action: 'update', section: 'enrollmentKeys', name: 'Door', after: { maxUsage: 5 } },
      ])
    })

    it('get no scope that the applier does not hold', async () => {
      const { service, world, by, bakery, mint } = await start()
      await mint('Export')
      const { id } = world.orgs.bakery
      const held = ['config:read', 'config:apply', 'organizations:read', 'organizations:write']
      const role = await addRole(service, id, 'Applier', held)
      const applier = by(await addOrgUser(service, 'applier', id, { role }))
      const wider = { apiKeys: [{ name: 'Export', scopes: ['devices:execute'] }] }
      expect((await applier.plan(wider, { adopt: true })).changes).toMatchObject([
        { action: 'adopt', refused: null },
        { action: 'update', refused: expect.stringContaining('devices:execute') },
      ])
      await expect(applier.apply(wider, { adopt: true })).rejects.toMatchObject({ status: 403 })
      expect((await bakery.plan(wider, { adopt: true })).totals).toMatchObject({ refused: 0 })
    })

    it('of another tenant are neither seen nor touched', async () => {
      const { by, world } = await start()
      const globex = by(world.tokens.globex)
      const { document } = await globex.exported()
      for (const section of ['apiKeys', 'enrollmentKeys'])
        expect(document[section]!.map(({ org }) => org)).toEqual(['harbor'])
      await expect(
        globex.plan({ apiKeys: [{ org: 'bakery', name: 'bakery api key' }] }, { adopt: true }),
      ).rejects.toMatchObject({ status: 400 })
    })
  })

  describe('an enrollment key', () => {
    it('is changed without another key or count, and not when it has expired', async () => {
      const { bakery, enroll, clock, service } = await start()
      const { key, ...door } = await enroll('Door')
      const machine = { ...api.agents.enroll.example, enrollmentKey: key }
      await service.client().call(api.agents.enroll, { body: machine })
      const change = (body: object) =>
        bakery.client.call(api.enrollmentKeys.update, { params: { id: door.id }, body })
      const expiresAt = addSeconds(clock(), 600)
      expect(await change({ maxUsage: null, expiresAt })).toMatchObject({
        name: 'Door',
        usageCount: 1,
        maxUsage: null,
        expiresAt,
      })
      await service.client().call(api.agents.enroll, { body: { ...machine, hostname: 'other' } })
      await expect(change({ expiresAt: '2020-01-01' })).rejects.toMatchObject({ status: 400 })
      clock.forward(601)
      await expect(change({ expiresAt: addSeconds(clock(), 600) })).rejects.toMatchObject({
        status: 400,
        message: expect.stringContaining('rotate it'),
      })
    })
  })
})

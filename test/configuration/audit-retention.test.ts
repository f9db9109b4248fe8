import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addPartnerUser, addRole, buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

const florist = { slug: 'florist', name: 'Florist' }
const kept = (retentionDays: number) => ({
  organizations: [{ ...florist, auditRetention: { retentionDays } }],
})

inTurn((open) => {
  const begin = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const acme = by(world.tokens.acme)
    const orgId = async () =>
      (await acme.client.call(api.orgs.page, { query: { limit: 100 } })).data.find(
        ({ slug }) => slug === 'florist',
      )!.id
    const retention = async () => {
      const query = { orgId: await orgId() }
      const { retentionDays, archiveToS3 } = await acme.client.call(api.auditRetention.show, { query })
      return { retentionDays, archiveToS3 }
    }
    return { service, world, by, acme, orgId, retention }
  }

  describe('the retention of audit logs in files', () => {
    it('is a change of its own, also of an organization that the same files make', async () => {
      const { service, acme, retention, orgId } = await begin()
      const news = await newEntries(service)
      const plan = await acme.plan(kept(730))
      expect(plan.changes).toMatchObject([
        { action: 'create', section: 'organizations', name: 'florist' },
        {
          action: 'update',
          section: 'organizations',
          before: { auditRetention: { retentionDays: 365 } },
          after: { auditRetention: { retentionDays: 730 } },
        },
      ])
      expect((await acme.apply(kept(730))).changes).toEqual(plan.changes)
      expect(await retention()).toEqual({ retentionDays: 730, archiveToS3: false })
      const entry = (await news()).find(({ action }) => action === 'audit.retention.update')
      expect(entry).toMatchObject({ resourceId: await orgId(), orgId: await orgId() })
      expect((await acme.plan(kept(730))).changes).toEqual([])
      // What no file names stays as it is.
      expect((await acme.plan({ organizations: [florist] })).changes).toEqual([])
    })

    it('is refused where the single call refuses it', async () => {
      const { acme } = await begin()
      await expect(acme.plan(kept(0))).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.document.organizations.0.auditRetention.retentionDays' }],
      })
      const archived = { organizations: [{ ...florist, auditRetention: { archiveToS3: true } }] }
      await expect(acme.plan(archived)).rejects.toMatchObject({
        details: [
          {
            path: 'body.document.organizations.0.auditRetention.archiveToS3',
            message: expect.stringContaining('AUDIT_ARCHIVE_S3_BUCKET'),
          },
        ],
      })
    })

    it('is exported, and comes back with what is rolled back, also an organization that was deleted', async () => {
      const { acme, retention } = await begin()
      await acme.apply(kept(730))
      const { document, uncovered } = await acme.exported()
      expect(document.organizations).toContainEqual(
        expect.objectContaining({
          slug: 'florist',
          auditRetention: { retentionDays: 730, archiveToS3: false },
        }),
      )
      expect(uncovered.map(({ what }) => what)).toContain('auditHolds')
      const rollBack = async (id: string) => {
        const about = { params: { id }, body: {} }
        const { version } = await acme.client.call(api.configurationApplies.plan, about)
        return acme.client.call(api.configurationApplies.rollback, { ...about, body: { version } })
      }
      const { applyId } = await acme.apply(kept(90))
      await rollBack(applyId)
      expect(await retention()).toMatchObject({ retentionDays: 730 })
      // The files do not name it, and it is kept all the same.
      const gone = await acme.apply({ organizations: [] }, { prune: true })
      await rollBack(gone.applyId)
      expect(await retention()).toMatchObject({ retentionDays: 730 })
    })

    it('stands in the way of a rollback that would lose what somebody has set since', async () => {
      const { acme, orgId } = await begin()
      await acme.apply(kept(730))
      const { applyId } = await acme.apply(kept(90))
      const query = { orgId: await orgId() }
      await acme.client.call(api.auditRetention.change, { query, body: { retentionDays: 91 } })
      await expect(
        acme.client.call(api.configurationApplies.plan, { params: { id: applyId }, body: {} }),
      ).rejects.toMatchObject({
        status: 409,
        message: expect.stringContaining('auditRetention changed since'),
      })
    })

    it('is named by nobody who may not read it, and leaves the plans of others as they are', async () => {
      const { service, world, by, acme } = await begin()
      await acme.apply(kept(730))
      const held = ['config:read', 'config:apply', 'organizations:read', 'organizations:write']
      const role = await addRole(service, { partnerId: world.partners.acme }, 'Applier', held)
      const applier = by(await addPartnerUser(service, 'applier', world.partners.acme, 'all', role))
      await expect(applier.plan(kept(90))).rejects.toMatchObject({
        status: 403,
        message: expect.stringContaining('organizations.auditRetention'),
      })
      const renamed = { organizations: [{ ...florist, name: 'Flowers' }] }
      const { version } = await applier.plan(renamed)
      expect(version).toBe((await acme.plan(renamed)).version)
      const { document } = await applier.exported()
      expect(document.organizations!.some((one) => 'auditRetention' in one)).toBe(false)
    })

    it('names who has set it', async () => {
      const { service, world, by, acme, orgId } = await begin()
      await acme.apply(kept(730))
      const other = by(await addPartnerUser(service, 'other', world.partners.acme, 'all', 'Partner Admin'))
      const query = { orgId: await orgId() }
      await other.client.call(api.auditRetention.change, { query, body: { retentionDays: 30 } })
      const body = { document: kept(730), culprits: true }
      const { changes } = await acme.client.call(api.configuration.plan, { body })
      expect(changes).toMatchObject([
        {
          action: 'update',
          culprits: [{ field: 'auditRetention', by: 'other@example.com', action: 'audit.retention.update' }],
        },
      ])
    })
  })
})

import { describe, expect, it } from 'vitest'
import type { AppliedChange } from '../../src/configuration/history/applied-changes.ts'
import { insertApply } from '../../src/configuration/history/store.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { newId } from '../../src/core/new-id.ts'
import { inTurn } from '../databases.ts'
import { testSecrets } from '../harness.ts'
import { script, startWithHistory } from './history-fixture.ts'

const org = 'bakery'

inTurn((open) => {
  describe('a rollback', () => {
    it('deletes nothing without prune, and no more than it allows', async () => {
      const { acme } = await startWithHistory(open)
      const sites = ['A', 'B', 'C'].map((name) => ({ org, name }))
      const { applyId } = await acme.apply({ sites })
      const kept = await acme.planBack(applyId, { prune: false })
      expect(kept).toMatchObject({ changes: [], totals: { left: 3 } })
      expect(kept.left.map(({ name }) => name)).toEqual(['A', 'B', 'C'])
      const one = await acme.planBack(applyId, { prune: true })
      expect(one.changes.map(({ refused }) => refused)).toEqual(
        Array(3).fill(expect.stringContaining('--prune-limit 3 allows it')),
      )
      await expect(acme.rollBack(applyId, undefined, { prune: true })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.pruneLimit', message: expect.stringContaining('--prune-limit 3') }],
      })
      expect((await acme.rollBack(applyId, undefined, { prune: true, pruneLimit: 3 })).totals.delete).toBe(3)
    })

    it('reads every kind of the tenant only to delete what the apply made', async () => {
      const { service, world, acme } = await startWithHistory(open)
      await acme.apply({ scripts: [{ name: 'Clean', ...script }] })
      const { applyId } = await acme.apply({
        scripts: [
          { name: 'Clean', ...script, content: 'false\n' },
          { name: 'New', ...script },
        ],
      })
      const now = new Date().toISOString()
      const row = { org_id: world.orgs.bakery.id, conditions: '{}', created_at: now, updated_at: now }
      // Together more than a plan may hold.
      const description = 'x'.repeat(8 * 1024 * 1024)
      await service.storage.write(async (tx) => {
        for (let n = 0; n < 9; n += 1) {
          const filter = { ...row, id: newId(), name: `${n}`, description, created_by: 'x' }
          await tx.insertInto('saved_filters').values(filter).execute()
        }
      })
      expect((await acme.planBack(applyId, { prune: false })).totals).toMatchObject({ update: 1, left: 1 })
      // As a plan of files with filters.
      const tooMany = {
        status: 400,
        message: expect.stringContaining('there are too many filters for one plan'),
      }
      await expect(acme.plan({ filters: [] })).rejects.toMatchObject(tooMany)
      await expect(acme.planBack(applyId)).rejects.toMatchObject(tooMany)
    })
  })

  describe('the history', () => {
    it('counts what ends with a deleted object among the changes of one apply', async () => {
      const { service, acme } = await startWithHistory(open)
      const files = {
        organizations: [{ slug: 'florist', name: 'Florist' }],
        memberships: [{ org: 'florist', email: 'ada@example.com', name: 'Ada', role: 'Org Admin' }],
      }
      await acme.apply(files)
      const { read, write } = service.storage
      const [first] = await read
        .selectFrom('config_objects')
        .selectAll()
        .where('section', '=', 'memberships')
        .execute()
      await write(async (tx) => {
        const membership = await tx
          .selectFrom('organization_memberships')
          .selectAll()
          .where('id', '=', first!.object_id)
          .executeTakeFirstOrThrow()
        const user = await tx
          .selectFrom('users')
          .selectAll()
          .where('id', '=', membership.user_id)
          .executeTakeFirstOrThrow()
        for (let n = 0; n < 999; n += 1) {
          const [id, userId, email] = [newId(), newId(), `ada${n}@example.com`]
          await tx
            .insertInto('users')
            .values({ ...user, id: userId, email, email_key: email })
            .execute()
          await tx
            .insertInto('organization_memberships')
            .values({ ...membership, id, user_id: userId })
            .execute()
          await tx
            .insertInto('config_objects')
            .values({ ...first!, object_id: id })
            .execute()
        }
      })
      await expect(
        acme.plan({ organizations: [], memberships: [] }, { prune: true, pruneLimit: 1000 }),
      ).rejects.toMatchObject({
        status: 400,
        message: expect.stringContaining('would make 1001 changes'),
      })
    })

    it('makes no texts of what is beyond the bound of one apply', async () => {
      const { service, world } = await startWithHistory(open)
      const partnerId = world.partners.acme
      let written = 0
      const content = {
        toJSON() {
          written += 1
          return 'x'.repeat(1024 * 1024)
        },
      }
      const change: AppliedChange = {
        section: 'scripts',
        action: 'create',
        id: newId(),
        orgId: null,
        key: 'Clean',
        nameInFiles: 'Clean',
        before: null,
        after: { content },
        ids: { before: {}, after: {} },
        withheld: [],
      }
      const apply = {
        id: newId(),
        set: 'default',
        revision: null,
        rollsBack: null,
        by: 'x',
        now: '2026-01-01T00:00:00.000Z',
      }
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      await service.storage.write((tx) =>
        insertApply(tx, cipher, { partnerId, orgId: null }, apply, {
          applied: Array(20).fill(change),
          nameChanges: [],
        }),
      )
      expect(written).toBe(8)
      const kept = await service.storage.read.selectFrom('config_changes').select('content').execute()
      expect(kept).toEqual(Array(20).fill({ content: null }))
    })
  })
})

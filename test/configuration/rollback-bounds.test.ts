import { describe, expect, it } from 'vitest'
import { newId } from '../../src/core/new-id.ts'
import { onEveryDatabase } from '../databases.ts'
import { script, startWithHistory } from './history-stage.ts'

const org = 'bakery'

onEveryDatabase((_, open) => {
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
})

import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openStorage } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

onEveryDatabase((kind, open) => {
  describe('what a signed-in person may do', () => {
    it('follows the database at once, also when another process changed it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const { dataDir, databaseUrl } = service
      const other = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
      const list = () => service.client(tokens.acmeBakery).call(api.orgs.list)
      expect((await list()).data).toHaveLength(1)
      expect((await list()).data).toHaveLength(1)
      await other.write((tx) =>
        tx.deleteFrom('partner_membership_orgs').where('org_id', '=', orgs.bakery.id).execute(),
      )
      expect((await list()).data).toEqual([])
      await other.write((tx) => tx.updateTable('roles').set({ force_mfa: 1 }).execute())
      await other.write((tx) => tx.updateTable('users').set({ mfa_method: null }).execute())
      await expect(list()).rejects.toMatchObject({ status: 428, code: 'mfa_enrollment_required' })
      await other.write((tx) => tx.updateTable('users').set({ status: 'disabled' }).execute())
      await expect(list()).rejects.toMatchObject({ status: 403, code: 'account_inactive' })
      await other.close()
    })

    it('is known anew after every commit', async () => {
      const { storage, dataDir, databaseUrl } = await open()
      if (kind === 'postgres') return expect(storage.version()).toBeUndefined()
      const other = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
      const seen = [storage.version()]
      for (const writer of [storage, other, storage]) {
        await writer.write((tx) => tx.insertInto('outbox').values({ chain: 'x', entry: '{}' }).execute())
        seen.push(storage.version())
        expect(storage.version()).toBe(seen.at(-1))
      }
      await other.close()
      expect(new Set(seen).size).toBe(4)
    })
  })
})

import { describe, expect, it } from 'vitest'
import { listPending, recordAudit } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import type { Scope } from '../../src/core/scope.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { happening } from './rows.ts'

inTurn((open) => {
  describe('entries that wait to be sealed', () => {
    it('are read by the transaction that adds them, each by who sees its chain', async () => {
      const service = await startService(open)
      const { orgs } = await buildWorld(service)
      const { storage } = service
      const now = '2026-03-01T12:00:00.000Z'
      const scopeOf = (orgId: string): Scope => ({
        kind: 'organization',
        orgId,
        siteIds: null,
        groupIds: null,
      })
      const add = (names: string[]) =>
        storage.write(async (tx) => {
          for (const name of names)
            for (const { id } of [orgs.bakery, orgs.harbor])
              await recordAudit(tx, toDraftEntry(happening(id, { resourceName: `${name} ${id}` }), now))
          const pending = await listPending(tx, scopeOf(orgs.bakery.id), 100)
          return pending.map(({ resource, orgId }) => [resource.name, orgId])
        })
      // Each chain has a head from now on.
      await add(['zero'])
      const { id } = orgs.bakery
      const found = await add(['one', 'two'])
      expect(found.slice(0, 2)).toEqual([
        [`two ${id}`, id],
        [`one ${id}`, id],
      ])
      expect(found.filter(([, orgId]) => orgId !== id)).toEqual([])
    })
  })
})

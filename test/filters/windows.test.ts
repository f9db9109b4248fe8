import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import type { Condition } from '../../src/filters/contract.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { buildWorld } from '../world.ts'

onEveryDatabase((_, open) => {
  it('a window moves with the clock, and a preview returns its time', async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const { tokens } = await buildWorld(service)
    const client = service.client(tokens.bakery)
    const count = async (condition: Condition) => {
      const conditions = { operator: 'AND' as const, conditions: [condition] }
      const { data } = await client.call(api.filters.preview, { body: { conditions } })
      expect(data.evaluatedAt).toBe(clock())
      return data.totalCount
    }
    const value = { amount: 5, unit: 'minutes' as const }
    const fresh = { field: 'lastSeenAt', operator: 'withinLast', value }
    const stale = { field: 'lastSeenAt', operator: 'notWithinLast', value }
    const fewDays = { field: 'daysSinceLastSeen', operator: 'lessThan', value: 0.004 }
    expect([await count(fresh), await count(stale), await count(fewDays)]).toEqual([1, 0, 1])
    clock.forward(300)
    expect([await count(fresh), await count(stale), await count(fewDays)]).toEqual([1, 0, 1])
    clock.forward(60)
    expect([await count(fresh), await count(stale), await count(fewDays)]).toEqual([0, 1, 0])
  })

  it('a change of a filter is audited with the changed fields', async () => {
    const service = await startService(open)
    const { tokens, orgs } = await buildWorld(service)
    const call = { params: { id: orgs.bakery.filterId }, body: { name: 'Renamed', description: null } }
    await service.client(tokens.bakery).call(api.filters.update, call)
    await sealPending(service.storage)
    const { canonical } = await service.storage.read
      .selectFrom('audit_logs')
      .select('canonical')
      .where('action', '=', 'filter.update')
      .executeTakeFirstOrThrow()
    expect(JSON.parse(canonical)).toMatchObject({
      resourceId: orgs.bakery.filterId,
      resourceName: 'Renamed',
      details: { changedFields: ['name'] },
    })
  })
})

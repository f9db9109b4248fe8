import { expect, it } from 'vitest'
import { organizationScope, systemScope } from '../../src/core/scope.ts'
import type { ConditionGroup } from '../../src/filters/conditions/contract.ts'
import { previewFilter } from '../../src/filters/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { addOrganization, addPartner, deviceRow, now } from '../search/fleet.ts'

onEveryDatabase((_, open) => {
  it('a preview counts all matching devices and shows the first ones, for few or many matches', async () => {
    const { storage } = await open()
    const partnerId = await addPartner(storage)
    const [orgId, other] = [
      await addOrganization(storage, partnerId),
      await addOrganization(storage, partnerId),
    ]
    const names = Array.from({ length: 1100 }, (_, n) => `pc-${String((n * 7) % 1100).padStart(4, '0')}`)
    const rows = names.map((hostname, n) => deviceRow({ orgId: n % 2 === 0 ? orgId : other, hostname }))
    for (let n = 0; n < rows.length; n += 100) {
      await storage.write((tx) =>
        tx
          .insertInto('devices')
          .values(rows.slice(n, n + 100))
          .execute(),
      )
    }
    for (const scope of [systemScope, organizationScope(orgId)]) {
      const seen = scope === systemScope ? rows : rows.filter((row) => row.org_id === orgId)
      for (const text of ['pc-', 'pc-0', 'pc-05', 'pc-0500', 'pc-9']) {
        const conditions: ConditionGroup = {
          operator: 'AND',
          conditions: [{ field: 'hostname', operator: 'contains', value: text }],
        }
        const { data } = await previewFilter(storage.heavy, scope, conditions, { limit: 10, now })
        const wanted = seen.map(({ hostname }) => hostname).filter((it) => it.includes(text))
        expect(data.totalCount).toBe(wanted.length)
        expect(data.devices.map(({ hostname }) => hostname)).toEqual(wanted.sort().slice(0, 10))
      }
    }
  })
})

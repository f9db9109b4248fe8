import { expect, it } from 'vitest'
import { systemScope } from '../../src/core/scope.ts'
import { aggregatedTags } from '../../src/devices/changes.ts'
import type { ConditionGroup } from '../../src/filters/conditions/contract.ts'
import { previewFilter } from '../../src/filters/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { addOrganization, addPartner, deviceRow, now } from '../search/fleet.ts'

/** Tags that contain each other, or characters used in the stored list. */
const odd = [
  'prod',
  'production',
  'pre-prod',
  'Prod',
  'a',
  ',',
  'a,',
  ',a',
  'x"prod',
  '"prod"',
  '","',
  '["prod"',
  ',"prod"',
  'back\\slash',
  '\\',
  'x\\',
  '[',
  ']',
  '[]',
  'tab\there',
  'line\nbreak',
  '\u0001',
  '\u007f',
  'é',
  '\u2028',
  '😀',
  'a b',
]

onEveryDatabase((_, open) => {
  it('tags of any spelling are matched exactly', async () => {
    const { storage } = await open()
    const orgId = await addOrganization(storage, await addPartner(storage))
    // Each tag alone, and between its neighbors.
    const fleet = odd.flatMap((tag, n) => [
      [tag],
      [odd[(n + 1) % odd.length]!, tag, odd[(n + 5) % odd.length]!].sort(),
    ])
    const devices = [[], ...fleet].map((tags, n) => {
      const row = deviceRow({ orgId, hostname: `pc-${String(n).padStart(3, '0')}` })
      return { row, tags: [...new Set(tags)] }
    })
    await storage.write(async (tx) => {
      for (const { row, tags } of devices) {
        await tx.insertInto('devices').values(row).execute()
        const rows = tags.map((tag) => ({ device_id: row.id, tag }))
        if (rows.length > 0) await tx.insertInto('device_tags').values(rows).execute()
      }
      await tx.updateTable('devices').set({ tags: aggregatedTags }).execute()
    })
    const check = async (operator: 'hasAny' | 'hasAll', value: string[]) => {
      const conditions: ConditionGroup = { operator: 'AND', conditions: [{ field: 'tags', operator, value }] }
      const { data } = await previewFilter(storage.heavy, systemScope, conditions, { limit: 100, now })
      const wanted = devices.filter(({ tags }) =>
        operator === 'hasAny'
          ? value.some((it) => tags.includes(it))
          : value.every((it) => tags.includes(it)),
      )
      const names = wanted.map(({ row }) => row.hostname)
      expect({ operator, value, found: data.devices.map(({ hostname }) => hostname) }).toEqual({
        operator,
        value,
        found: names,
      })
    }
    for (const [n, tag] of odd.entries()) {
      const next = odd[(n + 1) % odd.length]!
      await check('hasAny', [tag])
      await check('hasAny', [tag, next])
      await check('hasAll', [tag, next])
    }
    await check('hasAll', ['prod', 'nobody has this'])
    await check(
      'hasAny',
      Array.from({ length: 20 }, (_, n) => (n === 7 ? 'prod' : `tag ${n}`)),
    )
  })
})

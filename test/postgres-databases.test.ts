import { sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { openMigrated } from './databases.ts'

const names = async () => {
  const [one, two] = [await openMigrated('postgres'), await openMigrated('postgres')]
  await Promise.all([one.close(), two.close()])
  return [one.databaseUrl, two.databaseUrl]
}

describe('a test database of Postgres', () => {
  it('belongs to one test, also when it is closed twice', async () => {
    const first = await openMigrated('postgres')
    await first.close()
    await first.close()
    const [one, two] = await names()
    expect(one).not.toBe(two)
  })

  it('is used again without its rows', async () => {
    const first = await openMigrated('postgres')
    const { storage, databaseUrl } = first
    await storage.write(async (tx) => {
      await tx.updateTable('probes').set({ at: 'now' }).execute()
      await tx.insertInto('probes').values({ id: 2, at: 'now' }).execute()
    })
    await first.close()
    const next = await openMigrated('postgres')
    expect(next.databaseUrl).toBe(databaseUrl)
    expect(await next.storage.read.selectFrom('probes').selectAll().execute()).toEqual([{ id: 1, at: '' }])
    await next.close()
  })

  it('is not used again when its tables were changed', async () => {
    const first = await openMigrated('postgres')
    await first.storage.write((tx) => sql`alter table sites add column floor text`.execute(tx))
    await first.close()
    expect(await names()).not.toContain(first.databaseUrl)
  })
})

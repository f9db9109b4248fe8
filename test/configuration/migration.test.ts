import { expect, it } from 'vitest'
import { up } from '../../migrations/0076_names_in_files.ts'
import { api } from '../../src/api.ts'
import { type AnyDb, schemaFor } from '../../src/storage/columns.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { configurationOf } from './fixture.ts'

onEveryDatabase((kind, open) => {
  it('what a set owns already is called by its files as it is called now', async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const acme = configurationOf(service)(world.tokens.acme)
    const files = {
      organizations: [{ slug: 'garage', name: 'Garage' }],
      sites: [{ org: 'bakery', name: 'Shop' }],
      roles: [{ org: 'bakery', name: 'Night shift', permissions: ['devices:read'] }],
      memberships: [
        {
          org: 'bakery',
          email: 'new@bakery.example',
          renamedFrom: 'old@bakery.example',
          name: 'New',
          role: 'Night shift',
        },
      ],
    }
    await acme.apply(files, { adopt: true })
    const names = async () =>
      service.storage.read
        .selectFrom('config_objects')
        .select(['section', 'name', 'renamed_from'])
        .orderBy('section')
        .execute()
    const before = await names()
    await service.storage.write(async (tx) => {
      const db = tx as unknown as AnyDb
      await db.schema.alterTable('config_objects').dropColumn('name').execute()
      await db.schema.alterTable('config_applies').dropColumn('names').execute()
      await up(schemaFor(db, kind))
    })
    expect(await names()).toEqual(before)
    // The address of a person is in no other table, and files rename nobody.
    expect(before).toEqual([
      { section: 'memberships', name: null, renamed_from: null },
      { section: 'organizations', name: 'garage', renamed_from: null },
      { section: 'roles', name: 'Night shift', renamed_from: null },
      { section: 'sites', name: 'Shop', renamed_from: null },
    ])
    const { data } = await acme.client.call(api.sites.list, { query: { limit: 100 } })
    const { id } = data.find(({ name }) => name === 'Shop')!
    await acme.client.call(api.sites.update, { params: { id }, body: { name: 'Store' } })
    expect((await acme.plan(files)).changes).toMatchObject([{ name: 'Shop', renamedFrom: 'Store' }])
  })
})

import { expect, it } from 'vitest'
import { builtInRoles, seedRoles } from '../../src/identity/seeds.ts'
import { inTurn } from '../databases.ts'
import { testClock } from '../harness.ts'

const now = testClock()()

inTurn((open) => {
  it('built-in roles get the permissions that a release adds, also in a database that has the roles', async () => {
    const { storage } = await open()
    const pairs = () =>
      storage.read.selectFrom('role_permissions').select(['role_id', 'permission']).execute()
    const seed = () => storage.write((tx) => seedRoles(tx, now))
    await seed()
    const all = await pairs()
    expect(all).toHaveLength(builtInRoles.flatMap(({ permissions }) => permissions).length)
    await storage.write((tx) =>
      tx.deleteFrom('role_permissions').where('permission', '=', 'devices:execute').execute(),
    )
    expect((await pairs()).length).toBeLessThan(all.length)
    await seed()
    await seed()
    expect(new Set((await pairs()).map((one) => JSON.stringify(one)))).toEqual(
      new Set(all.map((one) => JSON.stringify(one))),
    )
    expect(await pairs()).toHaveLength(all.length)
  })
})

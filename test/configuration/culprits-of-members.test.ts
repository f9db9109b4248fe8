import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startWithHistory } from './history-fixture.ts'

const con = { email: 'con@example.com', name: 'Con', role: 'Partner Viewer', orgAccess: 'none' }
const files = { memberships: [con] }

inTurn((open) => {
  const start = async () => {
    const stage = await startWithHistory(open)
    const { acme, world, by } = stage
    const system = by(world.tokens.system, { partnerId: world.partners.acme })
    const globex = by(world.tokens.globex)
    const idOfCon = async ({ client }: typeof acme) =>
      (await client.call(api.users.list, { query: {} })).data.find(({ email }) => email === con.email)!.id
    const promote = async ({ client }: typeof acme, id: string) => {
      const { data } = await client.call(api.roles.list, {})
      const { id: roleId } = data.find(({ name }) => name === 'Partner Technician')!
      await client.call(api.users.assignRole, { params: { id }, body: { roleId } })
    }
    return { ...stage, system, globex, idOfCon, promote }
  }

  describe('a member of a partner', () => {
    it('who is one of another as well was changed by whoever did it here', async () => {
      const { acme, globex, system, idOfCon, promote } = await start()
      await acme.apply(files)
      await globex.apply(files)
      const id = await idOfCon(acme)
      await promote(acme, id)
      await promote(globex, id)
      const { changes } = await system.plan(files, { culprits: true })
      expect(changes).toMatchObject([{ culprits: [{ field: 'role', by: 'acme-admin@example.com' }] }])
    })

    it('was not removed here by whoever removed them elsewhere', async () => {
      const { globex, system, idOfCon } = await start()
      await globex.apply(files)
      await globex.client.call(api.users.remove, { params: { id: await idOfCon(globex) } })
      const { changes } = await system.plan(files, { culprits: true })
      expect(changes).toMatchObject([{ action: 'create', culprits: [] }])
    })

    it('that has moved is named with who did it, to whoever may read that', async () => {
      const { acme, world, system, idOfCon, promote } = await start()
      await acme.apply(files)
      const wider = { memberships: [{ ...con, orgAccess: 'all' }] }
      const [planned, own] = [await system.plan(wider), await acme.plan(wider)]
      await promote(acme, await idOfCon(acme))
      const query = { partnerId: world.partners.acme }
      for (const [{ client }, { version, plannedAt }, of, said] of [
        [system, planned, query, /user\.role\.assign "con@example\.com" \(by acme-admin@example\.com/],
        [acme, own, {}, /plan again. Changed since: memberships$/],
      ] as const)
        await expect(
          client.call(api.configuration.apply, { query: of, body: { document: wider, version, plannedAt } }),
        ).rejects.toMatchObject({ status: 409, message: expect.stringMatching(said) })
    })
  })
})

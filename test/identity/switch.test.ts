import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { joinPartner } from '../../src/identity/memberships.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import { addPerson, addTenant, audited, login, password, signIn } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'

inTurn((open) => {
  async function withTwoMemberships() {
    const service = await startService(open)
    const { partnerId, orgId } = await addTenant(service)
    const email = await addPerson(service, 'grace', { orgId }, 'Org Viewer')
    const { id: userId } = await service.storage.read
      .selectFrom('users')
      .select('id')
      .where('email', '=', email)
      .executeTakeFirstOrThrow()
    const roleId = builtInRoles.find(({ name }) => name === 'Partner Viewer')!.id
    await service.storage.write((tx) =>
      joinPartner(tx, { partnerId, userId, roleId, orgs: 'all' }, '2026-01-02T00:00:00.000Z'),
    )
    return { service, partnerId, orgId, who: { email, password } }
  }

  describe('a user with several memberships', () => {
    it('sees all of them, and switches between them, which ends the previous session', async () => {
      const { service, partnerId, orgId, who } = await withTwoMemberships()
      const { accessToken } = await signIn(service, who)
      const first = service.client(accessToken)
      const me = await first.call(api.auth.me)
      expect(me).toMatchObject({ scope: 'partner', partnerId })
      expect(me.memberships).toEqual([
        { scope: 'partner', id: partnerId, name: 'Acme', slug: 'acme', role: 'Partner Viewer' },
        { scope: 'organization', id: orgId, name: 'Bakery', slug: 'bakery', role: 'Org Viewer' },
      ])
      const switched = await first.call(api.auth.switch, { body: { orgId } })
      await expect(first.call(api.auth.me)).rejects.toMatchObject({ status: 401 })
      const second = service.client(switched.tokens!.accessToken)
      expect(await second.call(api.auth.me)).toMatchObject({ scope: 'organization', orgId })
      const back = await second.call(api.auth.switch, { body: {} })
      expect(await service.client(back.tokens!.accessToken).call(api.auth.me)).toMatchObject({
        scope: 'partner',
      })
      // The organization that a user leaves is not told where they go.
      const entries = (await audited(service, 'auth.switch')).map((one) => one.orgId)
      expect(entries).toHaveLength(2)
      expect(new Set(entries)).toEqual(new Set([orgId, null]))
    })

    it('selects one when signing in', async () => {
      const { service, orgId, who } = await withTwoMemberships()
      const { tokens } = await service.client().call(api.auth.login, { body: { ...who, orgId } })
      expect(await service.client(tokens!.accessToken).call(api.auth.me)).toMatchObject({ orgId })
    })

    it('cannot select a tenant they do not belong to', async () => {
      const { service, who } = await withTwoMemberships()
      const { accessToken } = await signIn(service, who)
      const elsewhere = '01990000-0000-7000-8000-000000000001'
      for (const body of [{ orgId: elsewhere }, { partnerId: elsewhere }])
        await expect(service.client(accessToken).call(api.auth.switch, { body })).rejects.toMatchObject({
          status: 403,
        })
      expect((await login(service, { ...who, orgId: elsewhere } as typeof who)).status).toBe(401)
    })
  })
})

import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { inTurn } from '../databases.ts'
import { adminPassword, startService, type TestService } from '../harness.ts'
import { userIdOf } from '../laws/fixture.ts'
import { addOrgUser, addPartnerUser, buildWorld, type Org, type World } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

/** Credentials of an organization, and a check which of them work. */
async function credentialsOf(service: TestService, { tokens }: World, org: Org) {
  const system = service.client(tokens.system)
  const { key: apiKey } = await system.call(api.apiKeys.create, {
    body: { orgId: org.id, name: 'ci', scopes: ['devices:read'] },
  })
  const { key: enrollmentKey } = await system.call(api.enrollmentKeys.create, {
    body: { orgId: org.id, name: 'desk', maxUsage: 1000 },
  })
  const member = await addOrgUser(service, `${org.name}-member`, org.id)
  const userId = await userIdOf(service, `${org.name}-member`)
  const passwordHash = await hashPassword(adminPassword)
  await service.storage.write((tx) =>
    tx
      .updateTable('users')
      .set({ password_hash: passwordHash, mfa_method: null })
      .where('id', '=', userId)
      .execute(),
  )
  const code = (call: Promise<unknown>): Promise<number> =>
    call.then(
      () => 200,
      (error: { status: number }) => error.status,
    )
  return {
    login: () =>
      service
        .client()
        .call(api.auth.login, { body: { email: `${org.name}-member@example.com`, password: adminPassword } }),
    async works() {
      const machine = { hostname: 'new', osType: 'linux', osVersion: '12', architecture: 'x64' } as const
      return {
        session: await code(service.client(member).call(api.devices.list)),
        apiKey: await code(service.client(undefined, { 'x-api-key': apiKey }).call(api.devices.list)),
        login: await code(this.login()),
        enrollment: await code(
          service
            .client()
            .call(api.agents.enroll, { body: { enrollmentKey, ...machine, agentVersion: '0.1.0' } }),
        ),
        agent: await code(
          service.client(org.agentToken).call(api.agents.heartbeat, {
            params: { id: org.agentId },
            body: { status: 'ok', agentVersion: '0.1.0' },
          }),
        ),
      }
    },
  }
}

const all = { session: 200, apiKey: 200, login: 200, enrollment: 200, agent: 200 }
const reporting = { session: 401, apiKey: 401, login: 401, enrollment: 403, agent: 200 }
const nothing = { ...reporting, agent: 401 }
/** Active again: users may sign in and machines report; revoked credentials stay revoked. */
const again = { session: 401, apiKey: 401, login: 200, enrollment: 401, agent: 200 }

inTurn((open) => {
  describe('a tenant that is suspended or deleted', () => {
    it('loses keys and sessions of an organization for good; its machines return with it', async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      const { orgs, tokens } = world
      const bakery = await credentialsOf(service, world, orgs.bakery)
      const garage = await credentialsOf(service, world, orgs.garage)
      const acme = service.client(tokens.acme)
      const turn = (status: 'active' | 'trial' | 'suspended' | 'churned') =>
        acme.call(api.orgs.update, { params: { id: orgs.bakery.id }, body: { status } })
      expect(await bakery.works()).toEqual(all)
      const { tokens: session } = await bakery.login()
      await turn('suspended')
      expect(await bakery.works()).toEqual(reporting)
      const { data } = await acme.call(api.orgs.list)
      expect(data.find(({ id }) => id === orgs.bakery.id)?.status).toBe('suspended')
      // No keys can be created in advance either.
      const orgId = orgs.bakery.id
      const ahead = [
        () => acme.call(api.apiKeys.create, { body: { orgId, name: 'ahead' } }),
        () => acme.call(api.enrollmentKeys.create, { body: { orgId, name: 'ahead' } }),
      ]
      for (const mint of ahead) await expect(mint()).rejects.toEqual(refused(403, 'tenant_inactive'))
      await turn('trial')
      expect(await bakery.works()).toEqual(again)
      await turn('churned')
      expect(await bakery.works()).toEqual(nothing)
      await turn('active')
      expect(await bakery.works()).toEqual(again)
      const refresh = service
        .client()
        .call(api.auth.refresh, { body: { refreshToken: session!.refreshToken! } })
      await expect(refresh).rejects.toEqual(refused(401, 'invalid_refresh_token'))
      const keys = await acme.call(api.apiKeys.list, { query: { orgId: orgs.bakery.id } })
      expect(new Set(keys.data.map(({ status }) => status))).toEqual(new Set(['revoked']))
      // The other organization is unaffected.
      expect(await garage.works()).toEqual(all)
      expect((await acme.call(api.orgs.list)).data).toHaveLength(2)
    })

    it('includes all organizations of a partner', async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      const { partners, orgs, tokens } = world
      const bakery = await credentialsOf(service, world, orgs.bakery)
      const harbor = await credentialsOf(service, world, orgs.harbor)
      const system = service.client(tokens.system)
      const turn = (status: 'active' | 'suspended' | 'churned') =>
        system.call(api.partners.update, { params: { id: partners.acme }, body: { status } })
      await turn('suspended')
      expect(await bakery.works()).toEqual(reporting)
      for (const token of [tokens.acme, tokens.acmeBakery, tokens.acmeNone]) {
        const me = service.client(token).call(api.partners.me)
        await expect(me).rejects.toEqual(refused(401, 'invalid_token'))
      }
      await turn('active')
      expect(await bakery.works()).toEqual(again)
      await expect(service.client(tokens.acme).call(api.orgs.list)).rejects.toEqual(
        refused(401, 'invalid_token'),
      )
      await turn('churned')
      expect(await bakery.works()).toEqual(nothing)
      expect(await harbor.works()).toEqual(all)
      expect((await service.client(tokens.globex).call(api.orgs.list)).data).toHaveLength(1)
    })

    it('loses everything when deleted', async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      const { partners, orgs, tokens } = world
      const [bakery, harbor] = [
        await credentialsOf(service, world, orgs.bakery),
        await credentialsOf(service, world, orgs.harbor),
      ]
      const system = service.client(tokens.system)
      await system.call(api.orgs.remove, { params: { id: orgs.bakery.id } })
      expect(await bakery.works()).toEqual(nothing)
      await system.call(api.partners.remove, { params: { id: partners.globex } })
      expect(await harbor.works()).toEqual(nothing)
    })

    it('ends only the sessions in that tenant', async () => {
      const service = await startService(open)
      const { partners, orgs, tokens } = await buildWorld(service)
      const token = await addPartnerUser(service, 'both', partners.acme, 'all')
      const system = service.client(tokens.system)
      await system.call(api.orgs.update, { params: { id: orgs.bakery.id }, body: { status: 'suspended' } })
      expect((await service.client(token).call(api.orgs.list)).data).toHaveLength(2)
      await expect(service.client(tokens.bakery).call(api.sites.list)).rejects.toEqual(
        refused(401, 'invalid_token'),
      )
      expect((await service.client(tokens.garage).call(api.sites.list)).data).toHaveLength(1)
    })

    it('cannot be entered by a sign-in that started before', async () => {
      const service = await startService(open)
      const world = await buildWorld(service)
      const { orgs, tokens } = world
      const bakery = await credentialsOf(service, world, orgs.bakery)
      const system = service.client(tokens.system)
      const params = { id: orgs.bakery.id }
      for (let round = 0; round < 5; round += 1) {
        const signing = Promise.allSettled(Array.from({ length: 4 }, () => bakery.login()))
        await system.call(api.orgs.update, { params, body: { status: 'suspended' } })
        const results = await signing
        await system.call(api.orgs.update, { params, body: { status: 'active' } })
        for (const one of results) {
          if (one.status === 'rejected') {
            expect([401, 403]).toContain((one.reason as { status: number }).status)
            continue
          }
          const call = service.client(one.value.tokens!.accessToken).call(api.sites.list)
          await expect(call).rejects.toEqual(refused(401, 'invalid_token'))
        }
      }
    })
  })

  it('a pending partner is approved by the system', async () => {
    const service = await startService(open)
    const { partners, tokens } = await buildWorld(service)
    const turn = (status: 'pending' | 'active') =>
      service
        .client(tokens.system)
        .call(api.partners.update, { params: { id: partners.acme }, body: { status } })
    const list = () => service.client(tokens.acme).call(api.orgs.list)
    await turn('pending')
    await expect(list()).rejects.toEqual(refused(403, 'tenant_pending'))
    await turn('active')
    expect((await list()).data).toHaveLength(2)
  })
})

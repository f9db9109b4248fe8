import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addRole } from '../world.ts'
import { github, releases, run, start } from './trust-fixture.ts'

const said = (status: number, message: unknown) => expect.objectContaining({ status, message })
const fault = (path: string, message: unknown) =>
  expect.objectContaining({ status: 400, details: expect.arrayContaining([{ path, message }]) })

inTurn((open) => {
  describe('a trust policy', () => {
    it('is active from the start, with the given values and default limits', async () => {
      const { service, bakery, client, create, clock } = await start(open)
      const news = await newEntries(service)
      const { maxUsage: _u, maxTtlMinutes: _t, ...rest } = releases
      const body = { ...rest, audience: undefined }
      const { data: made, warning } = await client.call(api.trustPolicies.create, { body })
      expect(warning).toBeUndefined()
      expect(made).toEqual({
        id: expect.any(String),
        orgId: bakery.id,
        ...rest,
        audience: service.url,
        maxUsage: 1,
        maxTtlMinutes: 60,
        status: 'active',
        createdBy: expect.any(String),
        createdAt: clock(),
        updatedAt: clock(),
        lastUsedAt: null,
      })
      const params = { id: made.id }
      expect((await client.call(api.trustPolicies.show, { params })).data).toEqual(made)
      clock.forward(1)
      const second = await create({ name: 'second' })
      const { data } = await client.call(api.trustPolicies.list)
      expect(data.map(({ id }) => id)).toEqual([made.id, second.id, bakery.policyId].sort(byAge(data)))
      const [entry] = await news()
      expect(entry).toMatchObject({
        action: 'trust.policy.create',
        resourceType: 'trust_policy',
        resourceId: made.id,
        resourceName: 'Releases',
        orgId: bakery.id,
        details: { after: { issuer: github, claims: releases.claims, permissions: releases.permissions } },
      })
    })

    it('is changed and deleted with audit entries', async () => {
      const { service, client, create, change, clock } = await start(open)
      const { id } = await create()
      const news = await newEntries(service)
      clock.forward(5)
      const claims = { repository_id: '74291847', ref: 'refs/heads/main' }
      expect(await change(id, { claims, maxUsage: 2 })).toMatchObject({
        claims,
        maxUsage: 2,
        updatedAt: clock(),
      })
      await expect(change(id, {})).rejects.toMatchObject({ status: 400 })
      await client.call(api.trustPolicies.remove, { params: { id } })
      await expect(change(id, { maxUsage: 1 })).rejects.toEqual(said(404, 'Trust policy not found'))
      expect(await news()).toMatchObject([
        {
          action: 'trust.policy.update',
          details: {
            before: { claims: releases.claims, maxUsage: 5 },
            after: { claims, maxUsage: 2 },
            changedFields: ['claims', 'maxUsage'],
          },
        },
        { action: 'trust.policy.delete', resourceId: id, details: { before: { claims } } },
        { result: 'denied' },
      ])
    })

    it('accepts no names that others can acquire, and no patterns', async () => {
      const { create, change } = await start(open)
      const lasting = expect.stringMatching(
        /^must hold repository_id or repository_owner_id: names on GitHub can/,
      )
      await expect(create({ claims: { repository: 'bakery/tills' } })).rejects.toEqual(
        fault('body.claims', lasting),
      )
      const { id } = await create()
      await expect(change(id, { claims: { sub: 'repo:bakery/tills:ref:refs/heads/main' } })).rejects.toEqual(
        fault('body.claims', lasting),
      )
      const pattern = 'are compared to the letter: patterns are not accepted'
      await expect(create({ claims: { repository_id: '7', ref: 'refs/heads/*' } })).rejects.toEqual(
        fault('body.claims', pattern),
      )
      await expect(create({ claims: {} })).rejects.toEqual(
        fault('body.claims', 'must hold at least one claim'),
      )
      await expect(create({ claims: { repository_id: '7', aud: 'x' } })).rejects.toEqual(
        fault('body.claims', expect.stringContaining('must not hold iss, aud')),
      )
    })

    it.each([
      [{ issuer: 'http://ci.example.com' }, 'body.issuer', 'must use HTTPS'],
      [{ issuer: 'ci' }, 'body.issuer', 'must be a URL'],
      [{ issuer: '' }, 'body.issuer', 'must not be empty'],
      [{ audience: '' }, 'body.audience', 'must not be empty'],
      [{ permissions: [] }, 'body.permissions', 'must name at least one permission'],
      [{ permissions: ['*:*'] }, 'body.permissions.0', expect.stringContaining('"*:*" is not a permission')],
      [{ maxUsage: 0 }, 'body.maxUsage', 'must be at least 1'],
      [{ maxTtlMinutes: 43_201 }, 'body.maxTtlMinutes', 'must be at most 43200'],
      [{ status: 'testing' }, 'body.status', expect.any(String)],
      [{ claims: { repository_id: 7 } }, 'body.claims.repository_id', expect.any(String)],
    ])('is refused with %j', async (more, path, message) => {
      const { create } = await start(open)
      await expect(create(more as never)).rejects.toEqual(fault(path, message))
    })

    it('that trusts a whole repository is created with a warning', async () => {
      const { client } = await start(open)
      const body = { ...releases, claims: { repository_id: '7' } }
      const { warning } = await client.call(api.trustPolicies.create, { body })
      expect(warning).toContain('Every branch and every pull request')
    })

    it('whose issuer leads to an internal address is created with a warning', async () => {
      const { client, issuer } = await start(open)
      issuer.jwksUrl = 'https://inner.example.com/keys'
      const { warning } = await client.call(api.trustPolicies.create, { body: releases })
      expect(warning).toContain('its jwks_uri must not point to internal network addresses')
    })

    it('belongs to the organization of the caller, or to the one named', async () => {
      const { bakery, garage, client, system, service, world, create } = await start(open)
      await expect(create({}, system)).rejects.toEqual(said(400, 'orgId is required for system scope'))
      const acme = service.client(world.tokens.acme)
      await expect(create({}, acme)).rejects.toEqual(said(400, 'orgId is required for partner scope'))
      const made = await create({ orgId: garage.id }, acme)
      expect(made.orgId).toBe(garage.id)
      const params = { id: made.id }
      for (const call of [
        () => client.call(api.trustPolicies.show, { params }),
        () => client.call(api.trustPolicies.update, { params, body: { name: 'mine' } }),
        () => client.call(api.trustPolicies.test, { params, body: { token: 'x' } }),
        () => client.call(api.trustPolicies.remove, { params }),
      ]) {
        await expect(call()).rejects.toEqual(said(404, 'Trust policy not found'))
      }
      const denied = expect.objectContaining({ status: 403, code: 'org_access_denied' })
      await expect(create({ orgId: garage.id })).rejects.toEqual(denied)
      const query = { orgId: garage.id }
      await expect(client.call(api.trustPolicies.list, { query })).rejects.toEqual(denied)
      const inGarage = await acme.call(api.trustPolicies.list, { query })
      expect(inGarage.data.map(({ orgId }) => orgId)).toEqual([garage.id, garage.id])
      const own = await client.call(api.trustPolicies.list)
      expect(own.data.map(({ id }) => id)).toEqual([bakery.policyId])
    })

    it('has no permission that its author lacks; anyone with access may deactivate it', async () => {
      const { service, bakery, create, change } = await start(open)
      const role = await addRole(service, bakery.id, 'keepers', ['organizations:read', 'organizations:write'])
      const keeper = service.client(await addOrgUser(service, 'keeper', bakery.id, { role }))
      const lacking = said(403, 'Cannot assign permission not held by caller: devices:read')
      await expect(create({ permissions: ['organizations:read', 'devices:read'] }, keeper)).rejects.toEqual(
        lacking,
      )
      const { id } = await create({ permissions: ['devices:read'] })
      const update = (body: object) =>
        keeper.call(api.trustPolicies.update, { params: { id }, body: body as never })
      await expect(update({ claims: { repository_id: '666' } })).rejects.toEqual(lacking)
      await expect(update({ name: 'mine' })).rejects.toEqual(lacking)
      expect((await update({ status: 'inactive' })).data.status).toBe('inactive')
      await expect(update({ status: 'active' })).rejects.toEqual(lacking)
      await update({ permissions: ['organizations:read'], status: 'active' })
      await change(id, { permissions: ['devices:read'] })
      await keeper.call(api.trustPolicies.remove, { params: { id } })
    })

    it('needs organizations:read to view, organizations:write and a second factor to change', async () => {
      const { service, bakery, create } = await start(open)
      const { id } = await create()
      const params = { id }
      const as = async (permission: string) => {
        const role = await addRole(service, bakery.id, permission, [permission])
        const name = permission.replace(':', '-')
        return service.client(await addOrgUser(service, name, bakery.id, { role }))
      }
      const [reader, writer, other] = [
        await as('organizations:read'),
        await as('organizations:write'),
        await as('devices:read'),
      ]
      for (const by of [writer, other]) {
        await expect(by.call(api.trustPolicies.list)).rejects.toMatchObject({ status: 403 })
        await expect(by.call(api.trustPolicies.show, { params })).rejects.toMatchObject({ status: 403 })
      }
      expect((await reader.call(api.trustPolicies.list)).data).toHaveLength(2)
      const body = { token: 'x' }
      for (const by of [reader, other]) {
        await expect(by.call(api.trustPolicies.test, { params, body })).rejects.toMatchObject({ status: 403 })
        await expect(by.call(api.trustPolicies.remove, { params })).rejects.toMatchObject({ status: 403 })
      }
      await writer.call(api.trustPolicies.remove, { params })
    })

    it('cannot be changed by members restricted to a part of the organization', async () => {
      const { service, bakery, create, issuer } = await start(open)
      const { id } = await create()
      const { length } = issuer.asked
      const token = await addOrgUser(service, 'narrow', bakery.id, { siteIds: [bakery.siteId] })
      const narrow = service.client(token)
      const denied = expect.objectContaining({ status: 403, code: 'site_access_denied' })
      const params = { id }
      await expect(create({}, narrow)).rejects.toEqual(denied)
      const body = { issuer: github }
      await expect(narrow.call(api.trustPolicies.update, { params, body })).rejects.toEqual(denied)
      await expect(narrow.call(api.trustPolicies.remove, { params })).rejects.toEqual(denied)
      expect(issuer.asked).toHaveLength(length)
    })
  })

  describe('testing a token against a policy', () => {
    it('accepts a valid token without using it up', async () => {
      const { create, client, tokenOf, exchange, service, bakery } = await start(open)
      const { id } = await create()
      const token = await tokenOf()
      const params = { id }
      const news = await newEntries(service)
      const reply = await client.call(api.trustPolicies.test, { params, body: { token } })
      expect(reply.accepted).toBe(true)
      expect(reply.checks.map(({ check, ok }) => [check, ok])).toEqual(
        [
          'issuer',
          'signature',
          'time',
          'use',
          'audience',
          'claims.repository_id',
          'claims.environment',
          'policy',
        ].map((check) => [check, true]),
      )
      expect(reply.claims).toMatchObject({ repository: 'bakery/tills', run_id: run.run_id })
      const [entry] = await news()
      expect(entry).toMatchObject({ action: 'trust.policy.test', orgId: bakery.id, details: { failed: [] } })
      expect(JSON.stringify(entry)).not.toContain(token)
      await exchange(token)
      const again = await client.call(api.trustPolicies.test, { params, body: { token } })
      expect(again.checks.filter(({ ok }) => !ok)).toEqual([
        { check: 'use', ok: false, message: 'It was used before: each signs in once' },
      ])
    })

    it('lists all faults of a token at once', async () => {
      const { create, change, client, other, clock, tokenOf } = await start(open)
      const { id } = await create()
      const failed = async (token: string, at = id) => {
        const { accepted, checks } = await client.call(api.trustPolicies.test, {
          params: { id: at },
          body: { token },
        })
        expect(accepted).toBe(false)
        return Object.fromEntries(
          checks.filter(({ ok }) => !ok).map(({ check, message }) => [check, message]),
        )
      }
      expect(await failed('x')).toEqual({ format: expect.stringContaining('not a JWT') })
      const strange = { aud: 'x', repository_id: '8', environment: undefined, exp: 1 }
      expect(await failed(await other.token({ ...run, ...strange }, clock()))).toEqual({
        issuer: `It is of "https://gitlab.com", not of ${github}`,
        signature: expect.stringContaining('a key that the issuer does not publish'),
        time: 'It has expired: ask the CI system for a new one',
        audience: 'It is for "x", not for https://svc.example.com alone',
        'claims.repository_id': 'repository_id is "8", and has to be "74291847"',
        'claims.environment': 'environment is missing, and has to be "production"',
      })
      clock.forward(1)
      const later = await create({ name: 'later' })
      expect(await failed(await tokenOf(), later.id)).toEqual({
        policy: expect.stringContaining('The older policy "Releases" takes it'),
      })
      await change(id, { status: 'inactive' })
      expect(await failed(await tokenOf())).toEqual({ policy: 'It is inactive' })
      const none = client.call(api.trustPolicies.test, { params: { id: newId() }, body: { token: 'x' } })
      await expect(none).rejects.toMatchObject({ status: 404 })
    })
  })
})

const byAge = (all: { id: string; createdAt: string }[]) => (a: string, b: string) => {
  const at = (id: string) => all.find((one) => one.id === id)?.createdAt ?? ''
  return at(a) < at(b) ? -1 : 1
}

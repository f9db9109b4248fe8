import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { permissions as every } from '../../src/core/permissions.ts'
import { systemScope } from '../../src/core/scope.ts'
import { removeTrustPolicy } from '../../src/trust/store.ts'
import { inTurn } from '../databases.ts'
import { audience, github, releases, start } from '../trust/trust-fixture.ts'
import { addRole } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

/** All that files need, and no permission to do anything with devices. */
const held = every.filter((one) => !/^(devices|scripts|alerts|automations|remote):/.test(one))
const pullRequests = {
  name: 'Pull requests',
  issuer: github,
  audience,
  claims: { repository_id: '74291847', event_name: 'pull_request' },
}

inTurn((open) => {
  const begin = async (permissions: readonly string[] = held, limits = {}) => {
    const stage = await start(open)
    const { create, signIn, service, world, system, bakery } = stage
    const policy = { orgId: bakery.id, permissions: [...permissions], ...limits }
    const { id: policyId } = await create(policy, system)
    const job = await signIn()
    const by = configurationOf(service)
    const own = { ...releases, permissions: [...permissions] }
    const files = {
      plan: (document: Document, options = {}) =>
        job.call(api.configuration.plan, { body: { document, ...options } }),
      apply: async (document: Document, options = {}) => {
        const { version } = await job.call(api.configuration.plan, { body: { document, ...options } })
        return job.call(api.configuration.apply, { body: { document, ...options, version } })
      },
    }
    /** Why the one change of a plan is refused, after an apply that was refused as well. */
    const refusal = async (document: Document, options = {}) => {
      const { changes } = await files.plan(document, options)
      await expect(files.apply(document, options)).rejects.toMatchObject({ status: 403 })
      return changes.find(({ refused }) => refused !== null)?.refused
    }
    return { ...stage, policyId, job, own, files, refusal, person: by(world.tokens.bakery) }
  }

  describe('a workload that may apply files', () => {
    it('does so in files alone: the permissions of its policy open no endpoint of people', async () => {
      const { job, bakery } = await begin()
      const webhook = { name: 'Mine', url: 'https://hooks.example.com/', events: ['*' as const] }
      const alone = { status: 403, message: 'This is open to workloads in files alone' }
      await expect(job.call(api.webhooks.create, { body: webhook })).rejects.toMatchObject(alone)
      await expect(
        job.call(api.sites.create, { body: { orgId: bakery.id, name: 'Mine' } }),
      ).rejects.toMatchObject(alone)
      await expect(job.call(api.users.list, {})).rejects.toMatchObject(alone)
      await expect(job.call(api.apiKeys.create, { body: { name: 'Mine' } })).rejects.toMatchObject({
        status: 403,
      })
    })

    it('reaches nothing by files where its policy does not name config:apply', async () => {
      const { files } = await begin(held.filter((one) => !one.startsWith('config:')))
      await expect(files.plan({ sites: [] })).rejects.toMatchObject({ status: 403, code: 'forbidden' })
    })

    it('makes and changes no role beyond its policy', async () => {
      const { refusal, service, bakery, person } = await begin()
      expect(await refusal({ roles: [{ name: 'Mighty', permissions: ['devices:execute'] }] })).toContain(
        'devices:execute',
      )
      expect(await refusal({ roles: [{ name: 'Mighty', parent: 'Org Admin' }] })).toContain('devices:')
      await addRole(service, bakery.id, 'Strong', ['devices:execute'])
      const adopted = { roles: [{ name: 'Strong', permissions: ['sites:read'] }] }
      expect(await refusal(adopted, { adopt: true })).toContain('devices:execute')
      await person.apply({ roles: [{ name: 'Weak', permissions: ['sites:read'] }] })
      expect(await refusal({ roles: [{ name: 'Weak', permissions: ['alerts:read'] }] })).toContain(
        'alerts:read',
      )
    })

    it('invites, raises and removes nobody beyond its policy', async () => {
      const { refusal, service, bakery, person, files } = await begin()
      await addRole(service, bakery.id, 'Reader', ['sites:read'])
      const mallory = { email: 'mallory@example.com', name: 'Mallory' }
      expect(await refusal({ memberships: [{ ...mallory, role: 'Org Admin' }] })).toContain('devices:')
      await files.apply({ memberships: [{ ...mallory, role: 'Reader' }] })
      expect(await refusal({ memberships: [{ ...mallory, role: 'Org Admin' }] })).toContain('devices:')
      const admin = { email: 'bakery-admin@example.com' }
      const adopted = { memberships: [{ ...admin, role: 'Reader' }] }
      expect(await refusal(adopted, { adopt: true })).toBe('This user holds permissions that you do not')
      await person.apply({ memberships: [{ ...admin, role: 'Org Admin' }] }, { adopt: true })
      expect(await refusal({ memberships: [] }, { prune: true, pruneLimit: 9 })).toBe(
        'This user holds permissions that you do not',
      )
    })

    it('does not remove the last administrator, whatever its policy names', async () => {
      const { files, person } = await begin(every)
      const admin = { email: 'bakery-admin@example.com', role: 'Org Admin' }
      await person.apply({ memberships: [admin] }, { adopt: true })
      await expect(files.plan({ memberships: [] }, { prune: true })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('last full administrator') }],
      })
    })

    it('makes no trust policy that may do more than its own, or mint larger enrollment keys', async () => {
      const { files, refusal } = await begin()
      expect(
        await refusal({ trustPolicies: [{ ...pullRequests, permissions: ['devices:execute'] }] }),
      ).toContain('devices:execute')
      const keys = { ...pullRequests, permissions: ['organizations:write'], maxTtlMinutes: 30 }
      expect(await refusal({ trustPolicies: [{ ...keys, maxUsage: 6 }] })).toContain('maxUsage is at most 5')
      expect(await refusal({ trustPolicies: [{ ...keys, maxTtlMinutes: 31 }] })).toContain(
        'maxTtlMinutes is at most 30',
      )
      const plans = { ...pullRequests, permissions: ['config:read', 'organizations:read'] }
      await files.apply({ trustPolicies: [plans] })
      const more = [...plans.permissions, 'organizations:write']
      expect(await refusal({ trustPolicies: [{ ...plans, permissions: more }] })).toContain('maxTtlMinutes')
      expect(await refusal({ trustPolicies: [{ ...plans, permissions: ['devices:execute'] }] })).toContain(
        'devices:execute',
      )
    })

    it('lets no person make larger enrollment keys than it makes itself', async () => {
      const { files, refusal, service, bakery, person } = await begin()
      const limits = 'organizations:write: it lets people create enrollment keys beyond'
      expect(await refusal({ roles: [{ name: 'Keys', permissions: ['organizations:write'] }] })).toContain(
        limits,
      )
      await person.apply({ roles: [{ name: 'Weak', permissions: ['sites:read'] }] })
      const raised = { name: 'Weak', permissions: ['sites:read', 'organizations:write'] }
      expect(await refusal({ roles: [raised] })).toContain(limits)
      await addRole(service, bakery.id, 'Keys', ['organizations:write'])
      const mallory = { email: 'mallory@example.com', name: 'Mallory' }
      expect(await refusal({ memberships: [{ ...mallory, role: 'Keys' }] })).toContain(limits)
      await files.apply({ memberships: [{ ...mallory, role: 'Weak' }] })
      expect(await refusal({ memberships: [{ ...mallory, role: 'Keys' }] })).toContain(limits)
      const provider = { name: 'Okta', type: 'oidc', clientId: 'svc' }
      expect(await refusal({ ssoProviders: [{ ...provider, defaultRole: 'Keys' }] })).toContain(limits)
    })

    it('grants organizations:write to people where its policy has the largest limits', async () => {
      const { files, person } = await begin(held, { maxUsage: 100_000, maxTtlMinutes: 30 * 24 * 60 })
      const mallory = { email: 'mallory@example.com', name: 'Mallory', role: 'Keys' }
      const keys = { roles: [{ name: 'Keys', permissions: ['organizations:write'] }], memberships: [mallory] }
      await files.apply(keys)
      await files.apply({
        ssoProviders: [{ name: 'Okta', type: 'oidc', clientId: 'svc', defaultRole: 'Keys' }],
      })
      const { data } = await person.client.call(api.ssoProviders.list, {})
      expect(data.find(({ name }) => name === 'Okta')?.vouches).toEqual(held.toSorted())
    })

    it('does nothing any more once its policy is deleted, whatever it has begun', async () => {
      const { files, job, service, policyId } = await begin()
      const document = { sites: [{ name: 'Late' }] }
      const { version } = await files.plan(document)
      const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
      const deleting = service.storage.write(async (tx) => {
        await removeTrustPolicy(tx, systemScope, policyId)
        begun.resolve()
        await end.promise
      })
      await begun.promise
      const late = Promise.allSettled([
        job.call(api.configuration.apply, { body: { document, version } }),
        job.call(api.enrollmentKeys.create, { body: { name: 'Late' } }),
      ])
      // Long enough for the calls to be admitted and wait for their transactions.
      await new Promise((resolve) => setTimeout(resolve, 1500))
      end.resolve()
      await deleting
      const refused = { status: 'rejected', reason: { code: 'invalid_token' } }
      expect(await late).toMatchObject([refused, refused])
    })

    it('changes and deletes its own trust policy in no way, and may keep it in a file', async () => {
      const { files, refusal, own, job } = await begin()
      const itself = 'A workload cannot change the trust policy'
      const wider = { ...own, claims: { repository_id: '74291847' } }
      expect(await refusal({ trustPolicies: [wider] }, { adopt: true })).toContain(itself)
      expect((await files.apply({ trustPolicies: [own] }, { adopt: true })).changes).toMatchObject([
        { action: 'adopt', refused: null },
      ])
      for (const change of [
        { claims: wider.claims },
        { permissions: ['config:read'] },
        { status: 'inactive' },
      ])
        expect(await refusal({ trustPolicies: [{ ...own, ...change }] })).toContain(itself)
      expect(await refusal({ trustPolicies: [] }, { prune: true })).toContain(itself)
      // Its token still works: nothing has changed.
      expect((await job.call(api.auth.caller)).kind).toBe('workload')
    })

    it('makes no identity provider that vouches for more than its policy names', async () => {
      const { files, refusal, person } = await begin()
      const provider = { name: 'Okta', type: 'oidc', clientId: 'svc' }
      expect(await refusal({ ssoProviders: [{ ...provider, defaultRole: 'Org Admin' }] })).toContain(
        'devices:',
      )
      await files.apply({ ssoProviders: [provider] })
      const { data } = await person.client.call(api.ssoProviders.list, {})
      const vouched = held.filter((one) => one !== 'organizations:write').toSorted()
      expect(data.find(({ name }) => name === 'Okta')?.vouches).toEqual(vouched)
    })

    it('gives no API key a scope beyond its policy, and no enrollment key more than the policy may mint', async () => {
      const { files, refusal } = await begin()
      const apiKey = { name: 'bakery api key', scopes: ['devices:read'] }
      expect(await refusal({ apiKeys: [apiKey] }, { adopt: true })).toContain('"devices:read"')
      const narrow = { apiKeys: [{ ...apiKey, scopes: ['sites:read'] }] }
      expect((await files.apply(narrow, { adopt: true })).totals).toMatchObject({ adopt: 1, update: 1 })
      const key = { name: 'bakery key', maxUsage: 6 }
      expect(await refusal({ enrollmentKeys: [key] }, { adopt: true })).toContain('trust policy')
      const small = { enrollmentKeys: [{ ...key, maxUsage: 5 }] }
      expect((await files.apply(small, { adopt: true })).totals).toMatchObject({ adopt: 1, update: 1 })
    })

    it('is told who changed what where its policy names audit:read', async () => {
      const { files, person, world, service, create, exchange, tokenOf, system } = await begin()
      const { bakery } = world.orgs
      const script = { name: 'Clean', osTypes: ['linux'], language: 'bash', content: 'true' }
      await person.apply({ sites: [{ name: 'Annex', timezone: 'Europe/Paris' }], scripts: [script] })
      const drift = { sites: [{ name: 'Annex', timezone: 'UTC' }] }
      expect((await files.plan(drift, { culprits: true })).changes).toMatchObject([
        { culprits: [{ field: 'timezone', by: 'bakery-admin@example.com', action: 'site.create' }] },
      ])
      const permissions = ['config:read', 'sites:read']
      const { id: policyId } = await create({ orgId: bakery.id, permissions, name: 'Plan' }, system)
      const { accessToken } = await exchange(await tokenOf(), { orgId: bakery.id, policyId })
      const body = { document: drift, culprits: true }
      const { changes } = await service.client(accessToken).call(api.configuration.plan, { body })
      expect(changes[0]).not.toHaveProperty('culprits')
    })

    it('is not told what its policy does not let it read', async () => {
      const { files } = await begin(['config:read', 'devices:read'])
      const group = { name: 'Tills', site: 'bakery site' }
      await expect(files.plan({ deviceGroups: [group] })).rejects.toMatchObject({
        details: [{ message: 'names one of sites, which you may not read' }],
      })
      const absent = { name: 'Tills', site: 'nowhere' }
      await expect(files.plan({ deviceGroups: [absent] })).rejects.toMatchObject({
        details: [{ message: 'names one of sites, which you may not read' }],
      })
    })
  })
})

import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { audience, github, releases, start } from '../trust/trust-fixture.ts'
import { addOrgUser, addRole } from '../world.ts'
import { configurationOf } from './fixture.ts'

const { name, issuer, claims, permissions } = releases
const policy = { name, issuer, audience, claims, permissions }

inTurn((open) => {
  const begin = async () => {
    const stage = await start(open)
    const by = configurationOf(stage.service)
    const { bakery, acme } = stage.world.tokens
    /** Besides the one that the world has. */
    const policies = async () =>
      (await stage.client.call(api.trustPolicies.list, {})).data.filter((one) => one.name === name)
    return { ...stage, by, policies, bakeryFiles: by(bakery), acmeFiles: by(acme) }
  }

  describe('trust policies in files', () => {
    it('are made, changed and deleted by what the files say, each with its audit entry', async () => {
      const { service, acmeFiles, policies } = await begin()
      const files = { trustPolicies: [{ org: 'bakery', ...policy, maxUsage: 5 }] }
      const before = await dump(service.storage)
      const plan = await acmeFiles.plan(files)
      expect(plan.changes).toMatchObject([
        { action: 'create', section: 'trustPolicies', org: 'bakery', name, refused: null },
      ])
      expect(changed(before, await dump(service.storage))).toEqual([])
      const news = await newEntries(service)
      const { changes, applyId } = await acmeFiles.apply(files)
      expect(changes).toEqual(plan.changes)
      const [made] = await policies()
      expect(made).toMatchObject({ ...policy, maxUsage: 5, maxTtlMinutes: 60, status: 'active' })
      expect((await acmeFiles.plan(files)).changes).toEqual([])

      const narrower = { trustPolicies: [{ org: 'bakery', ...policy, permissions: ['organizations:read'] }] }
      expect((await acmeFiles.apply(narrower)).changes).toMatchObject([
        { action: 'update', before: { permissions }, after: { permissions: ['organizations:read'] } },
      ])
      const gone = await acmeFiles.apply({ trustPolicies: [] }, { prune: true })
      expect(gone.changes).toMatchObject([{ action: 'delete', id: made!.id, name }])
      expect(await policies()).toEqual([])
      const entries = (await news()).filter(({ action }) => action !== 'config.apply')
      expect(entries.map(({ action, resourceName }) => [action, resourceName])).toEqual([
        ['trust.policy.create', name],
        ['trust.policy.update', name],
        ['trust.policy.delete', name],
      ])
      expect(entries[0]!.details).toMatchObject({ configuration: { applyId, set: 'default' } })
    })

    it('ask no issuer, neither when they are planned nor when they are applied', async () => {
      const { service, bakeryFiles, exchange, tokenOf, outside } = await begin()
      const asked: string[] = []
      const real = outside.outbound.send
      outside.outbound.send = (request) => {
        asked.push(request.url)
        return real(request)
      }
      await bakeryFiles.apply({ trustPolicies: [policy] })
      expect(asked).toEqual([])
      expect(await service.storage.read.selectFrom('trust_issuers').selectAll().execute()).toEqual([])
      // The first token asks.
      await exchange(await tokenOf())
      expect(asked.some((url) => url.startsWith(github))).toBe(true)
    })

    it('are faults of a file where the single call refuses them', async () => {
      const { bakeryFiles } = await begin()
      const faulty = { ...policy, claims: { repository: 'bakery/tills' } }
      await expect(
        bakeryFiles.plan({ trustPolicies: [faulty, { ...policy, name: 'b', issuer: 'http://ci.example' }] }),
      ).rejects.toMatchObject({
        status: 400,
        details: [
          { path: 'body.document.trustPolicies.0.claims', message: expect.stringContaining('repository_id') },
          { path: 'body.document.trustPolicies.1.issuer' },
        ],
      })
    })

    it('are taken over by --adopt, exported, and then nothing is left to do', async () => {
      const { create, bakeryFiles } = await begin()
      const { id } = await create()
      await expect(bakeryFiles.plan({ trustPolicies: [policy] })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('--adopt') }],
      })
      const { document, skipped, uncovered } = await bakeryFiles.exported()
      expect(skipped).toMatchObject([{ section: 'organizations', name: '*' }])
      expect(uncovered.map(({ what }) => what)).not.toContain('trustPolicies')
      const only = { trustPolicies: document.trustPolicies!.filter((one) => one.name === name) }
      expect(only.trustPolicies).toMatchObject([{ ...policy, maxUsage: 5, maxTtlMinutes: 30 }])
      expect((await bakeryFiles.apply(only, { adopt: true })).changes).toMatchObject([
        { action: 'adopt', id, refused: null },
      ])
      expect((await bakeryFiles.plan(only)).changes).toEqual([])
    })

    it('grant no more than their applier has, and need the factor that the single call needs', async () => {
      const { service, world, by } = await begin()
      const { id } = world.orgs.bakery
      const held = ['config:read', 'config:apply', 'organizations:read', 'organizations:write']
      const role = await addRole(service, id, 'Applier', held)
      const applier = by(await addOrgUser(service, 'applier', id, { role }))
      const mighty = { trustPolicies: [{ ...policy, permissions: ['devices:execute'] }] }
      expect((await applier.plan(mighty)).changes).toMatchObject([
        { action: 'create', refused: expect.stringContaining('devices:execute') },
      ])
      await expect(applier.apply(mighty)).rejects.toMatchObject({ status: 403 })
      const reader = await addRole(service, id, 'Reader', ['config:read', 'organizations:read'])
      const planner = by(await addOrgUser(service, 'planner', id, { role: reader }))
      expect((await planner.plan({ trustPolicies: [policy] })).changes).toMatchObject([
        { action: 'create', refused: expect.any(String) },
      ])
    })

    it('of another tenant are neither seen nor touched', async () => {
      const { create, by, world } = await begin()
      await create()
      const globex = by(world.tokens.globex)
      const { document } = await globex.exported()
      expect(document.trustPolicies!.map(({ org }) => org)).toEqual(['harbor'])
      await expect(globex.plan({ trustPolicies: [{ org: 'bakery', ...policy }] })).rejects.toMatchObject({
        status: 400,
      })
      const garage = by(world.tokens.acme, world.orgs.garage.id)
      expect((await garage.plan({ trustPolicies: [] }, { prune: true })).changes).toEqual([])
    })
  })
})

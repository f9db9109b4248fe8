import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { certificate, expiredCertificate } from '../sso/certificates.ts'
import { endpointsOf, issuer, oidc, signedIn, start } from '../sso/provider-fixture.ts'
import { addOrgUser, addPartnerUser, addProvider, addRole } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

const { name } = oidc
/** With the endpoints that an active one needs. */
const whole = { org: 'bakery', ...oidc, ...endpointsOf(issuer) }
const files = (more: object = {}): Document => ({ ssoProviders: [{ ...whole, ...more }] })
const saml = {
  org: 'bakery',
  name: 'ADFS',
  type: 'saml',
  entityId: 'https://adfs.example.com',
  ssoUrl: 'https://adfs.example.com/saml',
}

inTurn((open) => {
  const begin = async () => {
    const stage = await start(open)
    const by = configurationOf(stage.service)
    const acme = by(stage.world.tokens.acme)
    const providers = async () => (await stage.client.call(api.ssoProviders.list, {})).data
    const provider = async (called: string = name) => (await providers()).find((one) => one.name === called)!
    const rollBack = async (id: string) => {
      const params = { id }
      const { version } = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      return acme.client.call(api.configurationApplies.rollback, { params, body: { version } })
    }
    return { ...stage, by, acme, providers, provider, rollBack }
  }

  describe('identity providers in files', () => {
    it('are made, changed and deleted by what the files say, each with its audit entry', async () => {
      const { service, acme, provider, providers } = await begin()
      const before = await dump(service.storage)
      const plan = await acme.plan(files({ status: 'active' }))
      expect(plan.changes).toMatchObject([
        { action: 'create', section: 'ssoProviders', org: 'bakery', name, refused: null },
        { action: 'update', before: { status: 'inactive' }, after: { status: 'active' } },
      ])
      expect(changed(before, await dump(service.storage))).toEqual([])
      const news = await newEntries(service)
      expect((await acme.apply(files({ status: 'active' }))).changes).toEqual(plan.changes)
      expect(await provider()).toMatchObject({ clientId: 'svc', status: 'active', hasClientSecret: true })
      expect((await acme.plan(files({ status: 'active' }))).changes).toEqual([])
      await acme.apply(files({ clientId: 'other' }))
      expect(await provider()).toMatchObject({ clientId: 'other', status: 'active' })
      await acme.apply({ ssoProviders: [] }, { prune: true })
      expect((await providers()).some((one) => one.name === name)).toBe(false)
      const entries = (await news()).filter(({ action }) => action !== 'config.apply')
      expect(entries.map(({ action, resourceName }) => [action, resourceName])).toEqual([
        ['sso.provider.create', name],
        ['sso.provider.status.update', name],
        ['sso.provider.update', name],
        ['sso.provider.delete', name],
      ])
    })

    it('ask nobody, neither when they are planned nor when they are applied', async () => {
      const { acme, asked, outbound, provider, client } = await begin()
      const lookedUp: string[] = []
      const real = outbound.locateHost
      outbound.locateHost = (url) => {
        lookedUp.push(url.hostname)
        return real(url)
      }
      await acme.apply({ ssoProviders: [{ org: 'bakery', ...oidc, tokenUrl: `${issuer}/token` }] })
      const moved = { org: 'bakery', ...oidc, issuer: 'https://other.example.com', tokenUrl: null }
      await acme.apply({ ssoProviders: [moved] })
      expect([asked, lookedUp]).toEqual([[], []])
      const { id } = await provider()
      expect(await provider()).toMatchObject({ issuer: 'https://other.example.com', tokenUrl: null })
      // The single call asks.
      await client.call(api.ssoProviders.update, { params: { id }, body: { issuer, clientSecret: 'hush' } })
      expect(asked).toHaveLength(1)
      expect(await provider()).toMatchObject(endpointsOf(issuer))
    })

    it('keep their client secret to themselves, and say only that another one is wanted', async () => {
      const { acme, service, provider } = await begin()
      await acme.apply(files())
      const other = await acme.plan(files({ clientSecret: 'another' }))
      expect(other.changes).toMatchObject([
        {
          action: 'update',
          before: { clientSecret: '********' },
          after: { clientSecret: '******** (changed)' },
        },
      ])
      const { document, uncovered } = await acme.exported()
      const exported = document.ssoProviders!.find((one) => one.name === name)!
      expect(exported).toMatchObject({ org: 'bakery', clientId: 'svc', ...endpointsOf(issuer) })
      expect(exported).not.toHaveProperty('clientSecret')
      expect(uncovered.map(({ what }) => what)).toEqual(
        expect.arrayContaining(['secrets in ssoProviders.clientSecret', 'ssoProviders.force']),
      )
      const said = JSON.stringify([other, document, await dump(service.storage)])
      expect(said).not.toContain('"another"')
      expect((await acme.plan({ ssoProviders: [exported] })).changes).toEqual([])
      // A rollback keeps no secret, and does not make it anew without one.
      const gone = await acme.apply({ ssoProviders: [] }, { prune: true })
      const params = { id: gone.applyId }
      const { lost, changes } = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      expect(changes).toEqual([])
      expect(lost).toMatchObject([
        { section: 'ssoProviders', name, reason: expect.stringContaining('clientSecret') },
      ])
      expect(await provider()).toBeUndefined()
    })

    it('say in a plan what a preset decides, and get it back when it is rolled back', async () => {
      const { acme, provider, rollBack } = await begin()
      await acme.apply(files({ scopes: 'openid' }))
      const { scopes: _, updatedAt: __, ...before } = await provider()
      const other = files({ preset: 'okta', scopes: 'openid' })
      const { changes, applyId } = await acme.apply(other)
      expect(changes).toMatchObject([
        {
          before: { preset: null, attributeMapping: {} },
          after: { preset: 'okta', attributeMapping: { groups: 'groups' } },
        },
      ])
      expect(Object.keys(changes[0]!.after!)).toEqual(['preset', 'attributeMapping'].toSorted())
      // What the file names is not decided by the preset.
      expect(await provider()).toMatchObject({ preset: 'okta', scopes: 'openid' })
      expect((await acme.plan(other)).changes).toEqual([])
      await rollBack(applyId)
      expect(await provider()).toMatchObject(before)
    })

    it('are complete before they are active, and inactive before they are incomplete', async () => {
      const { acme, provider, rollBack } = await begin()
      const bare = { org: 'bakery', ...oidc }
      await expect(acme.plan({ ssoProviders: [{ ...bare, status: 'active' }] })).rejects.toMatchObject({
        status: 400,
        details: expect.arrayContaining([
          {
            path: 'body.document.ssoProviders.0.tokenUrl',
            message: expect.stringContaining('is missing in an active provider'),
          },
        ]),
      })
      await acme.apply({ ssoProviders: [bare] })
      const { applyId } = await acme.apply(files({ status: 'active' }))
      const { changes } = await rollBack(applyId)
      expect(changes).toMatchObject([
        { before: { status: 'active' }, after: { status: 'inactive' } },
        { after: { tokenUrl: null } },
      ])
      expect(await provider()).toMatchObject({ status: 'inactive', tokenUrl: null })
    })

    it('have a role by its name, and a certificate in any form', async () => {
      const { service, acme, bakery, provider } = await begin()
      await addRole(service, bakery.id, 'Staff', ['devices:read'])
      const base64 = certificate.replace(/-----.*-----|\n/g, '')
      for (const form of [certificate, base64, certificate.trim()]) {
        const document = { ssoProviders: [{ ...saml, defaultRole: 'Staff', certificate: form }] }
        await acme.apply(document)
        expect((await acme.plan(document)).changes).toEqual([])
      }
      expect(await provider('ADFS')).toMatchObject({ certificate })
      const { document } = await acme.exported()
      expect(document.ssoProviders).toContainEqual(
        expect.objectContaining({ name: 'ADFS', defaultRole: 'Staff', certificate }),
      )
      await expect(
        acme.plan({ ssoProviders: [{ ...saml, defaultRole: 'Nobody', certificate: 'none' }] }),
      ).rejects.toMatchObject({ details: [{ path: 'body.document.ssoProviders.0.defaultRole' }] })
      await expect(acme.plan({ ssoProviders: [{ ...saml, certificate: 'none' }] })).rejects.toMatchObject({
        details: [{ path: 'body.document.ssoProviders.0.certificate' }],
      })
    })

    it('of any set keep their default role, unless the same files take it from them', async () => {
      const { service, acme, bakery, provider } = await begin()
      const pruning = { prune: true }
      const roles = (...names: string[]) =>
        names.map((one) => ({ org: 'bakery', name: one, permissions: [] }))
      await acme.apply({ roles: roles('Staff', 'Guest') })
      await acme.apply(files({ defaultRole: 'Staff' }), { set: 'sso' })
      const kept = { defaultRoleId: (await provider()).defaultRoleId }
      expect(kept.defaultRoleId).toEqual(expect.any(String))
      await expect(acme.plan({ roles: roles('Guest') }, pruning)).rejects.toMatchObject({
        status: 400,
        details: [
          {
            path: 'body.document.roles',
            message:
              'cannot delete "Staff": Cannot delete role that is in use: 1 SSO provider has it as its default',
          },
        ],
      })
      expect(await provider()).toMatchObject(kept)
      await acme.apply({ ssoProviders: [] }, { ...pruning, set: 'sso' })
      // In one set: it changes its role, or goes with it. A name that is passed on is no other case.
      await acme.apply({ roles: roles('Staff', 'Guest'), ...files({ defaultRole: 'Staff' }) })
      const changed = await acme.apply({ roles: roles('Guest'), ...files({ defaultRole: 'Guest' }) }, pruning)
      expect(changed.changes).toMatchObject([
        { section: 'ssoProviders', before: { defaultRole: 'Staff' }, after: { defaultRole: 'Guest' } },
        { section: 'roles', action: 'delete', name: 'Staff' },
      ])
      await acme.apply({ roles: roles('Staff', 'Guest'), ...files({ defaultRole: 'Staff' }) })
      const renamed = [{ org: 'bakery', name: 'Staff', renamedFrom: 'Guest', permissions: [] }]
      const passedOn = await acme.apply({ roles: renamed, ...files({ defaultRole: 'Staff' }) }, pruning)
      expect(passedOn.totals).toMatchObject({ update: 2, delete: 1 })
      const gone = await acme.apply({ roles: [], ssoProviders: [] }, pruning)
      expect(gone.changes.map(({ section }) => section)).toEqual(['ssoProviders', 'roles'])
      expect(await addRole(service, bakery.id, 'Staff', [])).toEqual(expect.any(String))
    })

    it('say whose links to an issuer end, and that no rollback brings them back', async () => {
      const { service, acme, world, provider, rollBack, clock } = await begin()
      const userId = (await service.client(world.tokens.bakery).call(api.users.me, {})).id
      const link = async () => signedIn(service, { providerId: (await provider()).id, userId, at: clock() })
      const { clientSecret: _, ...open } = whole
      await acme.apply({ ssoProviders: [open] })
      await link()
      // Of the same issuer, subjects are the same.
      const sameIssuer = await acme.plan({ ssoProviders: [{ ...open, clientId: 'x' }] })
      expect(sameIssuer.changes).toMatchObject([{ ends: null }])
      const other = 'https://other.example.com'
      const second = { ssoProviders: [{ ...open, issuer: other, ...endpointsOf(other) }] }
      const plan = await acme.plan(second)
      expect(plan.changes).toMatchObject([{ action: 'update', ends: { identities: 1 } }])
      const moved = await acme.apply(second, {}, plan.version)
      const planBack = async (id: string) =>
        acme.client.call(api.configurationApplies.plan, { params: { id }, body: {} })
      const reason = 'does not get back what ended: 1 identities'
      const lost = [{ section: 'ssoProviders', org: 'bakery', name, reason }]
      expect(await planBack(moved.applyId)).toMatchObject({ lost, changes: [{ ends: null }] })
      // Who has signed in since is linked anew.
      await link()
      expect((await planBack(moved.applyId)).changes).toMatchObject([{ ends: { identities: 1 } }])
      await rollBack(moved.applyId)
      await link()
      const gone = await acme.apply({ ssoProviders: [] }, { prune: true })
      expect(gone.changes).toMatchObject([{ action: 'delete', ends: { identities: 1 } }])
      expect(await planBack(gone.applyId)).toMatchObject({ lost, changes: [{ action: 'create' }] })
    })

    it('say so in one version, also to whom another issuer is refused, as its role is beyond theirs', async () => {
      const { service, acme, bakery, by, world, provider, clock } = await begin()
      const userId = (await service.client(world.tokens.bakery).call(api.users.me, {})).id
      const { clientSecret: _, ...open } = whole
      await addRole(service, bakery.id, 'Mighty', ['devices:execute'])
      await acme.apply({ ssoProviders: [{ ...open, defaultRole: 'Mighty' }] })
      await signedIn(service, { providerId: (await provider()).id, userId, at: clock() })
      const held = ['config:read', 'organizations:read', 'organizations:write', 'users:read', 'roles:read']
      const partner = { partnerId: world.partners.acme }
      const role = await addRole(service, partner, 'Planner', held)
      const planner = by(await addPartnerUser(service, 'planner', partner.partnerId, 'all', role))
      const other = 'https://other.example.com'
      const moved = [{ ...open, defaultRole: 'Mighty', issuer: other, ...endpointsOf(other) }]
      const plan = await planner.plan({ ssoProviders: moved })
      expect(plan.changes).toMatchObject([
        { action: 'update', refused: expect.stringContaining('devices:execute') },
      ])
      const { changes } = await acme.apply({ ssoProviders: moved }, {}, plan.version)
      expect(changes).toMatchObject([{ action: 'update', ends: { identities: 1 } }])
    })

    it('with an empty text say that there is none', async () => {
      const { acme, provider } = await begin()
      const empty = files({ allowedDomains: '', userInfoUrl: '' })
      await acme.apply(empty)
      expect(await provider()).toMatchObject({ allowedDomains: null, userInfoUrl: null })
      expect((await acme.plan(empty)).changes).toEqual([])
    })

    it('vouch for no more than their applier may do, and enforce nothing untried', async () => {
      const { service, acme, bakery, by, provider } = await begin()
      const held = ['config:read', 'config:apply', 'organizations:read', 'organizations:write', 'users:read']
      const role = await addRole(service, bakery.id, 'Applier', held)
      await addRole(service, bakery.id, 'Mighty', ['devices:execute'])
      const applier = by(await addOrgUser(service, 'applier', bakery.id, { role }))
      const { org: _, ...own } = whole
      await expect(
        applier.apply({ ssoProviders: [{ ...own, defaultRole: 'Mighty' }] }),
      ).rejects.toMatchObject({ status: 403 })
      await applier.apply({ ssoProviders: [own] })
      expect((await provider()).vouches).toEqual(held.toSorted())
      await expect(acme.plan(files({ name: 'New', enforceSSO: true }))).rejects.toMatchObject({
        details: [
          {
            path: 'body.document.ssoProviders.0.enforceSSO',
            message: expect.stringContaining('sign in with this provider first'),
          },
        ],
      })
    })

    it('of another tenant are neither seen nor touched', async () => {
      const { acme, by, world } = await begin()
      await acme.apply(files())
      const globex = by(world.tokens.globex)
      const { document } = await globex.exported()
      expect(document.ssoProviders!.some(({ org }) => org === 'bakery')).toBe(false)
      await expect(globex.plan(files())).rejects.toMatchObject({ status: 400 })
      const garage = by(world.tokens.acme, world.orgs.garage.id)
      expect((await garage.plan({ ssoProviders: [] }, { prune: true })).changes).toEqual([])
    })

    describe('that could not be made active today', () => {
      const active = { ...oidc, ...endpointsOf(issuer), status: 'active' as const, clientSecret: 'hush' }
      const loseSecret = async ({ service }: Awaited<ReturnType<typeof begin>>, id: string) => {
        const lost = createCipher(['a key that this service does not have']).encrypt(
          'hush',
          `sso_providers.client_secret.${id}`,
        )
        await service.storage.write((tx) =>
          tx.updateTable('sso_providers').set({ client_secret: lost }).where('id', '=', id).execute(),
        )
      }

      it('are taken over all the same, as a secret that no key opens, and get another one', async () => {
        const stage = await begin()
        const { acme, service, world } = stage
        await loseSecret(stage, await addProvider(service, world.orgs.bakery.id, active))
        const { document } = await acme.exported()
        const exported = document.ssoProviders!.filter((one) => one.name === name)
        const adopted = await acme.plan({ ssoProviders: exported }, { adopt: true })
        expect(adopted.changes).toMatchObject([{ action: 'adopt', refused: null }])
        const again = exported.map((one) => ({ ...one, clientSecret: 'again' }))
        const { changes } = await acme.apply({ ssoProviders: again }, { adopt: true })
        expect(changes).toMatchObject([
          { action: 'adopt' },
          { action: 'update', after: { clientSecret: '******** (changed)' } },
        ])
      })

      it('are given back', async () => {
        const stage = await begin()
        const { acme, service, world, rollBack } = stage
        const id = await addProvider(service, world.orgs.bakery.id, active)
        const { applyId } = await acme.apply({ ssoProviders: [{ org: 'bakery', name }] }, { adopt: true })
        await loseSecret(stage, id)
        expect((await rollBack(applyId)).changes).toMatchObject([{ action: 'release' }])
      })

      it('are taken over with a certificate that has expired', async () => {
        const { acme, service, world } = await begin()
        const { org: _, ...settings } = saml
        const old = {
          ...settings,
          type: 'saml' as const,
          certificate: expiredCertificate,
          status: 'active' as const,
        }
        await addProvider(service, world.orgs.bakery.id, { ...old, clientId: null, clientSecret: null })
        const { document } = await acme.exported()
        const { changes } = await acme.plan({ ssoProviders: document.ssoProviders! }, { adopt: true })
        expect(changes.map(({ action }) => action)).not.toContain('update')
      })
    })
  })
})

import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { endpointsOf, issuer, oidc } from '../sso/provider-fixture.ts'
import { addPartnerUser, addRole } from '../world.ts'
import type { Document } from './fixture.ts'
import { pruned, startWithHistory } from './history-fixture.ts'

const reads = ['config:read', 'users:read', 'roles:read', 'sites:read', 'devices:read', 'organizations:read']
const [read, run] = ['devices:read', 'devices:execute']

inTurn((open) => {
  /** A plan of `files` over `before`, by whoever may apply it and by somebody with the permissions of a reader and `more`. */
  const planTwice = async (before: Document, files: Document, options: object = {}, more: string[] = []) => {
    const { service, world, acme, by } = await startWithHistory(open)
    await acme.apply(before)
    const role = await addRole(service, { partnerId: world.partners.acme }, 'Reader', [...reads, ...more])
    const reader = by(await addPartnerUser(service, 'reader', world.partners.acme, 'all', role))
    const own = await acme.plan(files, options)
    const seen = await reader.plan(files, options)
    // An apply is refused as a whole, and says why.
    await expect(reader.apply(files, options, own.version)).rejects.toMatchObject({ status: 403 })
    return { own, seen }
  }
  const role = (name: string, permissions: string[], more: object = {}) => ({
    org: 'bakery',
    name,
    permissions,
    ...more,
  })
  const member = (of: string, more: object = {}) => ({
    org: 'bakery',
    email: 'ada@example.com',
    name: 'Ada',
    role: of,
    ...more,
  })
  const florist = { slug: 'florist', name: 'Florist' }
  const guest = (orgs: string[]) => ({
    email: 'guest@example.com',
    name: 'Guest',
    role: 'Partner Viewer',
    orgAccess: 'selected',
    orgs,
  })

  describe('the plan of somebody who may not do all of it has the version of whoever may', () => {
    const org = 'florist'
    const provider = { org: 'bakery', name: 'Login', type: 'oidc' }
    const complete = { ...provider, ...oidc, name: 'Login', ...endpointsOf(issuer) }
    const cases: Record<string, [before: Document, files: Document, options?: object, more?: string[]]> = {
      'where an organization goes with a site, a role and a member who has both': [
        {
          organizations: [florist],
          sites: [{ org, name: 'Annex' }],
          roles: [role('Night', [read], { org })],
          memberships: [member('Night', { org, sites: ['Annex'] })],
        },
        { organizations: [], sites: [], roles: [], memberships: [] },
        pruned,
      ],
      'where an organization goes that a member had selected': [
        { organizations: [florist], memberships: [guest(['florist'])] },
        { organizations: [], memberships: [guest(['bakery'])] },
        pruned,
      ],
      'where an organization goes with a role that they do not reach': [
        { organizations: [florist], roles: [role('Night', [run], { org })] },
        { organizations: [], roles: [] },
        pruned,
      ],
      'where a role that they do not reach is renamed, and a member gets another': [
        { roles: [role('Lead', [run])], memberships: [member('Lead')] },
        { roles: [role('Boss', [run], { renamedFrom: 'Lead' })], memberships: [member('Org Viewer')] },
      ],
      'where an organization goes with a role that its child and a member have': [
        {
          organizations: [florist],
          roles: [role('Night', [run], { org }), role('Below', [], { org, parent: 'Night' })],
          memberships: [member('Night', { org })],
        },
        { organizations: [], roles: [], memberships: [] },
        pruned,
        ['users:write', 'users:delete'],
      ],
      'where a provider is completed with a role that they do not reach, and is active then': [
        { roles: [role('Strong', [run])], ssoProviders: [provider] },
        { ssoProviders: [{ ...complete, status: 'active', defaultRole: 'Strong' }] },
        {},
        ['organizations:write'],
      ],
      'where the preset of a provider decides more than the files say': [
        { roles: [role('Strong', [run])], ssoProviders: [provider] },
        { ssoProviders: [{ ...provider, preset: 'okta', defaultRole: 'Strong' }] },
        {},
        ['organizations:write'],
      ],
      'where a role is put below one whose parent they may not change': [
        { roles: [role('A', [read]), role('B', [], { parent: 'A' }), role('C', [], { parent: 'B' })] },
        {
          roles: [
            role('A', [read], { parent: 'C' }),
            role('B', [run], { parent: null }),
            role('C', [], { parent: 'B' }),
          ],
        },
        {},
        ['users:write', 'users:delete'],
      ],
      'where two roles change places in the tree': [
        { roles: [role('A', [read]), role('B', [], { parent: 'A' })] },
        { roles: [role('B', [run], { parent: null }), role('A', [read], { parent: 'B' })] },
      ],
    }
    it.each(Object.entries(cases))('%s', async (_name, [before, files, options, more]) => {
      const { own, seen } = await planTwice(before, files, options, more)
      expect(seen.changes.map(({ refused }) => refused)).not.toContain(null)
      expect(seen.version).toBe(own.version)
    })
  })

  describe('what stands in the way as something else is refused', () => {
    it('is refused, and no fault of the files', async () => {
      const files = { sites: [], memberships: [member('Org Viewer', { sites: null })] }
      const before = {
        sites: [{ org: 'bakery', name: 'Annex' }],
        memberships: [member('Org Viewer', { sites: ['Annex'] })],
      }
      const { own, seen } = await planTwice(before, files, pruned, ['sites:write', 'sites:delete'])
      expect(own.totals).toMatchObject({ update: 1, delete: 1, refused: 0 })
      expect(seen.changes).toMatchObject([
        { section: 'memberships', refused: expect.stringContaining('users:write') },
        {
          section: 'sites',
          refused: 'what refers to it is to be changed or deleted first, which is refused',
        },
      ])
      expect(seen.version).toBe(own.version)
    })

    it('is so also for a role whose child they may not move', async () => {
      const before = { roles: [role('Top', [read]), role('Below', [], { parent: 'Top' })] }
      const files = { roles: [role('Below', [], { parent: 'Org Admin' })] }
      const held = ['users:write', 'users:delete', 'users:invite']
      const { own, seen } = await planTwice(before, files, pruned, held)
      expect(own.totals).toMatchObject({ update: 1, delete: 1, refused: 0 })
      expect(seen.totals).toMatchObject({ update: 1, delete: 1, refused: 2 })
      expect(seen.version).toBe(own.version)
    })

    it('is a fault where nothing refused has to do with it', async () => {
      const { service, world, acme, by } = await startWithHistory(open)
      await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] })
      await acme.apply({ memberships: [member('Org Viewer', { sites: ['Annex'] })] }, { set: 'people' })
      const held = [...reads, 'sites:write', 'sites:delete']
      const roleId = await addRole(service, { partnerId: world.partners.acme }, 'Reader', held)
      const reader = by(await addPartnerUser(service, 'reader', world.partners.acme, 'all', roleId))
      const files = { sites: [], roles: [role('Strong', [run])] }
      const fault = {
        path: 'body.document.sites',
        message: 'cannot delete "Annex": Site is still used by 1 membership',
      }
      await expect(acme.plan(files, pruned)).rejects.toMatchObject({ details: [fault] })
      await expect(reader.plan(files, pruned)).rejects.toMatchObject({
        details: expect.arrayContaining([fault]),
      })
    })

    it('is not told by the sets that have it, to whoever may not delete it', async () => {
      const { service, world, acme, by } = await startWithHistory(open)
      await acme.apply({ organizations: [florist] })
      await acme.apply({ sites: [{ org: 'florist', name: 'Annex' }] }, { set: 'secret' })
      const held = ['config:read', 'organizations:read']
      const roleId = await addRole(service, { partnerId: world.partners.acme }, 'Reader', held)
      const reader = by(await addPartnerUser(service, 'reader', world.partners.acme, 'all', roleId))
      const { changes } = await reader.plan({ organizations: [] }, pruned)
      expect(changes).toMatchObject([{ action: 'delete', name: 'florist', ends: null }])
      expect(JSON.stringify(changes)).not.toContain('secret')
    })
  })

  describe('somebody who may change nothing', () => {
    const start = async () => {
      const stage = await startWithHistory(open)
      const { service, world, by } = stage
      const roleId = await addRole(service, { partnerId: world.partners.acme }, 'Reader', reads)
      return {
        ...stage,
        reader: by(await addPartnerUser(service, 'reader', world.partners.acme, 'all', roleId)),
      }
    }
    const quentin = { email: 'quentin@example.com', name: 'Quentin', role: 'Partner Viewer' }
    const nameless = { email: quentin.email, role: quentin.role }

    it.each([
      ['no role', { email: quentin.email, name: quentin.name }, 'role'],
      ['no name', nameless, 'name'],
      ['no organizations to select', { ...quentin, orgAccess: 'selected' }, 'orgs'],
      ['organizations without selecting them', { ...quentin, orgs: ['bakery'] }, 'orgs'],
      [
        'access of a partner in an organization',
        { ...quentin, org: 'bakery', role: 'Org Viewer', orgAccess: 'all' },
        'orgAccess',
      ],
    ])('is told that a membership has %s', async (_, one, field) => {
      const { acme, reader } = await start()
      for (const who of [acme, reader])
        await expect(who.plan({ memberships: [one] })).rejects.toMatchObject({
          status: 400,
          details: expect.arrayContaining([
            expect.objectContaining({ path: `body.document.memberships.0.${field}` }),
          ]),
        })
    })

    it('is told what access cannot be changed to', async () => {
      const { acme, reader } = await start()
      await acme.apply({ memberships: [quentin] })
      const { orgAccess, orgs } = { orgAccess: 'all', orgs: ['bakery'] }
      for (const who of [acme, reader])
        await expect(who.plan({ memberships: [{ ...quentin, orgAccess, orgs }] })).rejects.toMatchObject({
          details: [{ path: 'body.document.memberships.0.orgs' }],
        })
      expect((await reader.plan({ memberships: [{ ...quentin, orgAccess }] })).totals).toMatchObject({
        update: 1,
        refused: 1,
      })
    })

    it('is told what somebody has renamed as the files call it now', async () => {
      const { acme, bakery, reader } = await start()
      await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] })
      const { data } = await bakery.client.call(api.sites.list, {})
      const { id } = data.find(({ name }) => name === 'Annex')!
      await bakery.client.call(api.sites.update, { params: { id }, body: { name: 'Depot' } })
      const { renamedByHand, version } = await acme.plan({ sites: [{ org: 'bakery', name: 'Depot' }] })
      expect(renamedByHand).toMatchObject([{ name: 'Depot', nameInFiles: 'Annex' }])
      const seen = await reader.plan({ sites: [{ org: 'bakery', name: 'Depot' }] })
      expect([seen.renamedByHand, seen.version]).toEqual([renamedByHand, version])
    })
  })
})

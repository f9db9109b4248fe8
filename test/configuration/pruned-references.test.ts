import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { kinds, type Section } from '../../src/configuration/contract.ts'
import { inTurn } from '../databases.ts'
import type { Document } from './fixture.ts'
import { lines, pruned, startWithHistory } from './history-fixture.ts'

const org = 'florist'
const florist = { slug: org, name: 'Florist' }
const ada = { org, email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }
const grace = { email: 'grace@example.com', name: 'Grace', role: 'Partner Viewer', orgAccess: 'selected' }
const conditions = {
  operator: 'AND',
  conditions: [{ field: 'status', operator: 'equals', value: 'online' }],
}
const okta = { org, name: 'Okta', type: 'oidc', issuer: 'https://okta.example.com', clientId: 'svc' }

const night = { org, name: 'Night', permissions: [] }

const whole: Document = {
  organizations: [florist, { slug: 'baker', name: 'Baker' }],
  sites: [
    { org, name: 'Shop' },
    { org, name: 'Depot' },
  ],
  roles: [
    night,
    { ...night, name: 'Top' },
    { ...night, name: 'Day', parent: 'Top' },
    { ...night, name: 'New' },
  ],
  filters: [{ org, name: 'Online', conditions }],
  deviceGroups: [
    { org, name: 'All' },
    { org, name: 'Below', parent: 'All' },
    { org, name: 'Tills', site: 'Shop' },
    { org, name: 'Online', type: 'dynamic', filter: 'Online' },
  ],
  memberships: [
    { ...ada, role: 'Night', sites: ['Depot'] },
    { ...ada, email: 'bob@example.com', deviceGroups: ['Tills'] },
    { ...grace, orgs: ['baker'] },
  ],
  ssoProviders: [{ ...okta, defaultRole: 'New' }],
}
/** For each field that names an object: where a file does, and what it names. */
const cases: Record<string, { at: string; names: string }> = {
  'roles.parent': { at: '1.parent', names: 'Top' },
  'deviceGroups.parent': { at: '0.parent', names: 'All' },
  'deviceGroups.site': { at: '2.site', names: 'Shop' },
  'deviceGroups.filter': { at: '3.filter', names: 'Online' },
  'memberships.role': { at: '0.role', names: 'Night' },
  'memberships.sites': { at: '0.sites.0', names: 'Depot' },
  'memberships.deviceGroups': { at: '1.deviceGroups.0', names: 'Tills' },
  'memberships.orgs': { at: '2.orgs.0', names: 'baker' },
  'ssoProviders.defaultRole': { at: '0.defaultRole', names: 'New' },
}

it('every field that names an object has a case', () => {
  const fields = Object.values(kinds).flatMap(({ section, fields: all }) =>
    all.filter(({ refersTo }) => refersTo !== undefined).map(({ name }) => `${section}.${name}`),
  )
  expect(Object.keys(cases).sort()).toEqual(fields.sort())
})

inTurn((open) => {
  describe('files that name what they have deleted', () => {
    it('are at fault at each name', async () => {
      const { acme } = await startWithHistory(open)
      await acme.apply(whole)
      expect((await acme.plan(whole, pruned)).changes).toEqual([])
      for (const [field, { at, names }] of Object.entries(cases)) {
        const [section, name] = field.split('.')
        const { refersTo } = kinds[section as Section].fields.find((one) => one.name === name)!
        const rest = whole[refersTo!]!.filter((one) => names !== (one.slug ?? one.name))
        const fault = {
          path: `body.document.${section}.${at}`,
          message: `names "${names}", which --prune deletes: keep it among the ${refersTo}, or leave this out`,
        }
        await expect(acme.plan({ ...whole, [refersTo!]: rest }, pruned), field).rejects.toMatchObject({
          status: 400,
          details: expect.arrayContaining([fault]),
        })
      }
    })

    it('keep an organization in which they have something, or say so at each place', async () => {
      const { acme } = await startWithHistory(open)
      const inIt = {
        sites: [{ org, name: 'Shop' }],
        roles: [{ org, name: 'Night', permissions: ['devices:read'] }],
        memberships: [{ ...ada, role: 'Night' }],
      }
      await acme.apply({ organizations: [florist] })
      const failure = await acme
        .apply({ organizations: [], ...inIt }, pruned)
        .catch((error: unknown) => error)
      expect(failure).toMatchObject({
        status: 400,
        details: ['memberships', 'roles', 'sites'].map((section) => ({
          path: `body.document.${section}.0.org`,
          message:
            'names "florist", which --prune deletes: keep it among the organizations, or leave this out',
        })),
      })
      // Another gets its slug: what is in it is of that one.
      const other = { slug: org, name: 'Roses', renamedFrom: 'roses' }
      await acme.apply({ organizations: [florist, { slug: 'roses', name: 'Roses' }], ...inIt })
      const passed = { organizations: [other], ...inIt }
      const { changes } = await acme.apply(passed, pruned)
      expect(changes.map(({ action, section }) => `${action} ${section}`)).toEqual([
        'update organizations',
        'create sites',
        'create roles',
        'create memberships',
        'delete sites',
        'delete organizations',
      ])
      expect((await acme.plan(passed, pruned)).changes).toEqual([])
    })

    it('say nothing more of what is at fault itself', async () => {
      const { acme } = await startWithHistory(open)
      const sites = [{ org, name: 'Shop' }]
      await acme.apply({ organizations: [florist], sites })
      const wrong = { organizations: [{ ...florist, maxDevices: 'many' }], sites }
      await expect(acme.plan(wrong, pruned)).rejects.toMatchObject({
        details: [{ path: 'body.document.organizations.0.maxDevices' }],
      })
    })

    it('means the built-in role of the same name once the own one is deleted', async () => {
      const { bakery } = await startWithHistory(open)
      await bakery.apply({ roles: [{ name: 'Org Viewer', permissions: ['devices:read'] }] })
      const files = {
        roles: [],
        memberships: [{ email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }],
      }
      const { changes } = await bakery.apply(files, pruned)
      expect(changes.map(({ action, section }) => [action, section])).toEqual([
        ['create', 'memberships'],
        ['delete', 'roles'],
      ])
      expect((await bakery.plan(files, pruned)).changes).toEqual([])
    })

    it('is deleted together with a filter that has a condition on it', async () => {
      const { acme, bakery } = await startWithHistory(open)
      const group = { org: 'bakery', name: 'Tills' }
      await acme.apply({ deviceGroups: [group] })
      const { data } = await bakery.client.call(api.deviceGroups.list, { query: {} })
      const { id: value } = data.find(({ name }) => name === 'Tills')!
      const inGroup = { operator: 'AND', conditions: [{ field: 'groupId', operator: 'equals', value }] }
      const filter = { org: 'bakery', name: 'In group', conditions: inGroup }
      await acme.apply({ deviceGroups: [group], filters: [filter] })
      await expect(acme.plan({ deviceGroups: [] }, pruned)).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('1 saved filter has a condition on it') }],
      })
      const { changes } = await acme.apply({ deviceGroups: [], filters: [] }, pruned)
      expect(lines(changes)).toEqual(['delete filters In group', 'delete deviceGroups Tills'])
    })
  })
})

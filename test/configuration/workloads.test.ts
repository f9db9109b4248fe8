import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { type Kind, kinds, type Section, sections } from '../../src/configuration/contract.ts'
import { endingsOfDeletion } from '../../src/configuration/endings.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { permissions as every } from '../../src/core/permissions.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import { inTurn } from '../databases.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { start } from '../trust/trust-fixture.ts'
import { configurationOf, type Document } from './fixture.ts'

const isOpen = ({ access }: Endpoint, to: 'organization') =>
  access.who === 'user' && access.scopes.includes(to)
const permissionOf = ({ access }: Endpoint) => (access.who === 'user' && access.permission) || undefined

/** Every entry that files call for objects of a kind. */
const calledFor = ({
  section,
  list,
  create,
  whyNotCreated,
  update,
  remove,
  parts = [],
}: Kind): Endpoint[] => [
  ...[list, update, remove].filter((entry) => entry !== undefined),
  ...endingsOfDeletion(section).map(({ shownTo }) => shownTo),
  ...(whyNotCreated === undefined ? [create] : []),
  ...parts.flatMap(({ entry, shownBy }) => [entry, ...(shownBy ? [shownBy] : [])]),
]

/** What the objects of these kinds grant: whoever makes them has to hold it. */
const granted: Partial<Record<Section, readonly string[]>> = {
  roles: ['devices:read'],
  memberships: builtInRoles.find(({ name }) => name === 'Org Viewer')!.permissions,
  trustPolicies: ['organizations:read', 'organizations:write'],
}

/** The permissions with which files of a kind are planned, and those with which they are applied. */
function neededFor(kind: Kind): { plan: string[]; apply: string[] } {
  const referred = kind.fields.flatMap(({ refersTo }) => (refersTo ? [kinds[refersTo].list] : []))
  const named = (entries: Endpoint[]) => entries.map(permissionOf).filter((one) => one !== undefined)
  const plan = ['config:read', ...named([kind.list, ...referred])]
  const apply = [...plan, 'config:apply', ...named(calledFor(kind)), ...(granted[kind.section] ?? [])]
  return { plan: [...new Set(plan)], apply: [...new Set(apply)] }
}

/** An object that a file makes, from one that there is; or that one, where files make none. */
function objectOf(kind: Kind, objects: Record<string, unknown>[]): Record<string, unknown> {
  const plain = objects.find(({ role }) => role === undefined || role === 'Org Viewer')
  if (!plain) throw new Error(`addOrg() of test/world.ts makes none of ${kind.section}`)
  if (kind.whyNotCreated !== undefined) return plain
  const needed = Object.keys(kind.needed ?? {}).map((name) => [name, null])
  return { ...plain, ...Object.fromEntries(needed), [kind.key]: `copy-of-${String(plain[kind.key])}` }
}

inTurn((open) => {
  const begin = async () => {
    const stage = await start(open)
    const { create, exchange, tokenOf, service, system, bakery } = stage
    const by = configurationOf(service)
    /** The files of a job that has signed in by a policy with these permissions. */
    const job = async (permissions: readonly string[], orgId = bakery.id) => {
      const body = { orgId, permissions: [...permissions], name: `policy ${permissions.length}` }
      const { id: policyId } = await create(body, system)
      const { accessToken } = await exchange(await tokenOf(), { orgId, policyId })
      return { ...by(accessToken), policyId, token: accessToken }
    }
    return { ...stage, by, job }
  }

  describe('a workload', () => {
    it.each(sections)('with the permissions of a person does the same with %s', async (section) => {
      const kind = kinds[section]
      const { service, world, by, job, garage, harbor } = await begin()
      const { plan: reads, apply: writes } = neededFor(kind)
      const without = every.filter((one) => one !== permissionOf(kind.list))
      const refused = `You may not read ${section}: `
      if (!isOpen(kind.list, 'organization')) {
        const answer = kind.wholePartner
          ? { status: 400, message: expect.stringContaining('is of the partner') }
          : { status: 403, message: expect.stringContaining(refused) }
        for (const permissions of [writes, every])
          await expect((await job(permissions)).plan({ [section]: [] })).rejects.toMatchObject(answer)
        return
      }
      const { document } = await by(world.tokens.bakery).exported()
      const files: Document = { [section]: [objectOf(kind, document[section]!)] }
      const adopt = { adopt: true }

      // Only the list of the kind is missing.
      const blind = await job(without)
      for (const call of [() => blind.plan(files, adopt), () => blind.apply(files, adopt, 'any')])
        await expect(call()).rejects.toMatchObject({ status: 403, message: expect.stringContaining(refused) })
      expect((await blind.exported()).document[section]).toBeUndefined()

      // Of another organization, of the same partner or another, with every permission there.
      for (const orgId of [garage.id, harbor.id]) {
        const stranger = await job(every, orgId)
        await expect(stranger.plan(files, adopt)).rejects.toMatchObject({
          details: [{ message: 'there is no organization "bakery" that you can see' }],
        })
        const elsewhere = by(stranger.token, world.orgs.bakery.id)
        await expect(elsewhere.plan(files, adopt)).rejects.toMatchObject({ code: 'org_access_denied' })
      }

      const reader = await job(reads)
      const before = await dump(service.storage)
      const planned = await reader.plan(files, adopt)
      const about = { action: kind.whyNotCreated === undefined ? 'create' : 'adopt', section, org: 'bakery' }
      const needed = permissionOf(kind.whyNotCreated === undefined ? kind.create : kind.update)
      expect(planned.changes[0]).toMatchObject({ ...about, refused: `Permission denied: ${needed}` })
      await expect(reader.apply(files, adopt, planned.version)).rejects.toMatchObject({ status: 403 })
      expect(changed(before, await dump(service.storage))).toEqual([])

      const main = await job(writes)
      const news = await newEntries(service)
      const made = await main.apply(files, adopt)
      expect(made.changes).toMatchObject([{ ...about, refused: null }])
      expect((await main.plan(files)).changes).toEqual([])
      expect((await main.apply({ [section]: [] }, { prune: true })).changes).toMatchObject([
        { ...about, action: 'delete', refused: null },
      ])
      const entries = await news()
      expect(entries.length).toBeGreaterThan(3)
      for (const entry of entries)
        expect(entry).toMatchObject({
          result: 'success',
          actorType: 'api_key',
          actorId: main.policyId,
          details: { workload: { policy: expect.stringContaining('policy'), run: expect.any(String) } },
        })
    })
  })
})

const names = (entries: readonly Endpoint[]) =>
  entriesOf(api)
    .filter(({ entry }) => entries.includes(entry))
    .map(({ name }) => name)

it('what is open to workloads in files alone is what files call', () => {
  const reached = sections.filter((section) => isOpen(kinds[section].list, 'organization'))
  const called = [...reached.flatMap((section) => calledFor(kinds[section])), api.auditLogs.show]
  const expected = called.filter((entry) => isOpen(entry, 'organization'))
  const open = entriesOf(api).map(({ entry }) => entry)
  const isInFiles = ({ access }: Endpoint) => access.who === 'user' && access.workload === 'files'
  const isAlways = ({ access }: Endpoint) => access.who === 'user' && access.workload === true
  expect(names(open.filter(isInFiles))).toEqual(names(expected.filter((entry) => !isAlways(entry))))
})

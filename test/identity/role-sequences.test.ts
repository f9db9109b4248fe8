import fc from 'fast-check'
import { beforeAll, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { ApiError } from '../../src/core/client.ts'
import { newId } from '../../src/core/new-id.ts'
import { permissions as every } from '../../src/core/permissions.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { insertUser } from '../../src/identity/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth, seed as firstSeed } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { systemToken, tokenFor } from '../world.ts'
import { pairs } from './role-helpers.ts'

/** A partner and two of its organizations. */
const places = ['partner', 'home', 'next'] as const
type Place = (typeof places)[number]

type Node = { place: Place; parent: number | null; permissions: string[]; forceMfa: boolean }
type Change = { permissions?: string[]; parent?: number | null; forceMfa?: boolean; name?: string }
type Step = { actor: number; place: Place; role: number; user: number } & (
  | { act: 'create'; node: Omit<Node, 'place'> }
  | { act: 'update'; change: Change }
  | { act: 'remove' | 'clone' | 'assign' | 'invite' }
)
type Case = { staff: string[][]; nodes: Node[]; holders: number[]; steps: Step[] }

/** The actors: two of an organization, one of the partner, and a system administrator. */
const actors: readonly (Place | 'system')[] = ['home', 'home', 'partner', 'system']
const staff = 3
const nodes = 9

const pool = ['devices:read', 'devices:write', 'scripts:read', 'sites:write', 'audit:read', 'users:read']
const existing = [...pool, ...pool, ...pool, 'devices:*', '*:read', '*:*']
const grantable = [...pool, ...pool, ...pool, '*:*']
const some = (from: string[]) => fc.uniqueArray(fc.constantFrom(...from), { maxLength: 2 })
const parent = fc.option(fc.nat(20), { freq: 2 })
const forceMfa = fc.constantFrom(false, false, false, true)

const fields = {
  permissions: some(grantable),
  parent,
  forceMfa: fc.boolean(),
  name: fc.constantFrom('one', 'two'),
}
/** Often a single field: the check of one field could hide a missing check of another. */
const change: fc.Arbitrary<Change> = fc.oneof(
  ...Object.entries(fields).map(([name, value]) => fc.record({ [name]: value } as typeof fields)),
  fc.record(fields, { requiredKeys: [] }),
)

const step: fc.Arbitrary<Step> = fc
  .record({
    actor: fc.constantFrom(0, 0, 0, 1, 1, 2, 2, 3),
    place: fc.constantFrom(...places),
    role: fc.nat(40),
    user: fc.nat(40),
    act: fc.constantFrom(
      'create',
      ...Array<'update'>(5).fill('update'),
      'remove',
      'clone',
      'assign',
      'invite',
    ),
    node: fc.record({ parent, permissions: some(grantable), forceMfa }),
    change,
  })
  .map((one) => one as Step)

const anyCase: fc.Arbitrary<Case> = fc.record({
  staff: fc.array(
    fc.uniqueArray(fc.constantFrom(...pool, 'devices:*', '*:read'), { minLength: 3, maxLength: 6 }),
    { minLength: staff, maxLength: staff },
  ),
  nodes: fc.array(
    fc.record({
      place: fc.constantFrom('home', 'home', 'partner', 'next'),
      parent,
      permissions: some(existing),
      forceMfa,
    }),
    { minLength: nodes, maxLength: nodes },
  ),
  holders: fc.array(fc.nat(20), { minLength: 4, maxLength: 4 }),
  steps: fc.array(step, { minLength: 16, maxLength: 24 }),
})

/** The permissions without wildcards; `*:*` also stays, as it is more than all permissions of today. */
function expanded(permissions: Iterable<string>): Set<string> {
  const all = new Set<string>()
  for (const one of permissions) {
    const [resource, action] = one.split(':')
    for (const each of every) {
      const [its, deed] = each.split(':')
      if ((resource === '*' || resource === its) && (action === '*' || action === deed)) all.add(each)
    }
    if (one === '*:*') all.add('*:*')
  }
  return all
}

type Known = { name: string; parent: string | null; own: string[]; forceMfa: boolean; home: string }
type State = { roles: Map<string, Known>; held: Map<string, string> }

/** The role and its ancestors, read from the tables. */
function above(state: State, id: string): Known[] {
  const found: Known[] = []
  for (let at: string | null = id; at !== null; at = found.at(-1)!.parent) found.push(state.roles.get(at)!)
  return found
}
const powerOf = (state: State, id: string) => expanded(above(state, id).flatMap(({ own }) => own))
const guarded = (state: State, id: string) => above(state, id).some((one) => one.forceMfa)

const builtIn = (scope: string) => `built-in ${scope}`

/** All properties of a role and its effects on holders, in one string. */
const faceOf = (state: State, id: string) =>
  JSON.stringify([state.roles.get(id), [...powerOf(state, id)].sort(), guarded(state, id)])

const runs = depth(10, 25)

onEveryDatabase((kind, open) => {
  // The rules do not depend on the database, so each tries different cases.
  const seed = kind === 'sqlite' ? firstSeed : firstSeed + 1
  let service: TestService
  let system: string
  beforeAll(async () => {
    service = await startService(open)
    system = await systemToken(service)
    return () => service.close()
  })

  /** Creates new tenants for a case, with role trees, actors and holders. */
  async function enact({ staff: powers, nodes, holders }: Case) {
    const client = service.client(system)
    const slug = newId()
    const partnerId = (await client.call(api.partners.create, { body: { name: 'p', slug } })).id
    const org = async (name: string) =>
      (await client.call(api.orgs.create, { body: { partnerId, name, slug: name } })).id
    const ids = { partner: partnerId, home: await org('home'), next: await org('next') }
    const now = new Date().toISOString()
    const made: { id: string; place: Place }[] = []
    const users: { id: string; place: Place }[] = []
    await service.storage.write(async (tx) => {
      const add = async (place: Place, parent: number | null, granted: readonly string[], force: boolean) => {
        const id = newId()
        const near = made.filter((one) => one.place === place)
        const isPartner = place === 'partner'
        const above = parent === null || near.length === 0 ? null : near[parent % near.length]!.id
        await tx
          .insertInto('roles')
          .values({
            id,
            partner_id: isPartner ? partnerId : null,
            org_id: isPartner ? null : ids[place],
            parent_role_id: above,
            scope: isPartner ? 'partner' : 'organization',
            name: id,
            description: null,
            is_system: 0,
            force_mfa: force ? 1 : 0,
            created_at: now,
            updated_at: now,
          })
          .execute()
        const rows = granted.map((permission) => ({ role_id: id, permission }))
        if (rows.length > 0) await tx.insertInto('role_permissions').values(rows).execute()
        made.push({ id, place })
        return id
      }
      const join = async (place: Place, roleId: string) => {
        const userId = newId()
        const account = { id: userId, email: `${userId}@example.com`, name: 'someone', passwordHash: null }
        await insertUser(tx, account, now)
        await tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', userId).execute()
        if (place === 'partner') await joinPartner(tx, { partnerId, userId, roleId, orgs: 'all' }, now)
        else await joinOrganization(tx, { orgId: ids[place], userId, roleId, siteIds: null }, now)
        users.push({ id: userId, place })
      }
      for (const { place, parent, permissions, forceMfa } of nodes) {
        await add(place, parent, permissions, forceMfa)
      }
      // The roles of the actors are in the trees too: an actor might change what they inherit, and must not.
      const manages = ['users:read', 'users:write', 'users:delete', 'users:invite']
      for (const [i, granted] of powers.entries()) {
        const place = actors[i] as Place
        await join(
          place,
          await add(place, i % 2 === 0 ? null : i, [...new Set([...manages, ...granted])], false),
        )
      }
      for (const at of holders) {
        const role = made[at % made.length]!
        await join(role.place, role.id)
      }
    })
    const contextOf = (place: Place): SessionContext =>
      place === 'partner' ? { kind: 'partner', partnerId } : { kind: 'organization', orgId: ids[place] }
    const tokens = await Promise.all(
      users.slice(0, staff).map(({ id, place }) => tokenFor(service, id, contextOf(place))),
    )
    return { ids, users, tokens: [...tokens, system] }
  }

  async function read(ids: Record<Place, string>): Promise<State> {
    const db = service.storage.read
    const orgs = [ids.home, ids.next]
    const rows = await db
      .selectFrom('roles')
      .leftJoin('role_permissions as p', 'p.role_id', 'roles.id')
      .select(['id', 'name', 'parent_role_id', 'force_mfa', 'org_id', 'partner_id', 'scope', 'permission'])
      .where((eb) =>
        eb.or([eb('partner_id', '=', ids.partner), eb('org_id', 'in', orgs), eb('is_system', '=', 1)]),
      )
      .orderBy('id')
      .orderBy('permission')
      .execute()
    const roles = new Map<string, Known>()
    for (const row of rows) {
      const { name, parent_role_id: parent } = row
      const home = row.org_id ?? row.partner_id ?? builtIn(row.scope)
      const role = roles.get(row.id) ?? { name, parent, own: [], forceMfa: row.force_mfa === 1, home }
      if (row.permission !== null) role.own.push(row.permission)
      roles.set(row.id, role)
    }
    const members = [
      ...(await db
        .selectFrom('organization_memberships')
        .select(['user_id', 'role_id'])
        .where('org_id', 'in', orgs)
        .execute()),
      ...(await db
        .selectFrom('partner_memberships')
        .select(['user_id', 'role_id'])
        .where('partner_id', '=', ids.partner)
        .execute()),
    ]
    return { roles, held: new Map(members.map((one) => [one.user_id, one.role_id])) }
  }

  it('no sequence of changes grants more than its authors hold, or changes a role that grants more', async () => {
    console.log(`fast-check seed ${seed} (SEED=${firstSeed} runs the same cases)`)
    const counts = new Map<string, number>()

    const property = fc.asyncProperty(anyCase, async (one) => {
      const { ids, users, tokens } = await enact(one)
      let before = await read(ids)
      for (const step of one.steps) {
        const client = service.client(tokens[step.actor]!)
        const from = actors[step.actor]!
        const roleIds = [...before.roles.keys()]
        const reach = from === 'home' ? [ids.home] : Object.values(ids)
        const own = roleIds.filter((id) => reach.includes(before.roles.get(id)!.home))
        const theirs = step.act === 'clone' || step.role % 8 === 0 ? roleIds : own
        const roleId = theirs[step.role % theirs.length]!
        const place = places.find((one) => ids[one] === before.roles.get(roleId)!.home) ?? step.place
        const tenant = (at: Place) =>
          at === 'partner' ? (from === 'system' ? { partnerId: ids.partner } : {}) : { orgId: ids[at] }
        const near = (n: number, at: Place) => {
          const homes = [ids[at], builtIn(at === 'partner' ? 'partner' : 'organization')]
          const there = roleIds.filter((id) => homes.includes(before.roles.get(id)!.home))
          return there[n % there.length]!
        }
        const parentRoleId = (n: number | null, at: Place) => (n === null ? null : near(n, at))
        const params = { id: roleId }
        const run = (): Promise<unknown> => {
          if (step.act === 'create') {
            const { parent, permissions, forceMfa } = step.node
            const body = { permissions: pairs(...permissions), forceMfa, name: 'made' }
            const under = { parentRoleId: parentRoleId(parent, step.place) }
            return client.call(api.roles.create, { body: { ...tenant(step.place), ...body, ...under } })
          }
          if (step.act === 'update') {
            const { permissions, parent, ...rest } = step.change
            const body = {
              ...rest,
              ...(permissions && { permissions: pairs(...permissions) }),
              ...(parent !== undefined && { parentRoleId: parentRoleId(parent, place) }),
            }
            return client.call(api.roles.update, { params, body })
          }
          if (step.act === 'remove') return client.call(api.roles.remove, { params })
          if (step.act === 'clone') {
            return client.call(api.roles.clone, { params, body: { name: 'copy', ...tenant(place) } })
          }
          if (step.act === 'assign') {
            const user = users[step.user % users.length]!
            const body = { roleId: near(step.role, user.place) }
            return client.call(api.users.assignRole, { params: { id: user.id }, body })
          }
          const someone = { email: `${newId()}@example.com`, name: 'someone' }
          const body = { ...tenant(step.place), ...someone, roleId: near(step.role, step.place) }
          return client.call(api.users.invite, { body })
        }

        const mine = from === 'system' ? undefined : users[step.actor]!.id
        const held = mine === undefined ? new Set([...every, '*:*']) : powerOf(before, before.held.get(mine)!)
        const beyond = (power: Set<string>) => [...power].filter((one) => !held.has(one))
        const refusal = await run().then(
          () => undefined,
          (error: unknown) => {
            if (error instanceof ApiError) return error
            throw error
          },
        )
        const after = await read(ids)
        const name = `${step.act} ${refusal ? refusal.status : 'done'}`
        counts.set(name, (counts.get(name) ?? 0) + 1)
        const context = JSON.stringify({ step, refusal: refusal?.message, roleId })
        if (refusal) {
          expect(refusal.status, context).toBeLessThan(500)
          expect([...after.held], context).toEqual([...before.held])
          expect([...after.roles], context).toEqual([...before.roles])
          const { lacking } = (refusal.details ?? {}) as { lacking?: string[] }
          // Nobody is refused for a permission that they hold.
          const mistaken = (lacking ?? []).filter((one) => !one.includes('*') && held.has(one))
          expect(mistaken, context).toEqual([])
        }
        for (const id of new Set([...before.roles.keys(), ...after.roles.keys()])) {
          const [was, is] = [before.roles.has(id), after.roles.has(id)]
          if (was && is && faceOf(before, id) === faceOf(after, id)) continue
          // The actor holds all that the role and its ancestors granted before and grant now.
          if (was) expect(beyond(powerOf(before, id)), `${context} of ${id}`).toEqual([])
          if (is) expect(beyond(powerOf(after, id)), `${context} of ${id}`).toEqual([])
          const { home } = (before.roles.get(id) ?? after.roles.get(id))!
          expect(reach, context).toContain(home)
        }
        for (const [user, role] of after.held) {
          const earlier = before.held.get(user)
          const had = earlier === undefined ? new Set<string>() : powerOf(before, earlier)
          const has = powerOf(after, role)
          const gained = [...has].filter((one) => !had.has(one))
          expect(
            gained.filter((one) => !held.has(one)),
            context,
          ).toEqual([])
          const lost = [...had].filter((one) => !has.has(one))
          expect(
            lost.filter((one) => !held.has(one)),
            context,
          ).toEqual([])
          if (user === mine) expect([gained, lost], context).toEqual([[], []])
        }
        before = after
      }
    })
    await fc.assert(property, { seed, numRuns: runs, interruptAfterTimeLimit: 100_000, endOnFailure: true })

    // Every action was both done and refused; otherwise the generated cases are too simple.
    for (const act of ['create', 'update', 'remove', 'clone', 'assign', 'invite']) {
      expect(counts.get(`${act} done`), act).toBeGreaterThan(0)
      expect(counts.get(`${act} 403`), act).toBeGreaterThan(0)
    }
  })
})

import fc from 'fast-check'
import { Pool } from 'undici'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { permissions } from '../../src/core/permissions.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { insertUser } from '../../src/identity/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth, seed } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld, tokenFor, type World } from '../world.ts'

/** A random tree: each role may inherit from an earlier one. */
type Node = { parent: number | null; permissions: string[]; forceMfa: boolean }
type Person = {
  role: number
  place: 'partner' | 'plain' | 'strict' | 'suspended' | 'system'
  orgAccess: 'all' | 'selected' | 'none'
  factor: boolean
  claim: boolean
  disabled: boolean
}
type Case = { nodes: Node[]; people: Person[] }

const pool = [...permissions, ...permissions, '*:*', 'devices:*', 'users:*', '*:read', '*:write']

const node: fc.Arbitrary<Node> = fc.record({
  parent: fc.option(fc.nat(5), { freq: 3 }),
  permissions: fc.uniqueArray(fc.constantFrom(...pool), { maxLength: 5 }),
  forceMfa: fc.constantFrom(false, false, false, true),
})
const person: fc.Arbitrary<Person> = fc.record({
  role: fc.nat(5),
  place: fc.constantFrom('partner', 'partner', 'plain', 'plain', 'plain', 'strict', 'suspended', 'system'),
  orgAccess: fc.constantFrom('all', 'all', 'selected', 'none'),
  factor: fc.boolean(),
  claim: fc.boolean(),
  disabled: fc.constantFrom(...Array<boolean>(9).fill(false), true),
})
const people = 8
const trees = { sqlite: depth(6, 26), postgres: depth(2, 26) }
const anyCase: fc.Arbitrary<Case> = fc.record({
  nodes: fc.array(node, { minLength: 1, maxLength: 6 }),
  people: fc.array(person, { minLength: people, maxLength: people }),
})

/** What few random cases have: who sees some organizations of a partner and holds what is closed to them, and who is suspended. */
const limited: Case = {
  nodes: [{ parent: null, forceMfa: false, permissions: [...permissions] }],
  people: (
    ['partner', 'partner', 'partner', 'plain', 'plain', 'strict', 'suspended', 'suspended'] as const
  ).map((place) => ({
    role: 0,
    place,
    orgAccess: 'selected',
    factor: true,
    claim: true,
    disabled: false,
  })),
}

/** Codes of refusals that depend on the caller only, before the request itself is examined. */
const refusals = new Set([
  'unauthenticated',
  'invalid_token',
  'invalid_agent_credentials',
  'account_inactive',
  'tenant_inactive',
  'mfa_enrollment_required',
  'scope_not_allowed',
  'forbidden',
  'partner_access_limited',
  'mfa_required',
])
const entries = entriesOf(api)

onEveryDatabase((kind, open) => {
  let service: TestService
  let world: World
  let line: Pool
  const orgs: Record<string, string> = {}

  beforeAll(async () => {
    service = await startService(open)
    world = await buildWorld(service)
    line = new Pool(service.url, { connections: 16 })
    const client = service.client(world.tokens.system)
    const org = async (slug: string, more: object) =>
      (
        await client.call(api.orgs.create, {
          body: { partnerId: world.partners.acme, name: slug, slug, ...more },
        })
      ).id
    orgs.plain = await org('plain', {})
    orgs.strict = await org('strict', { settings: { security: { requireMfa: true } } })
    orgs.suspended = await org('suspended', { status: 'suspended' })
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  const ask = async (method: string, path: string, token: string) => {
    const headers = { authorization: `Bearer ${token}` }
    const reply = await line.request({ method: method as 'GET', path: `/api/v1${path}`, headers })
    // A redirect has no body.
    const body = JSON.parse((await reply.body.text()) || '{}') as Record<string, unknown>
    return { status: reply.statusCode, body }
  }

  /** Writes the role trees of both scopes and their holders to the database. */
  async function enact({ nodes, people }: Case) {
    const now = new Date().toISOString()
    const made: { id: string; token: () => Promise<string>; person: Person }[] = []
    await service.storage.write(async (tx) => {
      const roleIds: Record<string, string[]> = {}
      for (const place of ['partner', 'plain', 'strict', 'suspended']) {
        const ids = nodes.map(() => newId())
        roleIds[place] = ids
        for (const [i, { parent, forceMfa, permissions: granted }] of nodes.entries()) {
          await tx
            .insertInto('roles')
            .values({
              id: ids[i]!,
              partner_id: place === 'partner' ? world.partners.acme : null,
              org_id: orgs[place] ?? null,
              parent_role_id: parent !== null && i > 0 ? ids[parent % i]! : null,
              scope: place === 'partner' ? 'partner' : 'organization',
              name: `role ${i}`,
              description: null,
              is_system: 0,
              force_mfa: forceMfa ? 1 : 0,
              created_at: now,
              updated_at: now,
            })
            .execute()
          const rows = granted.map((permission) => ({ role_id: ids[i]!, permission }))
          if (rows.length > 0) await tx.insertInto('role_permissions').values(rows).execute()
        }
      }
      for (const one of people) {
        const userId = newId()
        const isSystem = one.place === 'system'
        const status = one.disabled ? 'disabled' : 'active'
        const account = { id: userId, email: `${userId}@example.com`, name: 'someone', passwordHash: null }
        await insertUser(tx, { ...account, isSystem, status }, now)
        if (one.factor)
          await tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', userId).execute()
        const roleId = roleIds[one.place]?.[one.role % nodes.length] ?? ''
        let context: SessionContext = { kind: 'system' }
        if (one.place === 'partner') {
          const partnerId = world.partners.acme
          const granted = { all: 'all', selected: [orgs.plain!], none: [] }[one.orgAccess] as 'all' | string[]
          await joinPartner(tx, { partnerId, userId, roleId, orgs: granted }, now)
          context = { kind: 'partner', partnerId }
        } else if (!isSystem) {
          const orgId = orgs[one.place]!
          await joinOrganization(tx, { orgId, userId, roleId, siteIds: null }, now)
          context = { kind: 'organization', orgId }
        }
        made.push({
          id: userId,
          person: one,
          token: () => tokenFor(service, userId, context, { mfa: one.claim }),
        })
      }
    })
    return Promise.all(made.map(async (one) => ({ ...one, token: await one.token() })))
  }

  it('explain predicts the outcome of each request, for all routes, role trees and people', {
    timeout: 180_000,
  }, async () => {
    console.log(`fast-check seed ${seed} (SEED=${seed} runs the same cases)`)
    const seen = { people: 0, cases: 0, routes: new Map<string, number>(), codes: new Map<string, number>() }

    const check = async (id: string, token: string, claim: boolean) => {
      // Routes with equal access rules get equal verdicts, so each verdict is requested once.
      const verdicts = new Map<string, ReturnType<typeof ask>>()
      const explain = (method: string, path: string, by: string, userId: string) => {
        const query = new URLSearchParams({ method, path, userId, mfa: String(claim) })
        return ask('GET', `/permissions/explain?${query}`, by)
      }
      const turn = seen.people++
      const one = entries[turn % entries.length]!.entry
      // Each person tries a third of the routes, the next person another third.
      const tried = entries.filter(({ entry }, index) => entry === one || (index + turn) % 3 === 0)
      const own = await explain(one.method, one.path, token, id)
      await Promise.all(
        tried.map(async ({ name, entry }) => {
          const { method, access } = entry
          const path = entry.path.replace(/:\w+/g, newId())
          const key = JSON.stringify(access)
          const verdict = verdicts.get(key) ?? explain(method, path, world.tokens.system, id)
          verdicts.set(key, verdict)
          // No route has this parameter, so an allowed request changes nothing. Callbacks of providers accept
          // any parameter.
          const asked = await ask(method, `${path}?aFieldOfNobody=1`, token)
          const { allowed, status, code, reason } = (await verdict).body
          const refused = refusals.has(String(asked.body.code))
          const real = refused
            ? { allowed: false, status: asked.status, code: asked.body.code }
            : {
                allowed: asked.status === 400 || (entry.redirects === true && asked.status === 302),
                status: null,
                code: null,
              }
          expect({ name, allowed, status, code }, JSON.stringify(asked.body)).toEqual({ name, ...real })
          expect(reason).toMatch(/^(It|The|A|Neither) .{8}/)
          if (entry === one && own.status === 200) expect(own.body).toMatchObject({ ...real, reason })
          seen.routes.set(name, (seen.routes.get(name) ?? 0) + 1)
          const said = String(code ?? 'allowed')
          seen.codes.set(said, (seen.codes.get(said) ?? 0) + 1)
        }),
      )
    }

    const property = fc.asyncProperty(anyCase, async (one) => {
      const made = await enact(one)
      await Promise.all(made.map(({ id, token, person: { claim } }) => check(id, token, claim)))
      seen.cases += made.length
    })
    await fc.assert(property, {
      seed,
      numRuns: trees[kind],
      interruptAfterTimeLimit: 120_000,
      examples: [[limited]],
    })

    expect(seen.cases).toBeGreaterThanOrEqual(trees[kind] * people)
    expect(seen.routes.size).toBe(entries.length)
    expect(Math.min(...seen.routes.values())).toBeGreaterThanOrEqual(trees[kind] * 2)
    // Every code occurred; otherwise the generated cases are too simple.
    expect([...seen.codes.keys()].sort()).toEqual(
      ['allowed', ...refusals].filter((code) => !/^(unauthenticated|invalid_token)$/.test(code)).sort(),
    )
  })

  it('explain finds every route by its path, with or without filled-in parameters', async () => {
    for (const { name, entry } of entries) {
      const filled = entry.path.replace(/:\w+/g, newId())
      for (const path of [entry.path, filled, `/api/v1${filled}/?page=1`]) {
        const query = new URLSearchParams({ method: entry.method, path })
        const { body } = await ask('GET', `/permissions/explain?${query}`, world.tokens.system)
        expect([name, path, body.operation]).toEqual([name, path, name])
      }
    }
    const lost = await ask('GET', '/permissions/explain?method=GET&path=/nowhere', world.tokens.system)
    expect(lost).toMatchObject({ status: 404, body: { error: 'There is no route GET /nowhere' } })
  })
})

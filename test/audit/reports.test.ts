import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { AuditEntry } from '../../src/audit/contract.ts'
import { categoryOf, complianceEvents, expandAction, securityEvents } from '../../src/audit/rules.ts'
import type { Client } from '../../src/core/client.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { happening, recorded } from './rows.ts'

it('reports are read queries: they have a time limit, and leave room for other tenants', () => {
  for (const [name, entry] of Object.entries(api.auditReports))
    expect([name, entry.readQuery]).toEqual([name, true])
})

describe('the category of an action', () => {
  it.each([
    ['user.login', 'authentication'],
    ['user.login.failed', 'authentication'],
    ['user.logout', 'authentication'],
    ['user.permission.change', 'authentication'],
    ['user.update', 'system'],
    ['device.create', 'device'],
    ['device_group.create', 'system'],
    ['script.execute', 'automation'],
    ['policy.update', 'policy'],
    ['automation.policy.evaluate', 'policy'],
    ['automation.run', 'system'],
    ['alert.create', 'alert'],
    ['data.export', 'compliance'],
    ['organization.update', 'organization'],
    ['api_key.create', 'system'],
  ])('%s is %s', (action, category) => {
    expect(categoryOf(action)).toBe(category)
  })
})

const actions = [
  ...new Set([
    ...securityEvents,
    ...complianceEvents,
    'site.create',
    'user.logout',
    'user.role.assign',
    'user.access.update',
    'agent.enroll',
  ]),
]

/** A deterministic pseudo-random number. */
const pseudoRandom = (n: number, of: number) => ((n * 7919) >>> 3) % of

const tally = <T>(items: T[], of: (item: T) => string) => {
  const counts = new Map<string, number>()
  for (const item of items) counts.set(of(item), (counts.get(of(item)) ?? 0) + 1)
  return Object.fromEntries([...counts].sort())
}

inTurn((open) => {
  describe('reports', () => {
    it('equal a count over all entries, by time and by organization', async () => {
      const service = await startService(open)
      const { tokens, orgs } = await buildWorld(service)
      const accounts = await service.storage.read.selectFrom('users').select(['id', 'email']).execute()
      const all = Array.from({ length: 400 }, (_, n) => {
        const account = accounts[pseudoRandom(n, accounts.length + 1)]
        const actor = account
          ? { actorType: 'user' as const, actorId: account.id, actorEmail: account.email }
          : {}
        const org = [orgs.bakery, orgs.garage, orgs.harbor][pseudoRandom(n, 3)]!
        const action = actions[pseudoRandom(n * 3, actions.length)]!
        const at = new Date(
          Date.parse('2030-01-01T00:00:00Z') + pseudoRandom(n, 97) * 3_600_000,
        ).toISOString()
        return [happening(org.id, { ...actor, action }), at] as [ReturnType<typeof happening>, string]
      })
      await recorded(service, all)

      const cases: [string, Record<string, string>][] = [
        [tokens.bakery, { from: '2030-01-01T00:00:00Z' }],
        [tokens.acme, { from: '2030-01-02T00:00:00Z', to: '2030-01-03T00:00:00Z' }],
        [tokens.acmeBakery, { from: '2030-01-01T00:00:00Z', to: '2030-01-02T12:00:00Z' }],
        [tokens.system, { from: '2030-01-01T00:00:00Z', orgId: orgs.harbor.id }],
      ]
      for (const [token, query] of cases) await compare(service.client(token), query)

      const none = await service.client(tokens.acmeNone).call(api.auditReports.stats)
      expect(none).toMatchObject({ totalEvents: 0, byCategory: [], byUser: [] })

      async function compare(client: Client, query: Record<string, string>) {
        const entries: AuditEntry[] = []
        for (let page = 1; ; page += 1) {
          const { data } = await client.call(api.auditLogs.list, {
            query: { ...query, limit: 100, page } as never,
          })
          entries.push(...data)
          if (data.length < 100) break
        }
        expect(entries.length).toBeGreaterThan(20)
        const of = (set: readonly string[]) =>
          entries.filter(({ action }) => set.flatMap(expandAction).includes(action))
        const eventOf = (set: readonly string[], action: string) =>
          set.find((one) => expandAction(one).includes(action))!
        const known = new Set(accounts.map(({ id }) => id))
        const persons = entries.filter(({ user }) => known.has(user.id))
        const counted = (rows: { action: string; count: number }[]) =>
          Object.fromEntries(rows.map(({ action, count }) => [action, count]).sort())

        const stats = await client.call(api.auditReports.stats, { query })
        expect(stats.totalEvents).toBe(entries.length)
        expect(
          Object.fromEntries(stats.byCategory.map(({ category, count }) => [category, count]).sort()),
        ).toEqual(tally(entries, ({ action }) => categoryOf(action)))
        expect(stats.range.from).toBe(new Date(query.from!).toISOString())

        const users = await client.call(api.auditReports.users, { query })
        expect(users.totalEvents).toBe(persons.length)
        expect(users.totalUsers).toBe(new Set(persons.map(({ user }) => user.id)).size)
        expect(Object.fromEntries(users.actionsPerUser.map(({ id, count }) => [id, count]).sort())).toEqual(
          tally(persons, ({ user }) => user.id),
        )
        expect(users.topUsers).toEqual(users.actionsPerUser.slice(0, 5))
        expect(users.recentActivity.map(({ id }) => id)).toEqual(persons.slice(0, 10).map(({ id }) => id))

        const security = await client.call(api.auditReports.security, { query })
        expect(security.totalEvents).toBe(of(securityEvents).length)
        expect(security.loginAttempts).toBe(of(['user.login', 'user.login.failed']).length)
        expect(security.failedLogins).toBe(of(['user.login.failed']).length)
        expect(security.permissionChanges).toBe(of(['user.permission.change']).length)
        expect(counted(security.byAction)).toEqual(
          tally(of(securityEvents), ({ action }) => eventOf(securityEvents, action)),
        )
        expect(security.recentEvents).toEqual(of(securityEvents).slice(0, 10))

        const compliance = await client.call(api.auditReports.compliance, { query })
        expect(compliance.totalEvents).toBe(of(complianceEvents).length)
        expect(compliance.exports).toBe(of(['data.export']).length)
        expect(compliance.dataAccess).toBe(of(['data.access']).length)
        expect(counted(compliance.byAction)).toEqual(tally(of(complianceEvents), ({ action }) => action))
        expect(compliance.recentEvents).toEqual(of(complianceEvents).slice(0, 10))
      }
    })
  })
})

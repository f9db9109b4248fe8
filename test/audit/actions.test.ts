import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { commandType } from '../../src/agents/commands/contract.ts'
import { api } from '../../src/api.ts'
import type { AuditEntry } from '../../src/audit/contract.ts'
import { categoryOf, complianceEvents, securityEvents } from '../../src/audit/rules.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { systemClock } from '../../src/core/time.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { toWire } from '../laws/calls.ts'
import { documentedActions } from '../laws/documented-actions.ts'
import { addPerson, type ScenarioTools, scenarioOf, scenarioTools } from '../laws/scenarios.ts'
import { Line } from '../laws/wire.ts'
import { addOrg, buildWorld } from '../world.ts'

/** The documented lists, written out, as the lists of the code could omit an event. */
const security = [
  'user.login',
  'user.login.failed',
  'user.permission.change',
  'policy.update',
  'policy.create',
  'policy.evaluate',
  'automation.policy.evaluate',
  'agent.source.ip.changed',
]
const compliance = [
  'data.access',
  'data.export',
  'device.create',
  'device.delete',
  'policy.update',
  'policy.evaluate',
  'automation.policy.evaluate',
  'script.execute',
  'organization.update',
]

const every = entriesOf(api)
const opens = (resource: string) =>
  every.some(({ entry: { access } }) => access.who === 'user' && access.permission?.startsWith(resource))
const under = (path: string) => every.some(({ entry }) => entry.path.startsWith(path))

/** Events that the product cannot produce yet; `learned` detects that it can, and then an act is needed. */
const impossible: Readonly<Record<string, { because: string; learned(): boolean }>> = {
  'policy.create': { because: 'there are no policies', learned: () => under('/policies') },
  'policy.update': { because: 'there are no policies', learned: () => under('/policies') },
  'policy.evaluate': { because: 'there are no policies', learned: () => under('/policies') },
  'automation.policy.evaluate': {
    because: 'there are no automations',
    learned: () => under('/automations') || opens('automations:'),
  },
  'script.execute': {
    because: 'scripts are records: no route runs one, and no command of an agent does',
    learned: () =>
      opens('scripts:execute') ||
      commandType.options.join() !== 'set_auto_update,set_log_level,collect' ||
      every.some(({ entry }) => /\/scripts\/.*(run|execut)/.test(entry.path)),
  },
}

/** Calls that log an event under another documented name, or beside their own entry. */
const performed: Readonly<Record<string, readonly string[]>> = {
  'user.permission.change': ['users.assignRole', 'users.changeAccess'],
  'data.access': ['auditLogs.list', 'auditReports.compliance'],
  'data.export': ['auditExports.create'],
}

/** An action; `prepare` creates what it needs first, which may leave other entries. */
type Act = { name: string; prepare(hand: ScenarioTools, line: Line): Promise<() => Promise<unknown>> }

const callOf = (name: string): Act => ({
  name,
  async prepare(hand, line) {
    const { entry } = every.find((one) => one.name === name)!
    const { input, token } = await scenarioOf(name, entry, hand)
    return async () => {
      const { status, text } = await line.send(toWire(entry, input, token))
      expect([status, text]).toEqual([entry.status ?? 200, text])
    }
  },
})

const acts: Readonly<Record<string, Act>> = {
  'user.login.failed': {
    name: 'a wrong password',
    async prepare(hand, line) {
      const { email } = await addPerson(hand)
      const body = JSON.stringify({ email, password: 'a wrong password' })
      return async () => {
        const { status } = await line.send({ method: 'POST', path: '/api/v1/auth/login', body })
        expect(status).toBe(401)
      }
    },
  },
  'agent.source.ip.changed': {
    name: 'a heartbeat from elsewhere',
    async prepare({ service, fresh }) {
      const { agentId, agentToken } = await fresh()
      const beat = (ip: string) =>
        service.client(agentToken, { 'x-forwarded-for': ip }).call(api.agents.heartbeat, {
          params: { id: agentId },
          body: { status: 'ok', agentVersion: '0.1.0' },
        })
      await beat('203.0.113.1')
      return () => beat('203.0.113.2')
    },
  },
}

const namesOf = (action: string): string[] => {
  const routes = Object.keys(documentedActions).filter((route) => documentedActions[route] === action)
  return every
    .filter(({ entry: { method, path } }) => routes.includes(`${method} ${path}`))
    .map(({ name }) => name)
}

const actions = [...new Set([...Object.values(documentedActions), ...security, ...compliance])]

const table = actions.flatMap((action) => {
  const names = [...new Set([...(performed[action] ?? []), ...namesOf(action)])]
  const all = [...names.map(callOf), ...(acts[action] ? [acts[action]] : [])]
  return all.map((act) => [action, act.name, act] as const)
})

/** The documented details of an action. */
const documentedDetails: Readonly<Record<string, unknown>> = {
  'filter.update': { changedFields: expect.arrayContaining(['name']) },
  'organization.create': { after: { partnerId: expect.any(String), status: 'active', type: 'customer' } },
  'sso.provider.create': { after: { type: 'oidc', status: expect.any(String) } },
  'sso.provider.update': { changedFields: expect.arrayContaining(['name']) },
}

describe('the audit reports', () => {
  it('cover exactly the documented events', () => {
    expect([...securityEvents].sort()).toEqual([...security].sort())
    expect([...complianceEvents].sort()).toEqual([...compliance].sort())
  })

  it('cover events that are performed in this test, except those the product cannot do', () => {
    const shown = new Set(table.map(([action]) => action))
    expect(actions.filter((action) => !shown.has(action))).toEqual(
      actions.filter((action) => action in impossible),
    )
    expect(Object.keys(impossible).filter((action) => shown.has(action))).toEqual([])
  })

  it.each(Object.entries(impossible))('have no %s yet', (_, { because, learned }) => {
    expect(learned(), `no longer true: ${because}`).toBe(false)
  })
})

inTurn((open) => {
  let service: TestService
  let hand: ScenarioTools
  let line: Line

  beforeAll(async () => {
    service = await startService(open, { env: { TRUST_PROXY_HEADERS: 'true' } })
    hand = scenarioTools(service, await buildWorld(service), systemClock)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  const systemClient = () => service.client(hand.world.tokens.system)
  const counts = async () => {
    const of = (rows: { action: string; count: number }[]) =>
      Object.fromEntries(rows.map(({ action, count }) => [action, count]))
    const stats = await systemClient().call(api.auditReports.stats, {})
    return {
      security: of((await systemClient().call(api.auditReports.security, {})).byAction),
      compliance: of((await systemClient().call(api.auditReports.compliance, {})).byAction),
      categories: Object.fromEntries(stats.byCategory.map(({ category, count }) => [category, count])),
    }
  }
  /** The number of entries of an action, and the newest of them. */
  const listed = async (action: string): Promise<{ total: number; newest: AuditEntry | undefined }> => {
    const { data, pagination } = await systemClient().call(api.auditLogs.list, {
      query: { action, limit: 1 },
    })
    return { total: pagination.total, newest: data[0] }
  }

  describe('an action through the API', () => {
    it.each(table)('%s by %s is in the log and counted', async (action, _name, act) => {
      const perform = await act.prepare(hand, line)
      // Reading the log is logged too, once in a while; reading now keeps it out of the counts below.
      await listed(action)
      await counts()
      const before = { ...(await listed(action)), ...(await counts()) }
      await perform()
      const after = { ...(await listed(action)), ...(await counts()) }

      expect(after.total).toBe(before.total + 1)
      expect(after.newest!.id).not.toBe(before.newest?.id)
      if (action in documentedDetails)
        expect(after.newest!.details).toMatchObject(documentedDetails[action] as object)
      for (const [events, report] of [
        [security, 'security'],
        [compliance, 'compliance'],
      ] as const) {
        if (!events.includes(action)) continue
        expect(after[report][action]).toBe((before[report][action] ?? 0) + 1)
      }
      const category = categoryOf(after.newest!.action)
      expect(after.categories[category]).toBe((before.categories[category] ?? 0) + 1)
    })

    it('the re-enrollment of a machine is not logged as a created device', async () => {
      const org = await addOrg(service, hand.world.tokens.system, hand.world.partners.acme, 'again')
      const client = service.client(hand.world.tokens.system)
      const { key } = await client.call(api.enrollmentKeys.create, {
        body: { orgId: org.id, name: 'twice', maxUsage: 2 },
      })
      const machine = {
        osType: 'linux',
        osVersion: '12',
        architecture: 'x64',
        agentVersion: '0.1.0',
      } as const
      const body = { enrollmentKey: key, hostname: 'till', ...machine }
      const news = async (action: string) => (await listed(action)).total
      const before = [await news('device.create'), await news('agent.enroll')]
      const { authToken } = await service.client().call(api.agents.enroll, { body })
      await service.client().call(api.agents.enroll, { body: { ...body, reenrollmentToken: authToken } })
      // A filter for enrollments also finds those that created a device.
      expect([await news('device.create'), await news('agent.enroll')]).toEqual([
        before[0]! + 1,
        before[1]! + 2,
      ])
    })
  })
})

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { bodyLimitOf } from '../../src/core/endpoint.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { isTried } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { addCommand, addWebhook, buildWorld, type World } from '../world.ts'
import { put, toWire } from './calls.ts'
import { called, fieldsOf } from './fields.ts'
import { type Bound, bound, expectDocumented, expectTests } from './named-bounds.ts'
import { type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { grownTables, tableSizes } from './table-sizes.ts'
import { Line } from './wire.ts'

const audit = bound(
  'AGENT_AUDIT, AGENT_CHANGES, retention',
  'test/agents/audit.test.ts',
  'gathers what an agent submits too often in one entry',
)
const inventory = bound(
  'a body of the inventory: each part replaces what was there',
  'test/laws/growth.test.ts',
  'does not grow when the same request is repeated',
)
const events = bound(
  'AGENT_EVENTS, WEBHOOK_DELIVERY_RETENTION_DAYS',
  'test/agents/audit.test.ts',
  'events about frequent changes of an agent are gathered into one',
)
const rows = bound(
  'one of each device, of bounded columns',
  'test/laws/growth.test.ts',
  'does not grow when the same request is repeated',
)
const enrolled = bound(
  'uses of enrollment keys, caps of tenants, ENROLL_IP',
  'test/agents/agents.test.ts',
  'stops at the device limits of organization and partner',
)

/** All tables that grow with the actions of agents: what bounds them, and the test that reaches the bound. */
const bounds: Record<string, Bound> = {
  // Written on Postgres alone, where a process finds the agents of others.
  agent_links: rows,
  agent_commands: bound(
    'COMMAND_RESULT_BYTES_PER_DEVICE, _PER_ORG; rows are asked for by people, 30 days',
    'test/agents/outputs.test.ts',
    'make room for the newest: the oldest are dropped',
  ),
  agent_logs: bound('LOG_BYTES_PER_DEVICE, _PER_ORG', 'test/logs/quota.test.ts', 'are its newest'),
  agent_keys: rows,
  agent_rotations: rows,
  alerts: enrolled,
  audit_heads: rows,
  audit_logs: audit,
  device_disks: inventory,
  device_event_logs: bound('LOG_BYTES_PER_DEVICE, _PER_ORG', 'test/logs/quota.test.ts', 'are its newest'),
  device_interfaces: inventory,
  device_software: inventory,
  devices: enrolled,
  enrollment_keys: rows,
  events,
  webhook_deliveries: events,
  webhook_queues: rows,
}

/** Limits low enough that a few requests exceed them. */
const limits = {
  OFFLINE_AFTER_SECONDS: '86400',
  RATE_LIMIT_AGENT_AUDIT: '2/3600',
  RATE_LIMIT_AGENT_CHANGES: '2/3600',
  RATE_LIMIT_AGENT_EVENTS: '2/3600',
}

const ofAgents = called(api).filter(
  ({ name, entry }) => entry.access.who === 'agent' || name === 'agents.enroll',
)

/** Calls with more data than the scenarios have. */
const more: [name: string, body: object][] = [
  [
    'agents.inventory',
    {
      network: [{ interfaceName: 'eth0' }],
      disks: [{ mountPoint: '/' }],
      software: [{ name: 'svc' }],
    },
  ],
  // The second device gets the name of the first.
  ['agents.enroll', { hostname: 'twin' }],
]

/** Tables that grow because of users or time, not agents. */
const beside = [
  'audit_checkpoints',
  'audit_checkpoint_claims',
  'audit_tiles',
  'audit_verdicts',
  'leases',
  'webhook_counts',
  'webhook_workers',
  'webhook_events',
  'webhooks',
]

/** Search indexes, which are proportional to what they index. */
const isIndex = /_trigrams/

onEveryDatabase((kind, open) => {
  let service: TestService
  let world: World
  let hand: ScenarioTools
  let line: Line

  beforeAll(async () => {
    service = await startService(open, { env: limits })
    world = await buildWorld(service)
    hand = scenarioTools(service, world, systemClock)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  const sizes = () => tableSizes(service.storage)

  describe('a table that grows with the actions of agents', () => {
    it('has a bound that a test reaches', async () => {
      const found = new Set<string>()
      for (const { name, entry } of ofAgents) {
        const scenario = await scenarioOf(name, entry, hand)
        const orgId = String(scenario.orgId)
        if (/^[0-9a-f-]{36}$/.test(orgId)) {
          await addWebhook(service, orgId, 'all', ['device.updated', 'device.enrolled', 'alert.triggered'])
        }
        const before = await sizes()
        const wire = toWire(entry, scenario.input, scenario.token)
        expect([name, (await line.send(wire)).status]).toEqual([name, entry.status ?? 200])
        for (const table of grownTables(before, await sizes())) found.add(table)
      }
      const { bakery } = world.orgs
      for (const [name, body] of more) {
        const { entry } = called(api).find((one) => one.name === name)!
        const scenario = await scenarioOf(name, entry, hand)
        const before = await sizes()
        for (let n = 0; n < 2; n++) {
          const { status } = await line.send(
            toWire(
              entry,
              { ...scenario.input, body: { ...(scenario.input.body as object), ...body } },
              scenario.token,
            ),
          )
          expect([name, status]).toEqual([name, entry.status ?? 200])
        }
        for (const table of grownTables(before, await sizes())) found.add(table)
      }
      const beforeAll = await sizes()
      await addWebhook(service, bakery.id, 'updated', ['device.updated'])
      const { entry } = called(api).find(({ name }) => name === 'agents.heartbeat')!
      const beat = { status: 'ok', agentVersion: '0.1.0', hostname: 'another' }
      await line.send(
        toWire(entry, { params: { id: bakery.agentId }, query: {}, body: beat }, bakery.agentToken),
      )
      const delivered = () => sizes().then((all) => grownTables(beforeAll, all))
      await expect.poll(delivered, { timeout: 10_000 }).toContain('webhook_deliveries')
      for (const table of await delivered()) found.add(table)
      const commandId = await addCommand(service, bakery.id, bakery.deviceId, { isAnswered: false })
      const before = await sizes()
      const connected = await RawAgent.connect(service.url, bakery)
      connected.result(commandId, { stdout: 'done' })
      connected.say({ type: 'update_status', targetVersion: '9.9.9', state: 'failed' })
      connected.say({ type: 'heartbeat' })
      await connected.frame(({ type }) => type === 'heartbeat_ack')
      for (const table of grownTables(before, await sizes())) found.add(table)
      expect([...found].length).toBeGreaterThan(8)
      const own = [...found].filter((name) => !beside.includes(name) && !isIndex.test(name))
      expect(own.filter((table) => !(table in bounds))).toEqual([])
      // On Postgres the background works beside the requests: whether a row is seen depends on when.
      const expected = Object.keys(bounds).filter((table) => table !== 'agent_links')
      if (kind === 'sqlite') expect(own.sort()).toEqual(expected.sort())
      expectTests(Object.values(bounds).map(({ test }) => test))
      expectDocumented(bounds)
    })

    it('does not grow when the same request is repeated', async () => {
      for (const { name, entry } of ofAgents) {
        // Log submissions have their own bounds.
        if (name === 'diagnosticLogs.submit' || entry.access.who !== 'agent') continue
        const scenario = await scenarioOf(name, entry, hand)
        const wire = toWire(entry, scenario.input, scenario.token)
        for (let n = 0; n < 3; n++) await line.send(wire)
        const before = await sizes()
        for (let n = 0; n < 5; n++) await line.send(wire)
        // Times and addresses keep their length; numbers may gain a digit.
        const more = grownTables(before, await sizes(), 64).filter((table) => !beside.includes(table))
        expect([name, more]).toEqual([name, []])
      }
    })
  })

  describe('a text sent by an agent', () => {
    /** Longer than any stored text of an agent may be. */
    const long = 64 * 1024
    /** Tables bounded by their total bytes. */
    const ofOutputs = ['agent_commands']

    it.each(ofAgents.filter((_, n) => isTried(kind, n, 4)))(
      'to $name is stored within the bounds of its fields',
      async ({ name, entry }) => {
        const texts = fieldsOf(entry.body).filter(({ leaf }) => leaf)
        for (const { path } of texts) {
          const scenario = await scenarioOf(name, entry, hand)
          const input = structuredClone(scenario.input)
          put(input, 'body', path, 'x'.repeat(Math.min(3 * long, bodyLimitOf(entry) - 5000)))
          await line.send(toWire(entry, input, scenario.token))
          const longest = [...(await sizes())].filter(
            ([table, size]) => size.longest > 40_000 && !ofOutputs.includes(table),
          )
          expect([path, longest.map(([table]) => table)]).toEqual([path, []])
        }
      },
    )
  })
})

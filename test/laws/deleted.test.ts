import { describe, expect, it } from 'vitest'
import { findOutOfUse, insertRolloutDevices } from '../../src/agents/rollouts/devices.ts'
import { getRollout } from '../../src/agents/rollouts/store.ts'
import { api } from '../../src/api.ts'
import { type Contract, type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import type { Resource } from '../../src/core/schema.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { emit } from '../../src/events/outbox.ts'
import { refreshDueGroups } from '../../src/groups/jobs.ts'
import { fanOut } from '../../src/webhooks/worker/fan-out.ts'
import { onEveryDatabase } from '../databases.ts'
import { isTried, matrixOn } from '../depth.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { addWebhook, buildWorld, systemToken } from '../world.ts'
import { callOf, toWire, unknownRecords } from './calls.ts'
import { callAsStrangers } from './cross-tenant-calls.ts'
import { recordsOf, type Stage, type Stranger, userToken } from './fixture.ts'
import { about, changed, dump } from './tables.ts'
import { Line } from './wire.ts'

/** Enough for hundreds of calls on a busy machine. */
const patience = 300_000

/** Audit endpoints, which remain after a deletion. */
const outlives = ({ path }: Endpoint): boolean => path.startsWith('/audit-logs')
const contract = Object.fromEntries(
  Object.entries(api).map(([group, entries]) => [
    group,
    Object.fromEntries(Object.entries(entries).filter(([, entry]) => !outlives(entry as Endpoint))),
  ]),
) as unknown as Contract

/** Records deleted with an organization: not its partner, accounts or records without a tenant. */
const stays: readonly Resource[] = ['partner', 'user', 'audit_log', 'agent_rollout']
const goes = (Object.keys(unknownRecords()) as Resource[]).filter((kind) => !stays.includes(kind))

const names = (org: string) => [
  `${org}-pc`,
  ...[
    'group',
    'alert',
    'site',
    'key',
    'api key',
    'role',
    'script',
    'webhook',
    'provider',
    'policy',
    'filter',
  ].map((kind) => `${org} ${kind}`),
]

/** An organization with a record of each kind, deleted alone or with its partner, and all callers. */
async function buildStage(service: TestService, by: 'itself' | 'its partner'): Promise<Stage> {
  const world = await buildWorld(service)
  const { partners, orgs, tokens } = world
  const { bakery, garage, harbor } = orgs
  const victim = await recordsOf(service, partners.acme, bakery)
  const sibling = await recordsOf(service, partners.acme, garage)
  const other = await recordsOf(service, partners.globex, harbor)
  // A rollout belongs to no tenant, and includes machines of all tenants.
  const place = { device_id: bakery.deviceId, org_id: bakery.id, wave: 0, from_version: '0.1.0', is_held: 0 }
  await service.storage.write((tx) => insertRolloutDevices(tx, harbor.rolloutId, [place]))
  const system = service.client(tokens.system)
  if (by === 'itself') await system.call(api.orgs.remove, { params: { id: bakery.id } })
  else await system.call(api.partners.remove, { params: { id: partners.acme } })

  const hidden = [...goes.map((kind) => victim[kind]), ...names(bakery.name)]
  const fixed = (token: string) => ({ token: async () => token, renew: () => {} })
  const gone = { own: unknownRecords(), foreign: goes, hidden }
  const acme = { kind: 'partner', partnerId: partners.acme } as const
  const partner: Stranger[] = [
    {
      name: "its partner's administrator",
      token: () => userToken(service, 'acme-admin', acme),
      renew: () => {},
      own: sibling,
      foreign: goes,
      hidden,
    },
    { name: 'a partner user with it alone selected', ...fixed(tokens.acmeBakery), ...gone },
  ]
  const strangers: Stranger[] = [
    {
      name: 'the system administrator',
      token: () => systemToken(service),
      renew: () => {},
      own: other,
      foreign: goes,
      hidden,
    },
    ...(by === 'itself' ? partner : []),
    { name: 'its administrator', ...fixed(tokens.bakery), ...gone },
    // The agent knows its own ID, for which it is refused like any caller with an invalid token.
    {
      name: 'its agent',
      ...fixed(bakery.agentToken),
      own: { ...unknownRecords(), agent: bakery.agentId },
      foreign: goes.filter((kind) => kind !== 'agent'),
      hidden,
    },
    { name: 'nobody', token: async () => undefined, renew: () => {}, ...gone },
  ]
  return { service, world, victim, strangers }
}

const deleters = ['its partner', 'itself'] as const

onEveryDatabase((kind, open) => {
  describe('a deleted organization', { timeout: patience }, () => {
    it.each(deleters.filter((_, index) => isTried(kind, index, 2)))(
      'cannot be accessed, deleted by %s',
      async (by) => {
        const entries = matrixOn(kind, entriesOf(contract))
        const service = await startService(open)
        const stage = await buildStage(service, by)
        const line = new Line(service.url)
        const { breaches, calls } = await callAsStrangers(stage, entries, line)
        await line.close()
        expect(breaches).toEqual([])
        expect(calls).toBeGreaterThan(entries.length * 2)
      },
    )

    it('is inaccessible to its own users and agents', async () => {
      const service = await startService(open)
      const stage = await buildStage(service, 'itself')
      const line = new Line(service.url)
      const own = (['its administrator', 'its agent'] as const).map((name) => ({
        stranger: stage.strangers.find((one) => one.name === name)!,
        who: name === 'its agent' ? 'agent' : 'user',
      }))
      for (const { stranger, who } of own) {
        const token = await stranger.token()
        for (const { name, entry } of entriesOf(api).filter((one) => one.entry.access.who === who)) {
          const { status } = await line.send(toWire(entry, callOf(entry, stranger.own), token))
          expect([name, status]).toEqual([
            name,
            expect.toSatisfy((it) => it === 401 || it === 404 || it === 403),
          ])
        }
      }
      await line.close()
    })

    it('is not touched by background loops', async () => {
      const clock = testClock()
      const service = await startService(open, { clock })
      const { orgs, tokens } = await buildWorld(service)
      const { bakery, garage } = orgs
      const { storage } = service
      const both = [bakery, garage]
      for (const { id, name, groupId, filterId } of both) {
        await addWebhook(service, id, `${name} listens`, ['device.updated'])
        const filled = { type: 'dynamic', filter_id: filterId, evaluated_at: null }
        await storage.write((tx) =>
          tx.updateTable('device_groups').set(filled).where('id', '=', groupId).execute(),
        )
      }
      const place = { wave: 0, from_version: '0.1.0', is_held: 0 }
      const places = both.map((org) => ({ ...place, device_id: org.deviceId, org_id: org.id }))
      await storage.write((tx) => insertRolloutDevices(tx, orgs.harbor.rolloutId, places))
      await service.client(tokens.system).call(api.orgs.remove, { params: { id: bakery.id } })
      const before = about(await dump(storage), [bakery.id])
      // As if the device had been waiting.
      for (const { id, deviceId } of both) {
        const event = { orgId: id, type: 'device.updated' as const, data: { deviceId } }
        await storage.write((tx) => emit(tx, event, clock()))
      }
      clock.forward(3600)
      const moved = await checkLiveness(storage, { offlineAfterSeconds: 300 }, clock())
      expect(moved).toHaveLength(2)
      while (await refreshDueGroups({ storage, clock })) {
        // Until no work is left.
      }
      await fanOut(storage, clock())
      const deliveries = storage.read.selectFrom('webhook_deliveries').select('org_id')
      expect(await deliveries.where('event', '=', 'device.updated').execute()).toEqual([
        { org_id: garage.id },
      ])
      const rollout = await getRollout(storage.read, orgs.harbor.rolloutId)
      const out = await findOutOfUse(storage.read, rollout, 10)
      expect(out.map(({ id }) => id)).toEqual([bakery.deviceId])
      const states = await storage.read.selectFrom('device_groups').select(['id', 'evaluated_at']).execute()
      const evaluated = new Map(states.map((row) => [row.id, row.evaluated_at]))
      expect([evaluated.get(bakery.groupId), evaluated.get(garage.groupId)]).toEqual([null, clock()])
      const after = about(await dump(storage), [bakery.id])
      expect(changed(before, after)).toEqual([])
    })
  })
})

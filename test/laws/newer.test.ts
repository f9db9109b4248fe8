import { sql } from 'kysely'
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { deleteExpired } from '../../daemon/background.ts'
import { deleteOldCommands, reapCommands } from '../../src/agents/commands/jobs.ts'
import { reconcileRollout } from '../../src/agents/rollouts/jobs.ts'
import { api } from '../../src/api.ts'
import { takeDueCheckpoints } from '../../src/audit/checkpoints/due.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { pruneDue } from '../../src/audit/retention/jobs.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { newId } from '../../src/core/new-id.ts'
import { toJsonSchema } from '../../src/core/openapi.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { refreshDueGroups } from '../../src/groups/jobs.ts'
import { issueResets } from '../../src/identity/passwords/jobs.ts'
import { deleteOldLogs } from '../../src/logs/jobs.ts'
import { sendDueMails } from '../../src/messages/jobs.ts'
import { queueMail } from '../../src/messages/queue.ts'
import { passwordReset } from '../../src/messages/templates.ts'
import type { Storage } from '../../src/storage/open.ts'
import { deleteOldDeliveries } from '../../src/webhooks/jobs.ts'
import { fanOut } from '../../src/webhooks/worker/fan-out.ts'
import { partsOn } from '../audit/chains.ts'
import { retentionOn } from '../audit/retention-world.ts'
import { happening } from '../audit/rows.ts'
import { readChain } from '../daemon/request.ts'
import { onEveryDatabase } from '../databases.ts'
import { isTried } from '../depth.ts'
import { startService, type TestService, testSecrets } from '../harness.ts'
import { addWebhook, buildWorld, type World } from '../world.ts'
import { callOf, type Records, toWire } from './calls.ts'
import { recordsOf } from './fixture.ts'
import { Line } from './wire.ts'

/*
 * During a rolling upgrade, old processes work with the schema (contracting.test.ts) and the rows of a newer release.
 */

/** A service with a record of each kind, and its logged errors. */
async function setUp(open: Parameters<typeof startService>[0]) {
  const failures: string[] = []
  const log = pino({ level: 'error' }, { write: (line: string) => void failures.push(line) })
  const service = await startService(open, { outside: { log } })
  const world = await buildWorld(service)
  const records = await recordsOf(service, world.partners.acme, world.orgs.bakery)
  return { service, world, records, failures }
}

type Stage = { service: TestService; world: World; records: Records }

const order = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']
const entries = entriesOf(api).sort((a, b) => order.indexOf(a.entry.method) - order.indexOf(b.entry.method))

/** Calls every entry as an authorized caller, including the heartbeat; returns internal failures. */
async function askAll({ service, world, records }: Stage, methods: readonly string[]): Promise<string[]> {
  const failed: string[] = []
  const line = new Line(service.url)
  const { tokens, orgs } = world
  for (const { name, entry } of entries) {
    if (!methods.includes(entry.method) && name !== 'agents.heartbeat') continue
    const wire = toWire(entry, callOf(entry, records))
    for (const token of entry.access.who === 'agent'
      ? [orgs.bakery.agentToken]
      : [tokens.bakery, tokens.system]) {
      const { status, text } = await line.send({ ...wire, token })
      if (status === 500) failed.push(`${name}: ${text}`)
      if (status < 300) break
    }
  }
  await line.close()
  return failed
}

const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
const now = () => systemClock()

/** Runs every background loop once; returns the failures. */
async function runAll({ service }: Stage): Promise<string[]> {
  const { storage } = service
  const checking = partsOn(service)
  const on = { storage, cipher, clock: systemClock, mailer: { real: true, send: async () => {} } }
  const runs: Record<string, () => Promise<unknown>> = {
    sealer: async () => {
      const [failure] = await sealPending(storage)
      if (failure !== undefined) throw failure
    },
    letters: () => sendDueMails({ ...on, onFailure: () => {} }),
    links: () => issueResets({ ...on, publicUrl: () => 'https://svc.example.com', onIssued: async () => {} }),
    sweeper: () => deleteExpired(storage, now()),
    devices: () => checkLiveness(storage, { offlineAfterSeconds: 60 }, now()),
    groups: () => refreshDueGroups(on),
    rollouts: () => reconcileRollout({ ...on, offlineAfterSeconds: 300 }),
    logs: () => deleteOldLogs(storage, { agentLogRetentionDays: 7, eventLogRetentionDays: 7 }, now()),
    commands: () => reapCommands(storage, async () => {}, now()),
    'old commands': () => deleteOldCommands(storage, now()),
    checkpoints: () => takeDueCheckpoints({ ...checking, clock: systemClock }),
    verification: () => verifyDue({ ...checking, clock: Object.assign(systemClock, { forward: () => {} }) }),
    retention: () => pruneDue(retentionOn(service).parts),
    events: async () => {
      const { failure } = await fanOut(storage, now())
      if (failure !== undefined) throw failure
    },
    upkeep: () => deleteOldDeliveries(storage, { deliveryDays: 30, deliveriesKept: 100_000 }, now()),
  }
  const failed: string[] = []
  for (const [name, run] of Object.entries(runs))
    await run().catch((error: Error) => failed.push(`${name}: ${error.message}`))
  return failed
}

const textColumns = async ({ read }: Storage) =>
  (await read.introspection.getTables()).flatMap(({ name: table, columns }) =>
    columns
      .filter(({ dataType }) => dataType.toLowerCase() === 'text')
      .map(({ name: column }) => ({ table, column })),
  )

/** All enum values of the contract. */
const words = new Set<string>()
function collect(schema: unknown): void {
  if (schema === null || typeof schema !== 'object') return
  const listed = (schema as { enum?: unknown }).enum
  if (Array.isArray(listed)) for (const word of listed) words.add(String(word))
  for (const inner of Object.values(schema)) collect(inner)
}
for (const { entry } of entries) if (entry.reply) collect(toJsonSchema(entry.reply, 'output'))

onEveryDatabase((kind, open) => {
  describe('a process of the previous release', { timeout: 300_000 }, () => {
    it('keeps working while a newer one adds columns to every table', async () => {
      const on = await setUp(open)
      const { storage } = on.service
      // So that the connections have cached query plans.
      for (let n = 0; n < 3; n += 1) expect(await askAll(on, ['GET'])).toEqual([])
      const tables = (await storage.read.introspection.getTables()).filter(
        ({ name }) => !/_trigrams|_search|^sqlite/.test(name),
      )
      await storage.write(async (tx) => {
        for (const { name } of tables) {
          await sql`alter table ${sql.table(name)} add column of_the_newer text`.execute(tx)
          await sql`alter table ${sql.table(name)} add column flag_of_the_newer integer not null default 0`.execute(
            tx,
          )
        }
      })
      for (let n = 0; n < 2; n += 1) expect(await askAll(on, ['GET'])).toEqual([])
      expect(await askAll(on, ['POST', 'PUT', 'PATCH', 'DELETE'])).toEqual([])
      expect(on.failures).toEqual([])
    })

    it('shows unknown values that a newer one wrote', async () => {
      const on = await setUp(open)
      const { storage } = on.service
      const failed: string[] = []
      let count = 0
      for (const { table, column } of await textColumns(storage)) {
        const [name, at] = [sql.table(table), sql.ref(column)]
        const { rows } = await sql<{ word: string }>`select distinct ${at} as word from ${name}
          where ${at} is not null limit 50`.execute(storage.read)
        if (rows.length === 0 || !rows.every(({ word }) => words.has(word))) continue
        try {
          await storage.write((tx) => sql`update ${name} set ${at} = 'newer_' || ${at}`.execute(tx))
        } catch {
          continue
        }
        count += 1
        if (isTried(kind, count, 6)) {
          const wrong = [...(await askAll(on, ['GET'])), ...(await runAll(on))]
          failed.push(...wrong.map((what) => `${table}.${column}: ${what}`))
        }
        await storage.write((tx) =>
          sql`update ${name} set ${at} = substr(${at}, 7) where ${at} like 'newer_%'`.execute(tx),
        )
      }
      expect(failed).toEqual([])
      expect(count).toBeGreaterThan(20)
    })

    it('keeps webhook values written by a newer one, whatever else users change', async () => {
      const { service, world, records } = await setUp(open)
      const { storage } = service
      const client = service.client(world.tokens.bakery)
      const params = { id: records.webhook }
      const row = () =>
        storage.read
          .selectFrom('webhooks')
          .select('status')
          .where('id', '=', params.id)
          .executeTakeFirstOrThrow()
      await storage.write((tx) =>
        tx.updateTable('webhooks').set({ status: 'throttled' }).where('id', '=', params.id).execute(),
      )
      await client.call(api.webhooks.update, { params, body: { name: 'changed' } })
      expect(await row()).toEqual({ status: 'throttled' })
      await client.call(api.webhooks.update, { params, body: { status: 'active' } })
      expect(await row()).toEqual({ status: 'active' })
    })

    it('processes queue entries of a newer one, and those behind them', async () => {
      const on = await setUp(open)
      const { service, world, records } = on
      const { storage } = service
      const { bakery, garage } = world.orgs
      const known = await addWebhook(service, bakery.id, 'known', ['device.offline'])
      const all = await addWebhook(service, bakery.id, 'all', ['*'])
      const other = await addWebhook(service, garage.id, 'other', ['device.offline'])
      const sentMails: string[] = []
      await storage.write(async (tx) => {
        const draft = toDraftEntry(
          happening(bakery.id, { action: 'newer.act', resourceType: 'newer' }),
          now(),
        )
        await recordAudit(tx, { ...draft, actorType: 'robot' as never, result: 'partial' as never })
        await recordAudit(tx, toDraftEntry(happening(bakery.id, { action: 'behind' }), now()))
        const happened = (orgId: string, type: string) =>
          tx
            .insertInto('events')
            .values({ id: newId(), org_id: orgId, type, data: '{"newer":[1]}', created_at: now() })
            .execute()
        await happened(bakery.id, 'newer.happened')
        await happened(bakery.id, 'device.offline')
        await happened(garage.id, 'device.offline')
        const letter = {
          ...passwordReset({ to: 'x@example.com', name: 'x', url: 'https://x.example', minutes: 1 }),
          kind: 'newer',
        }
        await queueMail(tx, cipher, letter as never, now(), addSeconds(now(), 3600))
        const conditions = { operator: 'XOR', conditions: [{ field: 'mood', operator: 'isLike', value: {} }] }
        await tx
          .updateTable('saved_filters')
          .set({ conditions: JSON.stringify(conditions) })
          .where('id', '=', bakery.filterId)
          .execute()
        await tx
          .updateTable('device_groups')
          .set({ type: 'dynamic', filter_id: bakery.filterId, evaluated_at: null })
          .where('id', '=', bakery.groupId)
          .execute()
        await tx
          .updateTable('agent_commands')
          .set({
            type: 'newer',
            status: 'pending',
            sent_at: null,
            completed_at: null,
            expires_at: addSeconds(now(), 3600),
          })
          .where('id', '=', bakery.commandId)
          .execute()
      })
      const mailer = { real: true, send: async ({ to }: { to: string }) => void sentMails.push(to) }
      await sendDueMails({ storage, cipher, mailer, clock: systemClock, onFailure: () => {} })
      expect(sentMails).toEqual(['x@example.com'])
      expect(await runAll(on)).toEqual([])
      const group = await storage.read
        .selectFrom('device_groups')
        .select(['evaluation_error', 'evaluated_at'])
        .where('id', '=', bakery.groupId)
        .executeTakeFirstOrThrow()
      expect(group.evaluation_error).toBe('The filter has XOR, which this release does not know')
      const retried = { storage, clock: () => addSeconds(now(), 31) }
      const seen = group.evaluated_at
      await refreshDueGroups(retried)
      const [again] = await storage.read
        .selectFrom('device_groups')
        .select('evaluated_at')
        .where('id', '=', bakery.groupId)
        .execute()
      expect(again!.evaluated_at! > seen!).toBe(true)
      const types = async (id: string) => {
        const rows = storage.read
          .selectFrom('webhook_deliveries')
          .select('event')
          .where('webhook_id', '=', id)
        return (await rows.orderBy('seq').execute()).map(({ event }) => event)
      }
      await expect.poll(() => types(other.id), { timeout: 10_000 }).toEqual(['device.offline'])
      expect(await types(known.id)).toEqual(['device.offline'])
      expect(await types(all.id)).toEqual(['newer.happened', 'device.offline'])
      expect(await storage.read.selectFrom('events').select('seq').execute()).toEqual([])
      expect(await storage.read.selectFrom('set_aside').selectAll().execute()).toEqual([])
      const { verdict, entries: sealed } = await readChain(service.client(world.tokens.bakery), bakery.id)
      expect(verdict).toMatchObject({ verdict: 'sound' })
      expect(sealed.map(({ action }) => action)).toEqual(expect.arrayContaining(['newer.act', 'behind']))
      const body = {
        ...api.agents.heartbeat.example,
        metrics: { cpuPercent: 1, ramPercent: 1, diskPercent: 1 },
      } as never
      const beat = await service
        .client(bakery.agentToken)
        .call(api.agents.heartbeat, { params: { id: bakery.agentId }, body })
      expect(beat.commands.map(({ id }) => id)).toContain(records.device_command)
      expect(await askAll(on, ['GET'])).toEqual([])
      expect(on.failures).toEqual([])
    })
  })
})

import { CompiledQuery, sql } from 'kysely'
import { Registry } from 'prom-client'
import { expect, it, onTestFinished } from 'vitest'
import { AgentWatch } from '../../daemon/agent-watch.ts'
import { watchBacklog } from '../../daemon/backlog-watch.ts'
import { WebhookWatch } from '../../daemon/webhook-watch.ts'
import { countPending, sealPending, sumHeads } from '../../src/audit/outbox.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import { openStorage } from '../../src/storage/open.ts'
import { countDue } from '../../src/webhooks/queues.ts'
import { type Open, onEveryDatabase } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { metricValues } from '../metric-values.ts'
import { buildWorld } from '../world.ts'

/* What the metrics count in the database, across all tenants. */

/** A database with a record of every kind in each of three organizations, which nobody serves any more. */
async function worldOf(open: Open) {
  const clock = testClock()
  const service = await startService(open, { clock })
  const { orgs } = await buildWorld(service)
  await service.close()
  const { dataDir, databaseUrl } = service
  const storage = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
  onTestFinished(() => storage.close())
  return { storage, clock, orgs }
}

onEveryDatabase((kind, open) => {
  it('devices are counted by status, without those of deleted organizations, and those that are late', async () => {
    const { storage, clock, orgs } = await worldOf(open)
    const watch = new AgentWatch({ storage, clock, offlineAfterSeconds: 300, metrics: new Registry() })
    const { registry, refresh } = watch.stored
    const seen = (deviceId: string, status: string, secondsAgo: number) =>
      storage.write((tx) =>
        tx
          .updateTable('devices')
          .set({ status, last_seen_at: addSeconds(clock(), -secondsAgo) })
          .where('id', '=', deviceId)
          .execute(),
      )
    await seen(orgs.bakery.deviceId, 'online', 149)
    await seen(orgs.garage.deviceId, 'online', 151)
    await seen(orgs.harbor.deviceId, 'offline', 9999)
    const counted = async () => {
      await refresh()
      const { '': late } = await metricValues(registry, 'svc_devices_late')
      const { online, offline, ...others } = await metricValues(registry, 'svc_devices')
      return { online, offline, late, others: Object.values(others) }
    }
    expect(await counted()).toEqual({ online: 2, offline: 1, late: 1, others: [0, 0, 0, 0, 0] })
    await seen(orgs.bakery.deviceId, 'offline', 149)
    await storage.write((tx) =>
      tx.updateTable('organizations').set({ deleted_at: clock() }).where('id', '=', orgs.garage.id).execute(),
    )
    expect(await counted()).toEqual({ online: 0, offline: 2, late: 0, others: [0, 0, 0, 0, 0] })
  })

  it('keys count as expiring in the last days before they expire, and neither later nor when they are of no use', async () => {
    const { storage, clock, orgs } = await worldOf(open)
    const watch = new AgentWatch({ storage, clock, offlineAfterSeconds: 300, metrics: new Registry() })
    const counted = async () => {
      await watch.stored.refresh()
      return metricValues(watch.stored.registry, 'svc_keys_expiring')
    }
    const days = (count: number) => addSeconds(clock(), count * 86_400)
    const apiKey = (id: string, set: { expires_at: string; status?: string }) =>
      storage.write((tx) => tx.updateTable('api_keys').set(set).where('id', '=', id).execute())
    const enrollmentKey = (
      id: string,
      set: { expires_at: string; usage_count?: number; max_usage?: number },
    ) => storage.write((tx) => tx.updateTable('enrollment_keys').set(set).where('id', '=', id).execute())
    await apiKey(orgs.bakery.apiKeyId, { expires_at: days(6) })
    await apiKey(orgs.garage.apiKeyId, { expires_at: days(8) })
    await apiKey(orgs.harbor.apiKeyId, { expires_at: days(6), status: 'revoked' })
    await enrollmentKey(orgs.bakery.keyId, { expires_at: days(0.5) })
    await enrollmentKey(orgs.garage.keyId, { expires_at: days(0.5), usage_count: 3, max_usage: 3 })
    await enrollmentKey(orgs.harbor.keyId, { expires_at: days(2) })
    expect(await counted()).toEqual({ api_key: 1, enrollment_key: 1 })
    clock.forward(7 * 86_400)
    expect(await counted()).toEqual({ api_key: 1, enrollment_key: 0 })
  })

  it('events and mails that wait are counted, with the age of the first one, and the heads of the audit chains', async () => {
    const { storage, clock, orgs } = await worldOf(open)
    const backlog = watchBacklog(storage, clock)
    const counted = async () => {
      await backlog.refresh()
      return [
        await metricValues(backlog.registry, 'svc_backlog_rows'),
        await metricValues(backlog.registry, 'svc_backlog_oldest_age_seconds'),
      ]
    }
    await storage.write(async (tx) => {
      await tx.deleteFrom('events').execute()
      await tx.deleteFrom('mails').execute()
    })
    expect(await counted()).toEqual([
      { events: 0, mails: 0 },
      { events: 0, mails: 0 },
    ])
    await storage.write(async (tx) => {
      for (const seconds of [-90, -30]) {
        const created_at = addSeconds(clock(), seconds)
        const event = { id: newId(), org_id: orgs.bakery.id, type: 'user.login', data: '{}' }
        await tx
          .insertInto('events')
          .values({ ...event, created_at })
          .execute()
      }
      for (const seconds of [-40, 40]) {
        const due_at = addSeconds(clock(), seconds)
        const mail = {
          id: newId(),
          kind: 'invitation',
          content: '',
          attempts: 0,
          lease: null,
          expires_at: '9999',
        }
        await tx
          .insertInto('mails')
          .values({ ...mail, due_at, created_at: due_at })
          .execute()
      }
    })
    expect(await counted()).toEqual([
      { events: 2, mails: 1 },
      { events: 90, mails: 40 },
    ])
    const entries = await storage.read.selectFrom('audit_logs').select('chain').execute()
    await sealPending(storage)
    const sealed = await storage.read.selectFrom('audit_logs').select('chain').execute()
    expect(sealed.length).toBeGreaterThanOrEqual(entries.length)
    expect(await sumHeads(storage.heavy)).toEqual({
      chains: new Set(sealed.map(({ chain }) => chain)).size,
      entries: sealed.length,
    })
  })

  it('due deliveries are counted, with the age of the first one, and no more than asked for', async () => {
    const { storage, clock, orgs } = await worldOf(open)
    const watch = new WebhookWatch(storage, clock, new Registry())
    const counted = async () => {
      await watch.stored.refresh()
      const { '': due } = await metricValues(watch.stored.registry, 'svc_webhook_deliveries_due')
      const { '': age } = await metricValues(watch.stored.registry, 'svc_webhook_oldest_due_age_seconds')
      return { due, age }
    }
    expect(await counted()).toEqual({ due: 0, age: 0 })
    for (const [org, seconds] of [
      [orgs.bakery, -90],
      [orgs.harbor, -30],
      [orgs.garage, 60],
    ] as const) {
      const due_at = addSeconds(clock(), seconds)
      await storage.write(async (tx) => {
        await tx
          .updateTable('webhook_queues')
          .set({ due_at })
          .where('webhook_id', '=', org.webhookId)
          .execute()
        await tx.updateTable('webhook_deliveries').set({ due_at }).where('id', '=', org.deliveryId).execute()
      })
    }
    expect(await counted()).toEqual({ due: 2, age: 90 })
    expect(await countDue(storage.heavy, clock(), 1)).toMatchObject({ count: 1 })
  })

  it('audit entries that wait to be sealed are counted, with the time of the first one, readable or not', async () => {
    const { storage } = await open()
    expect(await countPending(storage.heavy, 10)).toEqual({ count: 0, oldest: undefined })
    const pending = (entry: string) =>
      storage.write((tx) => tx.insertInto('outbox').values({ chain: 'system', entry }).execute())
    await pending(JSON.stringify({ timestamp: '2026-03-01T12:00:00.000Z' }))
    await pending('no JSON')
    await pending('null')
    const oldest = '2026-03-01T12:00:00.000Z'
    expect(await countPending(storage.heavy, 10)).toEqual({ count: 3, oldest })
    expect(await countPending(storage.heavy, 2)).toEqual({ count: 2, oldest })
    await storage.write((tx) => tx.deleteFrom('outbox').where('entry', 'like', '{%').execute())
    expect(await countPending(storage.heavy, 10)).toEqual({ count: 2, oldest: undefined })
  })

  it('what is due and what waits is found by an index', async () => {
    const { dataDir, databaseUrl } = await open()
    const said: string[] = []
    const observer = { waited() {}, ran: (text: string) => void said.push(text) }
    const place = { dataDir, ...(databaseUrl !== undefined && { databaseUrl }) }
    const storage = await openStorage({ ...place, observer })
    onTestFinished(() => storage.close())
    said.length = 0
    await countDue(storage.heavy, systemClock(), 10)
    await countPending(storage.heavy, 10)
    const counts = said.filter((text) => text.startsWith('select'))
    expect(counts).toHaveLength(4)
    const plans = await storage.write(async (tx) => {
      // A table without rows is scanned otherwise.
      if (kind === 'postgres') await sql`set local enable_seqscan = off`.execute(tx)
      const found: string[] = []
      for (const text of counts) {
        const explained =
          kind === 'postgres'
            ? CompiledQuery.raw(`explain (generic_plan, costs off) ${text}`)
            : CompiledQuery.raw(`explain query plan ${text}`, Array(text.split('?').length - 1).fill(null))
        const { rows } = await tx.executeQuery<Record<string, unknown>>(explained)
        found.push(rows.map((row) => row.detail ?? row['QUERY PLAN']).join(' | '))
      }
      return found
    })
    const outbox = kind === 'postgres' ? /outbox_pkey/ : /SCAN outbox/
    const seen = [/webhook_queues_due/, /webhook_queues_due.*webhook_deliveries_due/, outbox, outbox]
    for (const [n, plan] of plans.entries()) {
      expect(plan).toMatch(seen[n]!)
      // In the order of the rows themselves, which the limit ends.
      expect(plan).not.toMatch(/Seq Scan|SCAN [qd]\b|TEMP B-TREE|Sort/)
    }
  })
})

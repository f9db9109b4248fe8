import { setTimeout as sleep } from 'node:timers/promises'
import pino from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { AgentAuditBuffer } from '../../daemon/agent-audit-buffer.ts'
import { AgentEventBuffer } from '../../daemon/agent-event-buffer.ts'
import { deleteExpired } from '../../daemon/background.ts'
import { readConfig } from '../../daemon/config.ts'
import { DeadLetterWatch } from '../../daemon/dead-letter-watch.ts'
import { IntegrityWatch } from '../../daemon/integrity-watch.ts'
import { KeyMeter } from '../../daemon/key-meter.ts'
import { Limiter } from '../../daemon/limiter.ts'
import { deleteEndedRecords } from '../../daemon/retention.ts'
import { RunningSecrets } from '../../daemon/secrets/running.ts'
import { deleteOldCommands, reapCommands } from '../../src/agents/commands/jobs.ts'
import { trimOutputs } from '../../src/agents/commands/output-quota.ts'
import { makeCommand } from '../../src/agents/commands/rules.ts'
import { insertCommand } from '../../src/agents/commands/store.ts'
import { reconcileRollout } from '../../src/agents/rollouts/jobs.ts'
import { api } from '../../src/api.ts'
import { takeDueCheckpoints } from '../../src/audit/checkpoints/due.ts'
import { verifyDue } from '../../src/audit/checkpoints/verification.ts'
import { recordAudit, sealPending } from '../../src/audit/outbox.ts'
import { pruneDue } from '../../src/audit/retention/jobs.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { createCipher } from '../../src/core/cipher.ts'
import type { Limits } from '../../src/core/limits.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import { checkLiveness } from '../../src/devices/jobs.ts'
import { refreshDueGroups } from '../../src/groups/jobs.ts'
import { issueResets } from '../../src/identity/passwords/jobs.ts'
import { insertResetRequest } from '../../src/identity/passwords/store.ts'
import { deleteOldLogs, enforceQuotas } from '../../src/logs/jobs.ts'
import { ByteQuota, LogQuota } from '../../src/logs/quota.ts'
import { sendDueMails } from '../../src/messages/jobs.ts'
import { queueMail } from '../../src/messages/queue.ts'
import { passwordReset } from '../../src/messages/templates.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { liveProcesses } from '../../src/storage/service-processes.ts'
import { deleteOldDeliveries } from '../../src/webhooks/jobs.ts'
import { DeliveryWorker } from '../../src/webhooks/worker/delivery-worker.ts'
import { fanOut } from '../../src/webhooks/worker/fan-out.ts'
import { addRelease, addRollout } from '../agents/rollouts/records.ts'
import { partsOn } from '../audit/chains.ts'
import { retentionOn } from '../audit/retention-world.ts'
import { happening } from '../audit/rows.ts'
import { damaged } from '../daemon/damage.ts'
import { onEveryDatabase, openMigrated, type TestDatabase } from '../databases.ts'
import { startService, type TestService, testSecrets } from '../harness.ts'
import { metricsToken, metricValues, scrapedValues } from '../metric-values.ts'
import { addUser, addWebhook, buildWorld, type Org, type World } from '../world.ts'
import { failWrites } from './failing-writes.ts'

type On = TestDatabase & { world: World; bad: Org; good: Org; service: Pick<TestService, 'storage'> }
type Scenario = (on: On) => Promise<void>

const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
const now = () => systemClock()
const day = 86_400

/** A run of a loop that reports a fault by failing, after all other work is done. */
const run = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error)

const add = (
  storage: Storage,
  table: 'outbox' | 'events' | 'agent_logs' | 'device_event_logs',
  row: object,
) =>
  storage.write((tx) =>
    tx
      .insertInto(table)
      .values(row as never)
      .execute(),
  )

const change = (storage: Storage, table: 'devices' | 'device_groups' | 'sessions', to: object, id?: string) =>
  storage.write((tx) => {
    const rows = tx.updateTable(table).set(to as never)
    return (id === undefined ? rows : rows.where('id' as never, '=', id as never)).execute()
  })

const rowsIn = async (storage: Storage, table: 'set_aside' | 'audit_logs' | 'webhook_deliveries') =>
  (await storage.read.selectFrom(table).selectAll().execute()) as Record<string, unknown>[]

async function command({ storage }: On, { id: orgId, deviceId }: Org, changed: object = {}): Promise<string> {
  const wanted = {
    type: 'collect' as const,
    payload: { what: ['metrics' as const] },
    targetRole: 'agent' as const,
  }
  const made = makeCommand(wanted, { id: newId(), orgId, deviceId, by: newId(), now: now() })
  await storage.write(async (tx) => {
    await insertCommand(tx, made)
    const rows = tx.updateTable('agent_commands').where('id', '=', made.id)
    if (Object.keys(changed).length > 0) await rows.set(changed).execute()
  })
  return made.id
}

const commandsOf = async ({ storage }: On) => {
  const rows = await storage.read.selectFrom('agent_commands').select(['id', 'status']).execute()
  return new Map(rows.map(({ id, status }) => [id, status]))
}

const log = (org: Org, table: 'agent_logs' | 'device_event_logs', createdAt: string) => ({
  id: newId(),
  device_id: org.deviceId,
  org_id: org.id,
  timestamp: createdAt,
  level: 'info',
  seq: 1,
  message: 'hello',
  created_at: createdAt,
  ...(table === 'agent_logs'
    ? { component: 'x', fields: null, agent_version: null }
    : { category: 'system', source: 'x', event_id: null, details: null }),
})

/** For each loop of the service: a row that the database refuses, and another row that must be processed. */
const scenarios: Record<string, Scenario> = {
  async sealer({ storage, dataDir, bad: org }) {
    const draft = (action: string) => JSON.stringify(toDraftEntry(happening(org.id, { action }), now()))
    const entries = [draft('first'), draft('poisoned'), '{"half', '{}', draft('last')]
    for (const entry of entries) await add(storage, 'outbox', { chain: org.id, entry })
    await failWrites(storage, 'insert', 'audit_logs', `new.action = 'poisoned'`)
    expect(await sealPending(storage)).toEqual([])
    const rows = await rowsIn(storage, 'audit_logs')
    const own = rows.filter(({ chain }) => chain === org.id).sort((a, b) => Number(a.seq) - Number(b.seq))
    const stood = 'audit.entry.set_aside'
    expect(own.slice(-5).map(({ action }) => action)).toEqual(['first', stood, stood, stood, 'last'])
    const aside = await rowsIn(storage, 'set_aside')
    expect(aside.map(({ entry }) => entry)).toEqual(entries.slice(1, 4))
    const { details } = JSON.parse(String(own.at(-4)!.canonical))
    expect(details).toMatchObject({ setAside: aside[0]!.id, entry: entries[1] })
    expect(JSON.parse(String(own.at(-3)!.canonical)).details.reason).toBe('It is not JSON')
    const parts = partsOn({ storage, dataDir })
    await verifyDue({ ...parts, clock: Object.assign(systemClock, { forward: () => {} }) })
    expect(parts.verdicts.find(({ chain }) => chain === org.id)).toMatchObject({ verdict: 'sound' })
    // Entries recorded from now on are sealed as usual.
    await storage.write((tx) => recordAudit(tx, toDraftEntry(happening(org.id, { action: 'after' }), now())))
    expect(await sealPending(storage)).toEqual([])
    expect((await rowsIn(storage, 'audit_logs')).some(({ action }) => action === 'after')).toBe(true)
  },

  async postman({ storage, service }) {
    const users = [await addUser(service as TestService, 'one'), await addUser(service as TestService, 'two')]
    for (const name of ['one', 'two']) {
      await storage.write((tx) => insertResetRequest(tx, `${name}@example.com`, now()))
    }
    await storage.write((tx) =>
      tx.updateTable('users').set({ password_hash: 'x', status: 'active' }).execute(),
    )
    await failWrites(storage, 'insert', 'password_resets', `new.user_id = '${users[0]}'`)
    const onIssued = async () => {}
    const resets = {
      storage,
      cipher,
      clock: systemClock,
      publicUrl: () => 'https://svc.example.com',
      onIssued,
    }
    await run(issueResets(resets))
    const issued = await storage.read.selectFrom('password_resets').select('user_id').execute()
    expect(issued).toEqual([{ user_id: users[1] }])
    expect(await storage.read.selectFrom('password_reset_requests').selectAll().execute()).toEqual([])

    await storage.write((tx) => tx.deleteFrom('mails').execute())
    for (const to of ['bad@example.com', 'good@example.com']) {
      const letter = passwordReset({ to, name: 'x', url: 'https://svc.example.com', minutes: 1 })
      await storage.write((tx) => queueMail(tx, cipher, letter, now(), addSeconds(now(), 3600)))
    }
    const [first] = await storage.read.selectFrom('mails').select('id').orderBy('id').execute()
    await failWrites(storage, 'update', 'mails', `new.id = '${first!.id}'`)
    const sent: string[] = []
    const mailer = { real: true, send: async ({ to }: { to: string }) => void sent.push(to) }
    await run(sendDueMails({ storage, cipher, mailer, clock: systemClock, onFailure: () => {} }))
    expect(sent).toEqual(['good@example.com'])
  },

  async sweeper({ storage, good }) {
    await change(storage, 'sessions', { expires_at: '2020-01-01T00:00:00.000Z' })
    await storage.write((tx) =>
      tx.insertInto('api_key_buckets').values({ key_id: good.apiKeyId, bucket: 1, count: 1 }).execute(),
    )
    await failWrites(storage, 'delete', 'sessions', '1 = 1')
    expect(await run(deleteExpired(storage, addSeconds(now(), 90 * day)))).toMatchObject({
      message: /poisoned/,
    })
    const left = await storage.read.selectFrom('api_key_buckets').selectAll().execute()
    expect(left.filter(({ bucket }) => bucket === 1)).toEqual([])
  },

  /** It only reads. */
  async 'set aside'({ storage }) {
    const logged: unknown[] = []
    const watch = new DeadLetterWatch(storage, systemClock, {
      error: (...what: unknown[]) => logged.push(what),
    } as never)
    await watch.logNew()
    await add(storage, 'outbox', { chain: newId(), entry: '{"half' })
    await sealPending(storage)
    await watch.logNew()
    await watch.logNew()
    expect(logged).toHaveLength(1)
    expect(await watch.check()).toBe('audit_logs: 1')
    await watch.stored.refresh()
    expect(await metricValues(watch.stored.registry, 'svc_set_aside_rows')).toMatchObject({ audit_logs: 1 })
  },

  async secrets({ storage, dataDir }) {
    const config = readConfig({ ...testSecrets, SVC_DATA_DIR: dataDir })
    const on = { storage, clock: systemClock, log: pino({ enabled: false }), metrics: new Registry(), config }
    const of = { host: 'one', pid: 1, started_at: now(), prints: '{"half' }
    await storage.write((tx) =>
      tx
        .insertInto('service_processes')
        .values({ id: newId(), seen_at: Date.now(), ...of })
        .execute(),
    )
    const secrets = await RunningSecrets.begin(on)
    await secrets.poll()
    await secrets.stored.refresh()
    expect((await liveProcesses(storage.read)).map(({ pid }) => pid).sort()).toEqual([1, process.pid])
    await secrets.end()
  },

  async 'key counter'({ storage, bad, good }) {
    const keys = await storage.read.selectFrom('api_keys').selectAll().execute()
    const meter = new KeyMeter(storage)
    for (const { id, key_hash: hash, rate_limit: rateLimit } of keys)
      await meter.take({ id, hash, rateLimit }, now())
    const cure = await failWrites(
      storage,
      'update',
      'api_keys',
      `new.id = '${bad.apiKeyId}' and new.usage_count <> old.usage_count`,
    )
    const counts = async () => {
      const rows = await storage.read.selectFrom('api_keys').select(['id', 'usage_count']).execute()
      return Object.fromEntries(rows.map((row) => [row.id, row.usage_count]))
    }
    await run(meter.flush(now()))
    expect(await counts()).toMatchObject({ [bad.apiKeyId]: 0, [good.apiKeyId]: 1 })
    await cure()
    await meter.flush(now())
    expect(await counts()).toMatchObject({ [bad.apiKeyId]: 1, [good.apiKeyId]: 1 })
  },

  async 'device watch'({ storage, bad, good }) {
    await change(storage, 'devices', { status: 'online' })
    await failWrites(storage, 'update', 'devices', `new.id = '${bad.deviceId}'`)
    await run(checkLiveness(storage, { offlineAfterSeconds: 60 }, addSeconds(now(), 3600)))
    const rows = await storage.read.selectFrom('devices').select(['id', 'status']).execute()
    const states = Object.fromEntries(rows.map(({ id, status }) => [id, status]))
    expect(states).toMatchObject({ [bad.deviceId]: 'online', [good.deviceId]: 'offline' })
  },

  async 'device groups'({ storage, world: { orgs }, bad, good }) {
    for (const { groupId, filterId } of Object.values(orgs)) {
      await change(storage, 'device_groups', { filter_id: filterId, evaluated_at: null }, groupId)
    }
    await storage.write(async (tx) => {
      const of = (id: string) => tx.updateTable('saved_filters').where('id', '=', id)
      const field = { field: 'hostname', operator: 'isNotNull' }
      const all = JSON.stringify({ operator: 'AND', conditions: [field] })
      await tx.updateTable('saved_filters').set({ conditions: all }).execute()
      await of(orgs.harbor.filterId).set({ conditions: '{"half' }).execute()
      await tx.deleteFrom('device_group_devices').execute()
    })
    await failWrites(storage, 'update', 'device_groups', `new.id = '${bad.groupId}'`)
    await run(refreshDueGroups({ storage, clock: systemClock }))
    const members = await storage.read
      .selectFrom('device_group_devices')
      .select(['group_id', 'device_id'])
      .execute()
    expect(members).toEqual([{ group_id: good.groupId, device_id: good.deviceId }])
  },

  async 'agent rollouts'(on) {
    const { storage, service, bad, good } = on
    await addRelease(service, '9.9.9', { promoted: true })
    const id = await addRollout(service as TestService, 'preparing')
    await failWrites(storage, 'insert', 'agent_rollout_devices', `new.device_id = '${bad.deviceId}'`)
    const parts = { storage, clock: systemClock, offlineAfterSeconds: 300 }
    await run(reconcileRollout(parts))
    const places = async () => {
      const rows = storage.read.selectFrom('agent_rollout_devices').select(['device_id', 'state'])
      const all = await rows.where('rollout_id', '=', id).execute()
      return Object.fromEntries(all.map((row) => [row.device_id, row.state]))
    }
    const other = on.world.orgs.harbor.deviceId
    expect(Object.keys(await places()).sort()).toEqual([good.deviceId, other].sort())
    await change(storage, 'devices', { status: 'decommissioned' })
    await failWrites(storage, 'update', 'agent_rollout_devices', `new.device_id = '${other}'`)
    await run(reconcileRollout(parts))
    expect(await places()).toMatchObject({ [good.deviceId]: 'withdrawn', [other]: 'waiting' })
  },

  async 'old logs'({ storage, bad, good }) {
    const old = '2020-01-01T00:00:00.000Z'
    const kept = log(bad, 'agent_logs', old)
    await add(storage, 'agent_logs', kept)
    await add(storage, 'agent_logs', log(good, 'agent_logs', '2020-01-02T00:00:00.000Z'))
    await add(storage, 'device_event_logs', log(good, 'device_event_logs', old))
    await failWrites(storage, 'delete', 'agent_logs', `old.id = '${kept.id}'`)
    await run(deleteOldLogs(storage, { agentLogRetentionDays: 7, eventLogRetentionDays: 7 }, now()))
    expect(await storage.read.selectFrom('agent_logs').select('id').execute()).toEqual([{ id: kept.id }])
    expect(await storage.read.selectFrom('device_event_logs').select('id').execute()).toEqual([])
  },

  /** It only forgets expired windows in memory. */
  async 'rate limits'() {
    const limiter = new Limiter({ AGENT_AUDIT: { count: 1, seconds: 0.001 } } as Limits)
    for (const key of ['bad', 'good']) limiter.tryTake('AGENT_AUDIT', key)
    await sleep(20)
    await run(limiter.sweep())
    expect(limiter.size).toBe(0)
  },

  async 'room for logs'({ storage, bad, good }) {
    const stuck = log(bad, 'agent_logs', now())
    await add(storage, 'agent_logs', stuck)
    await add(storage, 'agent_logs', log(good, 'agent_logs', now()))
    for (const { deviceId } of [bad, good]) await change(storage, 'devices', { log_bytes: 1000 }, deviceId)
    await failWrites(storage, 'delete', 'agent_logs', `old.id = '${stuck.id}'`)
    await run(enforceQuotas(storage, new LogQuota({ perDevice: 100, perOrg: 2 ** 40 })))
    expect(await storage.read.selectFrom('agent_logs').select('id').execute()).toEqual([{ id: stuck.id }])
  },

  async 'agent entries'({ storage, bad, good }) {
    const limits = { AGENT_AUDIT: { count: 1, seconds: 3600 } } as Limits
    const gathered = new AgentAuditBuffer(new Limiter(limits), new Registry(), { closure: undefined })
    for (const { id, deviceId } of [bad, bad, good, good]) {
      const more = { actorType: 'agent' as const, actorId: deviceId, action: 'poisoned by many' }
      gathered.isDue(toDraftEntry(happening(id, more), now()))
    }
    await failWrites(storage, 'insert', 'outbox', `new.chain = '${bad.id}'`)
    await failWrites(storage, 'insert', 'audit_logs', `new.chain = '${bad.id}'`)
    await run(gathered.write(storage, now()))
    await sealPending(storage)
    const poisonedEntries = (await rowsIn(storage, 'audit_logs')).filter(
      ({ action }) => action === 'poisoned by many',
    )
    expect(poisonedEntries).toMatchObject([{ chain: good.id }])
    expect(gathered.size).toBe(1)
  },

  async 'agent events'({ storage, service, bad, good }) {
    for (const { id } of [bad, good])
      await addWebhook(service as TestService, id, 'updated', ['device.updated'])
    const limits = { AGENT_EVENTS: { count: 1, seconds: 3600 } } as Limits
    const waiting = new AgentEventBuffer(new Limiter(limits), new Registry(), { closure: undefined })
    for (const { deviceId } of [bad, bad, good, good]) waiting.emitsNow(deviceId, ['hostname'])
    await failWrites(storage, 'insert', 'events', `new.org_id = '${bad.id}'`)
    await run(waiting.write(storage, now()))
    const events = await storage.read.selectFrom('events').select(['org_id', 'type']).execute()
    expect(events).toEqual([{ org_id: good.id, type: 'device.updated' }])
    expect(waiting.size).toBe(1)
  },

  async 'room for outputs'(on) {
    const { storage, bad, good } = on
    const ended = {
      status: 'completed',
      completed_at: now(),
      result: JSON.stringify({ status: 'completed', stdout: 'x'.repeat(5000), error: null }),
    }
    const [stuck] = [await command(on, bad, ended), await command(on, good, ended)]
    for (const { deviceId } of [bad, good])
      await change(storage, 'devices', { command_bytes: 5000 }, deviceId)
    await failWrites(storage, 'update', 'agent_commands', `new.id = '${stuck}'`)
    await run(trimOutputs(storage, new ByteQuota({ perDevice: 2000, perOrg: 2 ** 40 }), now()))
    const rows = await storage.read.selectFrom('agent_commands').select(['id', 'result']).execute()
    expect(rows.filter(({ result }) => result!.includes('xxx')).map(({ id }) => id)).toEqual([stuck])
  },

  async commands(on) {
    const { storage, bad, good } = on
    const late = { expires_at: '2020-01-01T00:00:00.000Z' }
    const sent = { status: 'sent', sent_count: 99, sent_at: '2020-01-01T00:00:00.000Z' }
    const stuck = [await command(on, bad, late), await command(on, bad, sent)]
    const others = [await command(on, good, late), await command(on, good, sent)]
    await failWrites(storage, 'update', 'agent_commands', `new.id in ('${stuck.join("', '")}')`)
    await run(reapCommands(storage, async () => {}, now()))
    const states = await commandsOf(on)
    expect(others.map((id) => states.get(id))).toEqual(['failed', 'failed'])
    expect(stuck.map((id) => states.get(id))).toEqual(['pending', 'sent'])
  },

  async 'old commands'(on) {
    const { storage, bad, good } = on
    const ended = { status: 'completed', completed_at: '2020-01-01T00:00:00.000Z' }
    const [stuck, other] = [await command(on, bad, ended), await command(on, good, ended)]
    await failWrites(storage, 'delete', 'agent_commands', `old.id = '${stuck}'`)
    await run(deleteOldCommands(storage, now()))
    const left = await commandsOf(on)
    expect([left.has(stuck), left.has(other)]).toEqual([true, false])
  },

  async 'audit checkpoints'({ storage, dataDir, bad, good }) {
    await failWrites(storage, 'insert', 'audit_checkpoints', `new.chain = '${bad.id}'`)
    await storage.write((tx) => tx.deleteFrom('audit_checkpoints').execute()).catch(() => {})
    const parts = partsOn({ storage, dataDir })
    await run(takeDueCheckpoints({ ...parts, clock: systemClock }))
    const rows = await storage.read.selectFrom('audit_checkpoints').select('chain').execute()
    const signed = new Set(rows.map(({ chain }) => chain))
    expect([signed.has(bad.id), signed.has(good.id)]).toEqual([false, true])
  },

  async 'audit verification'({ storage, dataDir, bad, good }) {
    await failWrites(storage, 'insert', 'audit_verdicts', `new.chain = '${bad.id}'`)
    const parts = partsOn({ storage, dataDir })
    await run(verifyDue({ ...parts, clock: Object.assign(systemClock, { forward: () => {} }) }))
    const rows = await storage.read.selectFrom('audit_verdicts').select(['chain', 'verdict']).execute()
    const found = new Map(rows.map(({ chain, verdict }) => [chain, verdict]))
    expect([found.get(bad.id), found.get(good.id)]).toEqual([undefined, 'sound'])
  },

  async 'audit retention'(on) {
    const { storage } = on
    const { parts, aged, seqs } = retentionOn(on)
    const [bad, good] = [newId(), newId()].sort() as [string, string]
    for (const chain of [bad, good]) await aged(chain, [4000, 3999, 1])
    for (const change of ['insert', 'update'] as const) {
      await failWrites(storage, change, 'audit_retention', `new.chain = '${bad}'`)
    }
    await run(pruneDue(parts))
    expect([(await seqs(bad))[0], (await seqs(good))[0]]).toEqual([1, 3])
  },

  async 'ended records'(on) {
    const { storage, bad, good } = on
    const old = '2020-01-01T00:00:00.000Z'
    const retired = { status: 'decommissioned', updated_at: old }
    const ended = { alerts: { resolved_at: old }, scripts: { deleted_at: old }, devices: retired }
    await storage.write(async (tx) => {
      for (const [table, to] of Object.entries(ended)) {
        const rows = tx.updateTable(table as 'devices').set(to as never)
        await rows.where('org_id', 'in', [bad.id, good.id]).execute()
      }
    })
    const ids = { alerts: bad.alertId, scripts: bad.scriptId, devices: bad.deviceId }
    for (const [table, id] of Object.entries(ids)) {
      await failWrites(storage, 'delete', table as 'alerts', `old.id = '${id}'`)
    }
    const none = { checkpoints: undefined, proofs: undefined, archives: undefined, applies: undefined }
    const days = { alerts: 1, scripts: 1, devices: 1, keys: 1, rollouts: 1, releases: 1, ...none }
    expect(await run(deleteEndedRecords(storage, days, now()))).toBeInstanceOf(Error)
    for (const table of ['alerts', 'scripts', 'devices'] as const) {
      const rows = storage.read.selectFrom(table).select('org_id').where('org_id', 'in', [bad.id, good.id])
      expect([table, await rows.execute()]).toEqual([table, [{ org_id: bad.id }]])
    }
  },

  /** It only reads, on Postgres from a shared result. */
  async 'database integrity'({ storage, dataDir, databaseUrl }) {
    await storage.close()
    const kind = databaseUrl === undefined ? 'sqlite' : 'postgres'
    const place = await damaged(kind, { dataDir, databaseUrl }, ['scripts', 'sites'])
    const hurt = await openStorage(place)
    onTestFinished(() => hurt.close())
    const logged: unknown[] = []
    const log = { error: (...what: unknown[]) => void logged.push(what), warn: expect.unreachable }
    const watch = new IntegrityWatch(hurt, systemClock, log, new Registry())
    if (kind === 'postgres') {
      for (const table of ['scripts', 'sites'] as const)
        await run(hurt.read.selectFrom(table).selectAll().execute())
    }
    await watch.look(new AbortController().signal)
    const found = {
      sqlite: [expect.stringMatching(/^scripts: /), expect.stringMatching(/^sites: /)],
      postgres: [expect.stringMatching(/^checksum failures: 2, /)],
    }[kind]
    expect(logged).toEqual([[{ found }, expect.any(String)]])
    expect(watch.isDamaged).toBe(true)
  },

  async webhooks({ storage, service, bad, good }) {
    const hooks = [
      await addWebhook(service as TestService, bad.id, 'bad', ['device.offline']),
      await addWebhook(service as TestService, good.id, 'good', ['device.offline']),
    ]
    for (const { orgId } of hooks) await add(storage, 'events', event(orgId))
    await fanOut(storage, now())
    await failWrites(storage, 'update', 'webhook_deliveries', `new.webhook_id = '${hooks[0]!.id}'`)
    const worker = new DeliveryWorker({
      storage,
      cipher,
      outbound: {
        send: async () => ({ status: 200, headers: {}, body: '' }) as never,
        locateHost: async () => undefined as never,
        close: async () => {},
      },
      clock: systemClock,
      timeoutMs: 1000,
      wake: () => {},
      onAttempt: () => {},
      onOutcomeNotStored: () => {},
    })
    for (let n = 0; n < 10; n++) {
      await run(worker.round())
      await sleep(20)
    }
    await run(worker.close())
    const rows = await rowsIn(storage, 'webhook_deliveries')
    expect(rows.find(({ webhook_id }) => webhook_id === hooks[1]!.id)).toMatchObject({ status: 'delivered' })
  },

  async 'webhook events'({ storage, service, bad, good }) {
    const stuck = await addWebhook(service as TestService, bad.id, 'stuck', ['device.offline'])
    const twin = await addWebhook(service as TestService, bad.id, 'twin', ['device.offline'])
    const other = await addWebhook(service as TestService, good.id, 'other', ['device.offline'])
    await failWrites(storage, 'insert', 'webhook_deliveries', `new.webhook_id = '${stuck.id}'`)
    for (const { id } of [bad, bad, good]) await add(storage, 'events', event(id))
    for (let more = true; more; ) ({ more } = await fanOut(storage, now()))
    const rows = await rowsIn(storage, 'webhook_deliveries')
    const of = (id: string) => rows.filter(({ webhook_id }) => webhook_id === id)
    expect([of(stuck.id), of(twin.id), of(other.id)].map(({ length }) => length)).toEqual([0, 2, 1])
    expect(await storage.read.selectFrom('events').select('seq').execute()).toEqual([])
    const aside = await rowsIn(storage, 'set_aside')
    expect(aside).toMatchObject([{ source: 'events' }, { source: 'events' }])
    expect(JSON.parse(String(aside[0]!.entry))).toMatchObject({ webhookId: stuck.id, type: 'device.offline' })
    // An event that cannot be removed stays, and those behind it are fanned out.
    await failWrites(storage, 'delete', 'events', `old.org_id = '${bad.id}'`)
    await failWrites(storage, 'update', 'events', `new.org_id = '${bad.id}'`)
    for (const { id } of [bad, good]) await add(storage, 'events', event(id))
    await fanOut(storage, now())
    const left = await storage.read.selectFrom('events').select('org_id').execute()
    expect(left).toEqual([{ org_id: bad.id }])
  },

  async 'webhook upkeep'({ storage, bad, good }) {
    await failWrites(storage, 'delete', 'webhook_deliveries', `old.id = '${bad.deliveryId}'`)
    await run(
      deleteOldDeliveries(storage, { deliveryDays: 1, deliveriesKept: 100_000 }, addSeconds(now(), 30 * day)),
    )
    const left = (await rowsIn(storage, 'webhook_deliveries')).map(({ id }) => id)
    expect([left.includes(bad.deliveryId), left.includes(good.deliveryId)]).toEqual([true, false])
  },
}

const event = (orgId: string) => ({
  id: newId(),
  org_id: orgId,
  type: 'device.offline',
  data: '{}',
  created_at: now(),
})

it('every loop of the service has a scenario with a poisoned row', async () => {
  const loops = new Set<string>()
  for (const kind of ['sqlite', 'postgres'] as const) {
    const service = await startService(() => openMigrated(kind), { env: { METRICS_TOKEN: metricsToken } })
    for (const name of Object.keys(await scrapedValues(service.url, 'svc_loop_interval_seconds')))
      loops.add(name)
    await service.close()
  }
  // The leases are rows of a process itself, which nobody else's rows hold up.
  expect(loops.delete('leases')).toBe(true)
  expect(Object.keys(scenarios).sort()).toEqual([...loops].sort())
})

describe('one row that the database refuses does not block others', () => {
  onEveryDatabase((_, open) => {
    async function begin(): Promise<On> {
      const database = await open()
      const service = await startService(async () => database)
      const world = await buildWorld(service)
      await service.close()
      const { bakery: bad, garage: good } = world.orgs
      return { ...database, world, bad, good, service: { storage: database.storage } }
    }

    it.each(Object.keys(scenarios))('%s', async (name) => {
      await scenarios[name]!(await begin())
    })

    it('of simultaneous heartbeats', async () => {
      const service = await startService(open)
      const { orgs } = await buildWorld(service)
      await failWrites(service.storage, 'update', 'devices', `new.id = '${orgs.bakery.deviceId}'`)
      const body = {
        ...api.agents.heartbeat.example,
        metrics: { cpuPercent: 1, ramPercent: 1, diskPercent: 1 },
      } as never
      const beat = (org: Org) =>
        service.client(org.agentToken).call(api.agents.heartbeat, { params: { id: org.agentId }, body })
      const beats = await Promise.allSettled([orgs.bakery, orgs.garage, orgs.harbor].map(beat))
      expect(beats.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled'])
    })

    it('of the entries of one log submission', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const { agentToken, agentId: id, deviceId } = orgs.bakery
      const agent = service.client(agentToken)
      for (const table of ['agent_logs', 'device_event_logs'] as const) {
        await failWrites(service.storage, 'insert', table, `new.message = 'poisoned'`)
      }
      const messages = Array.from({ length: 120 }, (_, n) => (n === 60 ? 'poisoned' : `number ${n}`))
      const timestamp = now()
      const logs = messages.map((message) => ({ timestamp, level: 'info' as const, component: 'x', message }))
      expect(await agent.call(api.diagnosticLogs.submit, { params: { id }, body: { logs } })).toEqual({
        received: 120,
      })
      const events = messages.map((message) => ({
        timestamp,
        level: 'info' as const,
        category: 'system' as const,
        source: 'x',
        message,
      }))
      const taken = await agent.call(api.eventLogs.submit, { params: { id }, body: { events } })
      expect(taken).toMatchObject({ count: 120 })
      const client = service.client(tokens.bakery)
      const params = { id: deviceId }
      const query = { limit: 200 }
      for (const { data } of [
        await client.call(api.diagnosticLogs.list, { params, query }),
        await client.call(api.eventLogs.list, { params, query }),
      ]) {
        const stored = data.map(({ message }) => message)
        expect(stored.filter((message) => message.startsWith('number '))).toHaveLength(119)
        expect(stored.filter((message) => message.startsWith('An entry could not be stored'))).toHaveLength(1)
      }
    })

    it('of changes that share a commit, when one fails to be audited', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      for (const table of ['outbox', 'audit_logs'] as const) {
        await failWrites(service.storage, 'insert', table, `new.chain = '${orgs.bakery.id}'`)
      }
      const make = (name: 'bakery' | 'garage' | 'harbor') =>
        service.client(tokens[name]).call(api.sites.create, { body: { orgId: orgs[name].id, name: 'Annex' } })
      const made = await Promise.allSettled([make('garage'), make('bakery'), make('harbor')])
      expect(made.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    })
  })
})

import { gzipSync } from 'node:zlib'
import pino from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { LogWatch } from '../../daemon/log-watch.ts'
import { api } from '../../src/api.ts'
import { deleteOldLogs, enforceQuotas, recountBytes } from '../../src/logs/jobs.ts'
import { type Excess, equalShare, LogQuota } from '../../src/logs/quota.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { metricValues } from '../metric-values.ts'
import { buildWorld } from '../world.ts'
import { makeNoRoom } from './room.ts'

const kib = 1024
const perDevice = 64 * kib
const quotaExceeded = expect.objectContaining({ status: 429, code: 'log_quota_exceeded', retryAfter: 30 })
const timestamp = '2026-03-01T11:00:00.000Z'

/** Entries of about a kibibyte each. */
const entries = (names: readonly (string | number)[]) =>
  names.map((name) => ({ message: `${name} ${'ä'.repeat(280)}` }))

type Machine = { agentId: string; agentToken: string; deviceId: string; orgId: string }

function machineOf(service: TestService, { agentId, agentToken, deviceId, orgId }: Machine) {
  const client = service.client(agentToken)
  const params = { id: agentId }
  const more = { timestamp, component: 'x', level: 'info' } as const
  const written = { timestamp, level: 'info', category: 'system', source: 'kernel' } as const
  const { storage } = service
  return {
    agentId,
    agentToken,
    deviceId,
    orgId,
    say: (...names: (string | number)[]) =>
      client.call(api.diagnosticLogs.submit, {
        params,
        body: { logs: entries(names).map((one) => ({ ...more, ...one })) },
      }),
    write: (...names: (string | number)[]) =>
      client.call(api.eventLogs.submit, {
        params,
        body: { events: entries(names).map((one, n) => ({ ...written, ...one, eventId: `${names[n]}` })) },
      }),
    /** The counted bytes and the stored entries, in the order they were received. */
    async kept() {
      const { log_bytes: counted } = await storage.read
        .selectFrom('devices')
        .select('log_bytes')
        .where('id', '=', deviceId)
        .executeTakeFirstOrThrow()
      const said = storage.read.selectFrom('agent_logs').select(['seq', 'message'])
      const rows = await said
        .where('device_id', '=', deviceId)
        .unionAll(
          storage.read
            .selectFrom('device_event_logs')
            .select(['seq', 'message'])
            .where('device_id', '=', deviceId),
        )
        .execute()
      const names = rows.sort((a, b) => a.seq - b.seq).map(({ message }) => message.split(' ')[0]!)
      return { counted, names }
    },
    miscount: (bytes: number) =>
      storage.write((tx) =>
        tx.updateTable('devices').set({ log_bytes: bytes }).where('id', '=', deviceId).execute(),
      ),
  }
}

const range = (from: number, count: number) => Array.from({ length: count }, (_, n) => from + n)

it('shares are equal, and a device that needs less leaves the rest to the others', () => {
  expect(equalShare([], 10)).toBe(Number.POSITIVE_INFINITY)
  expect(equalShare([5, 5], 10)).toBe(Number.POSITIVE_INFINITY)
  expect(equalShare([1, 100, 2, 100], 43)).toBe(20)
  expect(equalShare([10, 10, 10], 10)).toBe(3)
})

it('a device over its quota is logged once per hour, and all its entries are counted', async () => {
  const lines: Record<string, unknown>[] = []
  const metrics = new Registry()
  const watch = new LogWatch(
    pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) }),
    metrics,
  )
  for (let n = 0; n < 50; n += 1) {
    watch.add({ deviceId: 'a', orgId: 'o', what: 'refused', entries: 2 })
    watch.add({ deviceId: 'b', orgId: 'o', what: 'deleted', entries: 3 })
  }
  expect(lines).toMatchObject([
    { deviceId: 'a', refused: 2, msg: expect.stringContaining('the logs of a device exceed its limit') },
    { deviceId: 'b', deleted: 3 },
  ])
  expect(await metricValues(metrics, 'svc_log_entries_excess_total')).toEqual({ refused: 100, deleted: 150 })
})

inTurn((open) => {
  const start = async (env: Record<string, string> = {}) => {
    const clock = testClock()
    const service = await startService(open, { clock, env })
    const { orgs } = await buildWorld(service)
    const machine = (org: { id: string; agentId: string; agentToken: string; deviceId: string }) =>
      machineOf(service, { ...org, orgId: org.id })
    return { clock, service, orgs, bakery: machine(orgs.bakery), garage: machine(orgs.garage) }
  }
  /** Another device in that organization. */
  const another = async (service: TestService, org: { id: string; deviceId: string; agentId: string }) => {
    const { storage } = service
    const row = await storage.read
      .selectFrom('devices')
      .selectAll()
      .where('id', '=', org.deviceId)
      .executeTakeFirstOrThrow()
    const id = crypto.randomUUID()
    await storage.write((tx) =>
      tx
        .insertInto('devices')
        .values({ ...row, id, agent_id: `agent-${id}`, token_hash: id, log_bytes: 0, log_seq: 0 })
        .execute(),
    )
    return id
  }

  describe('the logs of a device', () => {
    it('are its newest within its quota; other devices lose nothing', async () => {
      const { bakery, garage } = await start({ LOG_BYTES_PER_DEVICE: `${perDevice}` })
      await garage.say('here')
      let refusals = 0
      let last = 0
      for (let n = 0; n < 130; n += 10) {
        const submit = n % 20 === 0 ? bakery.say : bakery.write
        for (let tries = 0; ; tries += 1) {
          const error = await submit(...range(n, 10)).then(
            () => undefined,
            (thrown) => thrown,
          )
          if (error === undefined) break
          expect(error).toEqual(quotaExceeded)
          refusals += 1
          expect(tries, 'room is made while it waits').toBeLessThan(200)
          await new Promise((resolve) => setTimeout(resolve, 50))
        }
        last = n + 9
        // Its quota, and one request.
        expect((await bakery.kept()).counted).toBeLessThan(perDevice + 11 * kib)
      }
      expect(refusals).toBeGreaterThan(0)
      const { names } = await bakery.kept()
      expect(names).toEqual(range(last - names.length + 1, names.length).map(String))
      expect(names.length).toBeGreaterThan(45)
      expect(names.length).toBeLessThan(76)
      expect((await garage.kept()).names).toEqual(['here'])
    })

    it('are counted as stored: nothing twice, and nothing that was deleted', async () => {
      const { service, clock, bakery } = await start()
      await bakery.write(1, 2)
      const { counted } = await bakery.kept()
      expect(counted).toBeGreaterThan(2 * (400 + 560))
      expect(counted).toBeLessThan(2 * kib)
      await bakery.write(1, 2)
      expect(await bakery.kept()).toEqual({ counted, names: ['1', '2'] })
      await bakery.say(3)
      const all = (await bakery.kept()).counted
      // A recount in the database gives the same.
      await bakery.miscount(7)
      expect(await recountBytes(service.storage)).toBeUndefined()
      expect((await bakery.kept()).counted).toBe(all)
      const retention = { agentLogRetentionDays: 1, eventLogRetentionDays: 2 }
      clock.forward(86_401)
      await deleteOldLogs(service.storage, retention, clock())
      expect(await bakery.kept()).toEqual({ counted, names: ['1', '2'] })
      // Counted too low, as entries from before the counter would be.
      await bakery.miscount(5)
      clock.forward(86_401)
      await deleteOldLogs(service.storage, retention, clock())
      expect(await bakery.kept()).toEqual({ counted: 0, names: [] })
    })

    it('are counted after inflation when they are sent compressed', async () => {
      const { service, bakery, garage } = await start()
      const names = range(0, 20)
      await bakery.say(...names)
      const body = {
        logs: entries(names).map((one) => ({ timestamp, component: 'x', level: 'info', ...one })),
      }
      const packed = gzipSync(JSON.stringify(body))
      expect(packed.length).toBeLessThan(2 * kib)
      const reply = await fetch(`${service.url}/api/v1/agents/${garage.agentId}/logs`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${garage.agentToken}`,
          'content-type': 'application/json',
          'content-encoding': 'gzip',
        },
        body: packed,
      })
      expect(reply.status).toBe(201)
      const { counted } = await garage.kept()
      expect(counted).toBe((await bakery.kept()).counted)
      expect(counted).toBeGreaterThan(10 * packed.length)
    })

    it('are refused as a whole or not at all; a request below the quota may be of any size', async () => {
      makeNoRoom()
      const { service, bakery } = await start()
      await bakery.miscount(256 * 2 ** 20)
      await bakery.say(...range(0, 400))
      await expect(bakery.say('more')).rejects.toEqual(quotaExceeded)
      await expect(bakery.write('more')).rejects.toEqual(quotaExceeded)
      expect((await bakery.kept()).names).toHaveLength(400)
      await bakery.miscount(300 * kib)
      const excesses: Excess[] = []
      const quota = new LogQuota({ perDevice: 100 * kib, perOrg: 2 ** 40 }, (one) => excesses.push(one))
      await enforceQuotas(service.storage, quota)
      expect((await bakery.kept()).counted).toBeLessThan(88 * kib)
      expect((await bakery.kept()).names.at(-1)).toBe('399')
      const { deviceId, orgId } = bakery
      expect(excesses).toEqual([{ deviceId, orgId, what: 'deleted', entries: expect.any(Number) }])
      expect((await bakery.kept()).names).toHaveLength(400 - excesses[0]!.entries)
    })

    it('are received no faster than RATE_LIMIT_LOG_BYTES allows', async () => {
      const { bakery, garage } = await start({ RATE_LIMIT_LOG_BYTES: '10000/3600' })
      await bakery.say(...range(0, 9))
      const tooFast = expect.objectContaining({ status: 429, code: 'rate_limited', retryAfter: 3600 })
      await expect(bakery.say(...range(9, 3))).rejects.toEqual(tooFast)
      await expect(bakery.write(...range(9, 3))).rejects.toEqual(tooFast)
      expect((await bakery.kept()).names).toHaveLength(9)
      expect(await garage.say('here')).toEqual({ received: 1 })
    })

    it('are recounted where the counter is too high', async () => {
      const { service, bakery } = await start()
      await bakery.miscount(2 ** 40)
      await enforceQuotas(service.storage, new LogQuota({ perDevice, perOrg: 2 ** 50 }))
      expect(await bakery.kept()).toEqual({ counted: 0, names: [] })
    })
  })

  describe('the logs of an organization', () => {
    it('share a quota: the largest device loses its oldest, small ones and others nothing', async () => {
      const { service, orgs, bakery, garage } = await start()
      const { storage } = service
      const small = await another(service, orgs.bakery)
      await bakery.say(...range(0, 300))
      await garage.say(...range(0, 100))
      // Twenty of its entries belong to the other device.
      const moved = { device_id: small }
      await storage.write((tx) =>
        tx
          .updateTable('agent_logs')
          .set(moved)
          .where('device_id', '=', bakery.deviceId)
          .where('seq', '<=', 20)
          .execute(),
      )
      await recountBytes(storage)
      const quota = new LogQuota({ perDevice: 2 ** 40, perOrg: 150 * kib })
      await enforceQuotas(storage, quota)
      const sums = await storage.read
        .selectFrom('devices')
        .select('log_bytes')
        .where('org_id', '=', bakery.orgId)
        .execute()
      expect(sums.reduce((sum, { log_bytes }) => sum + log_bytes, 0)).toBeLessThan(150 * kib)
      const { names } = await bakery.kept()
      expect(names.length).toBeGreaterThan(100)
      expect(names).toEqual(range(300 - names.length, names.length).map(String))
      const left = await storage.read
        .selectFrom('agent_logs')
        .select('id')
        .where('device_id', '=', small)
        .execute()
      expect(left).toHaveLength(20)
      expect((await garage.kept()).names).toHaveLength(100)
      expect(quota.roomOf(garage.orgId)).toBe(2 ** 40)
      expect(quota.roomOf(bakery.orgId)).toBeLessThan(150 * kib)
      await enforceQuotas(storage, quota)
      expect(quota.roomOf(bakery.orgId), 'once there is room').toBe(2 ** 40)
    })

    it('are bounded by the running service, whichever device submits them', async () => {
      const { service, bakery, garage } = await start({
        LOG_BYTES_PER_ORG: `${perDevice}`,
        METRICS_TOKEN: 'a token for metrics',
      })
      for (let n = 0; n < 200; n += 20) {
        await bakery.say(...range(n, 20)).catch((error) => expect(error).toEqual(quotaExceeded))
        await garage.say(n)
      }
      await expect
        .poll(async () => (await bakery.kept()).counted, { timeout: 10_000 })
        .toBeLessThanOrEqual(perDevice)
      expect((await bakery.kept()).names.length).toBeGreaterThan(20)
      expect((await garage.kept()).names).toHaveLength(10)
      const headers = { authorization: 'Bearer a token for metrics' }
      const metrics = await (await fetch(`${service.url}/metrics`, { headers })).text()
      expect(metrics).toMatch(/svc_log_entries_excess_total\{what="deleted"\} [1-9]/)
      expect(metrics).toMatch(/\nsvc_log_bytes [1-9]/)
    })
  })
})

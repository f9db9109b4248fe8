import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemScope } from '../../src/core/scope.ts'
import { insertDiagnosticLogs } from '../../src/logs/diagnostic/store.ts'
import { maxDevicesOfNewest, maxHeadsSince, maxSince } from '../../src/logs/tails/contract.ts'
import { logTails } from '../../src/logs/tails/handlers.ts'
import { listLogHeads, logsAfter, newestLogs } from '../../src/logs/tails/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { addGroup, addOrgUser, buildWorld } from '../world.ts'
import { placedOf } from './sequence.ts'

const naming = (path: string) =>
  expect.objectContaining({
    status: 400,
    details: expect.arrayContaining([expect.objectContaining({ path })]),
  })
const clockTime = '2026-03-01T11:00:00.000Z'

onEveryDatabase((_, open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const system = service.client(world.tokens.system)
    const key = await system.call(api.enrollmentKeys.create, {
      body: { orgId: bakery.id, siteId: bakery.siteId, name: 'spare', maxUsage: 1000 },
    })
    type Machine = { deviceId: string; agentId: string; agentToken: string }
    const enroll = async (hostname: string): Promise<Machine> => {
      const { authToken, ...ids } = await service.client().call(api.agents.enroll, {
        body: {
          enrollmentKey: key.key,
          hostname,
          osType: 'linux',
          osVersion: 'Debian 12',
          architecture: 'x64',
          agentVersion: '0.1.0',
        },
      })
      return { ...ids, agentToken: authToken }
    }
    const say = (of: Machine, messages: string[], more: { level?: 'warn'; timestamp?: string } = {}) => {
      const logs = messages.map((message) => ({
        timestamp: clockTime,
        level: 'info' as const,
        component: 'ws',
        message,
        ...more,
      }))
      const params = { id: of.agentId }
      return service.client(of.agentToken).call(api.diagnosticLogs.submit, { params, body: { logs } })
    }
    const write = (of: Machine, messages: string[], timestamp = clockTime) => {
      const more = { timestamp, level: 'error', category: 'system', source: 'kernel' } as const
      const events = messages.map((message) => ({ ...more, message }))
      const params = { id: of.agentId }
      return service.client(of.agentToken).call(api.eventLogs.submit, { params, body: { events } })
    }
    const admin = service.client(world.tokens.bakery)
    const read = (query: Record<string, unknown> = {}, as = admin) =>
      as.call(api.logTails.read, { query: query as never })
    const heads = (query: Record<string, unknown> = {}, as = admin) =>
      as.call(api.logTails.heads, { query: query as never })
    return { clock, service, world, bakery, enroll, say, write, read, heads, admin, system }
  }
  type Reply = Awaited<ReturnType<Awaited<ReturnType<typeof start>>['read']>>
  const messagesOf = ({ diagnostic, events }: Reply) =>
    [...diagnostic, ...events].map(({ message }) => message).toSorted()

  describe('the logs of an organization', () => {
    it('have a place in each device that has any, page by page', async () => {
      const { bakery, enroll, say, write, heads } = await start()
      const [till, silent, back] = [await enroll('till'), await enroll('silent'), await enroll('back')]
      await say(bakery, ['a', 'b'])
      await write(till, ['c'])
      await say(back, ['d', 'e', 'f'])
      const { data, pagination } = await heads()
      expect(pagination.nextCursor).toBeNull()
      const expected = [
        { deviceId: bakery.deviceId, hostname: 'bakery-pc', seq: 2 },
        { deviceId: till.deviceId, hostname: 'till', seq: 1 },
        { deviceId: back.deviceId, hostname: 'back', seq: 3 },
      ].toSorted((a, b) => (a.deviceId < b.deviceId ? -1 : 1))
      expect(data).toEqual(expected)
      expect(data.map(({ deviceId }) => deviceId)).not.toContain(silent.deviceId)
      const paged: unknown[] = []
      for (let cursor: string | null = null, page = 0; page === 0 || cursor !== null; page += 1) {
        expect(page).toBeLessThan(4)
        const next = await heads({ limit: '2', ...(cursor !== null && { cursor }) })
        paged.push(...next.data)
        cursor = next.pagination.nextCursor
      }
      expect(paged).toEqual(expected)
    })

    it('are read from a place on in each device, both kinds, however many there are', async () => {
      const { bakery, enroll, say, write, read } = await start()
      const till = await enroll('till')
      await say(bakery, ['a', 'b'])
      await write(bakery, ['c'])
      await say(till, ['d'])
      const all = await read({ after: `${bakery.deviceId}:1,${till.deviceId.toUpperCase()}:0` })
      expect(messagesOf(all)).toEqual(['b', 'c', 'd'])
      expect(all.events[0]).toMatchObject({
        deviceId: bakery.deviceId,
        orgId: bakery.id,
        seq: 3,
        message: 'c',
      })
      expect(all.places).toHaveLength(2)
      expect(all.places).toContainEqual({ deviceId: bakery.deviceId, seq: 3, more: false })
      expect(await read({ after: `${bakery.deviceId}:3` })).toEqual({
        diagnostic: [],
        events: [],
        places: [],
      })
      // Each device has its share of the limit, and both kinds end at the same place.
      const some = await read({ after: `${bakery.deviceId}:0,${till.deviceId}:0`, limit: '2' })
      expect(messagesOf(some)).toEqual(['a', 'd'])
      expect(some.places).toContainEqual({ deviceId: bakery.deviceId, seq: 1, more: true })
      expect(some.places).toContainEqual({ deviceId: till.deviceId, seq: 1, more: false })
    })

    it('can be filtered, and what does not match is passed over', async () => {
      const { bakery, say, write, read } = await start()
      await say(bakery, ['a', 'b'])
      await write(bakery, ['c'])
      await say(bakery, ['d'], { level: 'warn' })
      const after = `${bakery.deviceId}:0`
      const seen = async (query: Record<string, string>) => messagesOf(await read({ after, ...query }))
      expect(await seen({ level: 'warn,critical' })).toEqual(['d'])
      expect(await seen({ level: 'error' })).toEqual(['c'])
      expect(await seen({ kind: 'diagnostic' })).toEqual(['a', 'b', 'd'])
      expect(await seen({ kind: 'diagnostic', level: 'critical' })).toEqual([])
      expect(await seen({ component: 'ws' })).toEqual(['a', 'b', 'd'])
      expect(await seen({ component: 'disk' })).toEqual([])
      expect(await seen({ source: 'kernel' })).toEqual(['c'])
      expect(await seen({ source: 'kernel', component: 'ws' })).toEqual(['a', 'b', 'c', 'd'])
      const none = await read({ after, level: 'critical' })
      expect(none.places).toEqual([{ deviceId: bakery.deviceId, seq: 4, more: false }])
    })

    it('are the newest of all devices by arrival, whatever the clocks of the machines say', async () => {
      const { clock, bakery, enroll, say, write, read } = await start()
      const till = await enroll('till')
      await say(bakery, ['first'], { timestamp: '2026-03-01T12:00:00.000Z' })
      clock.forward(1)
      await say(till, ['second'], { timestamp: '2001-01-01T00:00:00.000Z' })
      clock.forward(1)
      await write(bakery, ['third'], '2020-01-01T00:00:00.000Z')
      expect(messagesOf(await read())).toEqual(['first', 'second', 'third'])
      const newest = await read({ limit: '2' })
      expect([messagesOf(newest), newest.places]).toEqual([['second', 'third'], []])
      expect(messagesOf(await read({ level: 'info', limit: '1' }))).toEqual(['second'])
    })

    it('can be begun at a time of the machines, in each device', async () => {
      const { bakery, enroll, say, write, heads } = await start()
      const till = await enroll('till')
      await say(bakery, ['old', 'older'], { timestamp: '2026-02-01T00:00:00.000Z' })
      await write(bakery, ['new'], '2026-03-01T10:00:00.000Z')
      await say(bakery, ['late'], { timestamp: '2026-02-01T00:00:00.000Z' })
      await say(till, ['old'], { timestamp: '2026-02-01T00:00:00.000Z' })
      const { data } = await heads({ since: '2026-03-01' })
      expect(data).toContainEqual({ deviceId: bakery.deviceId, hostname: 'bakery-pc', seq: 4, start: 2 })
      expect(data).toContainEqual({ deviceId: till.deviceId, hostname: 'till', seq: 1, start: 1 })
    })

    it('can be begun at a time that the clock of a machine has passed twice', async () => {
      const { bakery, say, heads } = await start()
      await say(bakery, ['ahead'], { timestamp: '2026-02-01T12:00:00.000Z' })
      await say(bakery, ['set back'], { timestamp: '2026-02-01T10:00:00.000Z' })
      const startOf = async (since: string) => (await heads({ since })).data[0]!.start
      expect(await startOf('2026-02-01T09:00:00Z')).toBe(0)
      expect(await startOf('2026-02-01T11:00:00Z')).toBe(0)
      expect(await startOf('2026-02-01T13:00:00Z')).toBe(2)
    })

    it('are not all read to find where a time begins', async () => {
      const { service, bakery, heads } = await start()
      const at = (second: number) => new Date(Date.parse(clockTime) + second * 1000).toISOString()
      const logs = Array.from({ length: maxSince + 2 }, (_, n) => ({
        id: newId(),
        deviceId: bakery.deviceId,
        orgId: bakery.id,
        message: `${n}`,
        level: 'info' as const,
        // The first two to come in are the last by their time.
        timestamp: at(n < 2 ? 10_000 + n : n),
        component: 'ws',
        fields: null,
        agentVersion: null,
        createdAt: clockTime,
      }))
      await service.storage.write(async (tx) => insertDiagnosticLogs(tx, await placedOf(tx, bakery, logs)))
      expect((await heads({ since: '1970-01-01' })).data[0]).toMatchObject({ seq: maxSince + 2, start: 2 })
      expect((await heads({ since: at(500) })).data[0]).toMatchObject({ start: 0 })
    })

    it('are looked up in small pieces, of a bounded number of devices, and no longer than a question may take', async () => {
      const { service, bakery, heads, read, say, system } = await start()
      const { storage } = service
      await say(bakery, ['a'])
      const { read: db } = storage
      const device = await db
        .selectFrom('devices')
        .selectAll()
        .where('id', '=', bakery.deviceId)
        .executeTakeFirstOrThrow()
      const copies = Array.from({ length: maxDevicesOfNewest }, (_, n) => ({
        ...device,
        id: newId(),
        agent_id: `copy-${n}`,
      }))
      await storage.write(async (tx) => {
        for (let at = 0; at < copies.length; at += 100)
          await tx
            .insertInto('devices')
            .values(copies.slice(at, at + 100))
            .execute()
      })
      const ids = [device.id, ...copies.map(({ id }) => id)].toSorted()

      const first = await heads({ since: '1970-01-01', limit: '1000' })
      expect(first.pagination).toMatchObject({ limit: maxHeadsSince, nextCursor: expect.any(String) })
      const second = await heads({ since: '1970-01-01', cursor: first.pagination.nextCursor })
      expect([...first.data, ...second.data].map(({ deviceId }) => deviceId)).toEqual(ids.slice(0, 200))
      expect((await heads({ limit: '1000' })).data).toHaveLength(1000)

      expect(await read()).toMatchObject({ incompleteResults: true })
      await storage.write((tx) => tx.deleteFrom('devices').where('id', '=', copies[0]!.id).execute())
      const whole = await read()
      expect([whole.incompleteResults, messagesOf(whole)]).toEqual([false, ['a']])
      expect((await read({}, system)).incompleteResults).toBe(false)

      const page = { page: 1, limit: 1000, since: '1970-01-01T00:00:00.000Z' }
      const places = ids.slice(0, 100).map((deviceId) => ({ deviceId, seq: 0 }))
      const questions = {
        heads: (checkTime: () => void) => listLogHeads(db, systemScope, page, checkTime),
        newest: (checkTime: () => void) => newestLogs(db, systemScope, {}, 10, checkTime),
        after: (checkTime: () => void) => logsAfter(db, systemScope, places, {}, 100, checkTime),
      }
      for (const [name, ask] of Object.entries(questions)) {
        let checks = 0
        await ask(() => {
          checks += 1
        })
        expect([name, checks >= 10]).toEqual([name, true])
        checks = 0
        const late = ask(() => {
          checks += 1
          if (checks === 3) throw new Error('out of time')
        })
        await expect(late, name).rejects.toThrow('out of time')
        expect([name, checks]).toEqual([name, 3])
      }
    })

    it('end their question when it has taken its time', async () => {
      const { service, bakery, say } = await start()
      await say(bakery, ['a'])
      const { read: db } = service.storage
      const late = () => {
        throw new Error('out of time')
      }
      const call = {
        db,
        scope: systemScope,
        readQuery: (work: (on: typeof db, checkTime: () => void) => Promise<unknown>) => work(db, late),
      }
      const paging = { page: 1, limit: 100 }
      const after = [{ deviceId: bakery.deviceId, seq: 0 }]
      for (const [name, asked] of [
        ['heads', { ...paging, since: '1970-01-01T00:00:00.000Z' }],
        ['read', paging],
        ['read', { ...paging, after }],
      ] as const) {
        const handler = logTails[name] as unknown as (of: object) => Promise<unknown>
        await expect(handler({ ...call, query: asked })).rejects.toThrow('out of time')
      }
    })

    it('are seen by whoever sees the device, and by nobody else', async () => {
      const { service, world, bakery, enroll, say, read, heads } = await start()
      const { harbor } = world.orgs
      const till = await enroll('till')
      await say(bakery, ['of the bakery'])
      await say(till, ['of the till'])
      await say(harbor, ['of the harbor'])
      const groupId = await addGroup(service, bakery.id, 'shelf', [till.deviceId])
      const narrow = await addOrgUser(service, 'narrow', bakery.id, { groupIds: [groupId] })
      const after = [bakery, till, harbor].map(({ deviceId }) => `${deviceId}:0`).join(',')
      for (const [token, seen] of [
        [world.tokens.bakery, ['of the bakery', 'of the till']],
        [world.tokens.acmeBakery, ['of the bakery', 'of the till']],
        [world.tokens.acmeNone, []],
        [world.tokens.globex, ['of the harbor']],
        [narrow, ['of the till']],
        [world.tokens.system, ['of the bakery', 'of the harbor', 'of the till']],
      ] as const) {
        const as = service.client(token)
        expect(messagesOf(await read({ after }, as))).toEqual(seen)
        expect(messagesOf(await read({}, as))).toEqual(seen)
        expect((await heads({}, as)).data).toHaveLength(seen.length)
      }
      const system = service.client(world.tokens.system)
      expect(messagesOf(await read({ after, orgId: harbor.id }, system))).toEqual(['of the harbor'])
      expect(messagesOf(await read({ orgId: harbor.id }, system))).toEqual(['of the harbor'])
      expect((await heads({ orgId: harbor.id }, system)).data).toHaveLength(1)
      const denied = expect.objectContaining({ status: 403, code: 'org_access_denied' })
      await expect(read({ orgId: harbor.id })).rejects.toEqual(denied)
      await expect(heads({ orgId: harbor.id })).rejects.toEqual(denied)
    })

    it('take places that are written as documented', async () => {
      const { bakery, read } = await start()
      const place = (seq: string) => `${bakery.deviceId}:${seq}`
      for (const wrong of [
        '',
        'x',
        bakery.deviceId,
        place('-1'),
        place('1e3'),
        `${place('1')},`,
        place('1'.repeat(16)),
      ])
        await expect(read({ after: wrong }), wrong).rejects.toEqual(naming('query.after'))
      const many = (count: number) => Array.from({ length: count }, () => `${newId()}:1`).join(',')
      await expect(read({ after: many(101) })).rejects.toEqual(naming('query.after'))
      expect(await read({ after: many(100) })).toEqual({ diagnostic: [], events: [], places: [] })
    })

    it('show nothing behind an entry of the same device that is not committed yet, and hold no other device', async () => {
      const { service, bakery, enroll, say, read } = await start()
      const { storage } = service
      if (storage.dialect === 'sqlite') return
      const till = await enroll('till')
      const slow = Promise.withResolvers<void>()
      const taken = Promise.withResolvers<void>()
      const log = {
        id: newId(),
        deviceId: bakery.deviceId,
        orgId: bakery.id,
        message: 'slow',
        level: 'info' as const,
        timestamp: clockTime,
        component: 'ws',
        fields: null,
        agentVersion: null,
        createdAt: clockTime,
      }
      const early = storage.write(async (tx) => {
        await insertDiagnosticLogs(tx, await placedOf(tx, bakery, [log]))
        taken.resolve()
        await slow.promise
      })
      await taken.promise
      await say(till, ['quick'])
      const after = `${bakery.deviceId}:0,${till.deviceId}:0`
      const first = await read({ after })
      slow.resolve()
      await early
      expect(messagesOf(first)).toEqual(['quick'])
      const next = first.places.map(({ deviceId, seq }) => `${deviceId}:${seq}`)
      expect(messagesOf(await read({ after: [`${bakery.deviceId}:0`, ...next].join(',') }))).toEqual(['slow'])
    })

    it('reach a reader once each and in the order of each device, during concurrent submissions', async () => {
      const { bakery, enroll, say, write, read, heads } = await start()
      const machines = [bakery, await enroll('till'), await enroll('back')]
      const names = Array.from({ length: 24 }, (_, n) => [`${n}/a`, `${n}/b`, `${n}/c`])
      let coming = true
      const remaining = names.entries()
      const lanes = Array.from({ length: 6 }, async () => {
        for (const [n, some] of remaining) await (n % 2 ? say : write)(machines[n % 3]!, some)
      })
      const all = Promise.all(lanes).finally(() => {
        coming = false
      })
      const at = new Map<string, number>()
      const got = new Map<string, { seq: number; message: string }[]>()
      for (let quiet = 0, looks = 0; quiet < 2; looks += 1) {
        expect(looks).toBeLessThan(1000)
        const isLast = !coming
        const grown = (await heads()).data.filter(({ deviceId, seq }) => seq > (at.get(deviceId) ?? 0))
        if (isLast && grown.length === 0) quiet += 1
        if (grown.length === 0) continue
        const after = grown.map(({ deviceId }) => `${deviceId}:${at.get(deviceId) ?? 0}`).join(',')
        const { diagnostic, events, places } = await read({ after, limit: '7' })
        for (const { deviceId, seq, message } of [...diagnostic, ...events].toSorted((a, b) => a.seq - b.seq))
          got.set(deviceId, [...(got.get(deviceId) ?? []), { seq, message }])
        for (const { deviceId, seq } of places) at.set(deviceId, seq)
      }
      await all
      for (const rows of got.values()) {
        const seqs = rows.map(({ seq }) => seq)
        expect(seqs).toEqual(Array.from({ length: 24 }, (_, n) => n + 1))
      }
      const messages = [...got.values()].flat().map(({ message }) => message)
      expect(messages.toSorted()).toEqual(names.flat().toSorted())
    })
  })
})

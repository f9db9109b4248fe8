import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { NewDiagnosticLog } from '../../src/logs/diagnostic/contract.ts'
import type { NewEventLog } from '../../src/logs/events/contract.ts'
import { deleteOldLogs } from '../../src/logs/jobs.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addGroup, addOrgUser, buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })
const naming = (path: string) =>
  expect.objectContaining({
    status: 400,
    details: expect.arrayContaining([expect.objectContaining({ path })]),
  })

const log = (more: Partial<NewDiagnosticLog> = {}): NewDiagnosticLog => ({
  timestamp: '2026-03-01T11:00:00.000Z',
  level: 'warn',
  component: 'heartbeat',
  message: 'no answer',
  ...more,
})
const event = (more: Partial<NewEventLog> = {}): NewEventLog => ({
  timestamp: '2026-03-01T11:00:00.000Z',
  level: 'error',
  category: 'system',
  source: 'kernel',
  message: 'I/O error',
  ...more,
})
const at = (minute: number): string => `2026-03-01T11:${String(minute).padStart(2, '0')}:00.000Z`
const some = <T>(count: number, make: (n: number) => T): T[] =>
  Array.from({ length: count }, (_, n) => make(n))

inTurn((open) => {
  const start = async () => {
    const clock = testClock()
    const service = await startService(open, { clock })
    const world = await buildWorld(service)
    const { bakery } = world.orgs
    const agent = service.client(bakery.agentToken)
    const admin = service.client(world.tokens.bakery)
    const params = { id: bakery.agentId }
    const device = { id: bakery.deviceId }
    return {
      clock,
      service,
      world,
      bakery,
      agent,
      admin,
      params,
      device,
      submit: (...logs: NewDiagnosticLog[]) =>
        agent.call(api.diagnosticLogs.submit, { params, body: { logs } }),
      submitEvents: (...events: NewEventLog[]) =>
        agent.call(api.eventLogs.submit, { params, body: { events } }),
      logs: async (query: Record<string, unknown> = {}) =>
        admin.call(api.diagnosticLogs.list, { params: device, query: query as never }),
      events: async (query: Record<string, unknown> = {}) =>
        admin.call(api.eventLogs.list, { params: device, query: query as never }),
    }
  }
  const post = (
    service: TestService,
    path: string,
    token: string,
    body: string | Uint8Array<ArrayBuffer>,
    encoding?: string,
  ) =>
    fetch(`${service.url}/api/v1${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${token}`,
        ...(encoding !== undefined && { 'content-encoding': encoding }),
      },
      body,
    })

  describe('the diagnostic logs of an agent', () => {
    it('are stored as submitted, with device, organization and version', async () => {
      const { submit, logs, bakery, clock } = await start()
      const fields = { failures: 3, deep: { of: ['any', 'shape'] } }
      expect(await submit(log({ fields, agentVersion: '9.9.9' }), log({ timestamp: at(1) }))).toEqual({
        received: 2,
      })
      const { data, pagination } = await logs()
      expect(pagination).toMatchObject({ page: 1, limit: 100, total: 2, nextCursor: null })
      const own = { orgId: bakery.id, deviceId: bakery.deviceId, createdAt: clock() }
      expect(data).toEqual([
        {
          ...log({ timestamp: at(1) }),
          ...own,
          id: expect.any(String),
          seq: 2,
          fields: null,
          agentVersion: '0.1.0',
        },
        { ...log(), ...own, id: expect.any(String), seq: 1, fields, agentVersion: '9.9.9' },
      ])
    })

    it('may be empty', async () => {
      const { submit, logs } = await start()
      expect(await submit()).toEqual({ received: 0 })
      expect((await logs()).pagination.total).toBe(0)
    })

    it('are accepted up to 500 at a time, all or nothing', async () => {
      const { submit, logs } = await start()
      await expect(submit(...some(501, () => log()))).rejects.toEqual(naming('body.logs'))
      expect((await logs()).pagination.total).toBe(0)
      expect(await submit(...some(500, (n) => log({ message: `${n}` })))).toEqual({ received: 500 })
      const { data, pagination } = await logs({ limit: '1000' })
      expect(pagination.total).toBe(500)
      expect(new Set(data.map(({ message }) => message)).size).toBe(500)
    })

    it.each([
      [{ component: 'x'.repeat(100) }, { component: 'x'.repeat(101) }, 'component'],
      [{ component: 'x' }, { component: '' }, 'component'],
      [{ agentVersion: 'x'.repeat(50) }, { agentVersion: 'x'.repeat(51) }, 'agentVersion'],
      [{ level: 'debug' }, { level: 'warning' }, 'level'],
      [{ timestamp: '2026-03-01T13:00:00.123456+02:00' }, { timestamp: 'yesterday' }, 'timestamp'],
    ] as [object, object, string][])('have limits: case %#', async (good, bad, field) => {
      const { submit } = await start()
      await expect(submit(log(), log(bad))).rejects.toEqual(naming(`body.logs.1.${field}`))
      expect(await submit(log(good))).toEqual({ received: 1 })
    })

    it('may contain fields of a newer agent, which are dropped', async () => {
      const { submit, logs } = await start()
      await submit({ ...log(), fromTheFuture: { yes: true } } as never)
      expect((await logs()).data[0]).not.toHaveProperty('fromTheFuture')
    })

    it('are dated now when over ten minutes ahead, and keep their original timestamp', async () => {
      const { submit, logs, clock } = await start()
      const [near, far] = ['2026-03-01T12:10:00.000Z', '2026-03-01T12:10:00.001Z']
      await submit(log({ timestamp: near }), log({ timestamp: far, fields: { a: 1 } }))
      expect((await logs()).data).toMatchObject([
        { timestamp: near, fields: null },
        { timestamp: clock(), fields: { a: 1, originalTimestamp: far, timestampClamped: true } },
      ])
    })

    it('may be gzipped', async () => {
      const { service, bakery, logs } = await start()
      const body = gzipSync(JSON.stringify({ logs: some(500, () => log()) }))
      const reply = await post(service, `/agents/${bakery.agentId}/logs`, bakery.agentToken, body, 'gzip')
      expect([reply.status, await reply.json()]).toEqual([201, { received: 500 }])
      expect((await logs()).pagination.total).toBe(500)
    })

    it('are refused over 10 MiB inflated, when broken, or in another encoding', async () => {
      const { service, bakery, logs, submit } = await start()
      const send = async (body: string | Uint8Array<ArrayBuffer>, encoding: string) => {
        const reply = await post(service, `/agents/${bakery.agentId}/logs`, bakery.agentToken, body, encoding)
        return [reply.status, ((await reply.json()) as { code: string }).code]
      }
      const large = (bytes: number) => {
        const text = JSON.stringify({ logs: [log()], more: '' })
        const filler = randomBytes(bytes / 2).toString('hex')
        return gzipSync(text.replace('""', `"${filler.slice(0, bytes - text.length)}"`))
      }
      const tooGood = gzipSync(JSON.stringify({ logs: [log({ message: 'x'.repeat(2 * 1024 * 1024) })] }))
      const bomb = gzipSync(Buffer.alloc(300 * 1024 * 1024, ' '))
      expect(bomb.length).toBeLessThan(1024 * 1024)
      const before = process.memoryUsage().rss
      expect(await send(bomb, 'gzip')).toEqual([413, 'payload_too_large'])
      expect(process.memoryUsage().rss - before).toBeLessThan(100 * 1024 * 1024)
      const limit = 10 * 1024 * 1024
      expect(await send(large(limit + 1), 'gzip')).toEqual([413, 'payload_too_large'])
      expect(await send(large(limit), 'gzip')).toEqual([201, undefined])
      // Even a small one, when its compression ratio is implausible.
      expect(await send(tooGood, 'gzip')).toEqual([413, 'payload_too_large'])
      expect(await send('{"logs":[]}', 'gzip')).toEqual([400, 'invalid_request'])
      expect(await send(gzipSync('{"logs":[]}').subarray(0, 20), 'gzip')).toEqual([400, 'invalid_request'])
      expect(await send('{"logs":[]}', 'br')).toEqual([415, 'unsupported_media_type'])
      expect(await submit(log())).toEqual({ received: 1 })
      expect((await logs()).pagination.total).toBe(2)
    })

    it('submitted twice under one idempotency key are stored once', async () => {
      const { service, bakery, params, logs } = await start()
      const client = service.client(bakery.agentToken)
      const path = `/agents/${params.id}/logs`
      const options = { body: JSON.stringify({ logs: [log()] }), headers: { 'idempotency-key': 'one-key' } }
      const json = { ...options, headers: { ...options.headers, 'content-type': 'application/json' } }
      for (const _ of [1, 2]) expect((await client.raw('POST', path, json)).status).toBe(201)
      expect((await logs()).pagination.total).toBe(1)
    })
  })

  describe('the event logs of a device', () => {
    it('are stored once per source and eventId; a repeated one is ignored and not counted', async () => {
      const { submitEvents, events } = await start()
      const first = event({ eventId: '7', message: 'first' })
      expect(await submitEvents(first, event({ eventId: '8' }), first)).toEqual({ success: true, count: 2 })
      const more = [{ ...first, message: 'again' }, event({ eventId: '7', source: 'disk' }), event(), event()]
      expect(await submitEvents(...more)).toEqual({ success: true, count: 3 })
      const { data, pagination } = await events()
      expect(pagination.total).toBe(5)
      expect(data.filter(({ eventId, source }) => eventId === '7' && source === 'kernel')).toMatchObject([
        { message: 'first' },
      ])
    })

    it('submitted twice under one idempotency key are stored once, even without an eventId', async () => {
      const { service, bakery, params, events } = await start()
      const client = service.client(bakery.agentToken)
      const body = JSON.stringify({ events: [event(), event({ eventId: '7' })] })
      const headers = { 'content-type': 'application/json', 'idempotency-key': 'one-key' }
      for (const _ of [1, 2]) {
        const { text } = await client.raw('PUT', `/agents/${params.id}/eventlogs`, { body, headers })
        expect(JSON.parse(text)).toEqual({ success: true, count: 2 })
      }
      expect((await events()).pagination.total).toBe(2)
    })

    it('do not affect those of another device', async () => {
      const { service, world, submitEvents } = await start()
      const { garage } = world.orgs
      await submitEvents(event({ eventId: '7' }))
      const other = service.client(garage.agentToken)
      const body = { events: [event({ eventId: '7' })] }
      expect(await other.call(api.eventLogs.submit, { params: { id: garage.agentId }, body })).toEqual({
        success: true,
        count: 1,
      })
    })

    it('are stored once each also when submitted concurrently', async () => {
      const { submitEvents, events } = await start()
      const batch = some(250, (n) => event({ eventId: `${n}` }))
      const replies = await Promise.all([submitEvents(...batch), submitEvents(...batch.toReversed())])
      expect(replies.map(({ count }) => count).reduce((a, b) => a + b)).toBe(250)
      expect((await events()).pagination.total).toBe(250)
    })

    it.each([
      [{ level: 'critical' }, { level: 'verbose' }, 'level'],
      [{ category: 'security' }, { category: 'other' }, 'category'],
    ] as [object, object, string][])('have limits: case %#', async (good, bad, field) => {
      const { submitEvents } = await start()
      await expect(submitEvents(event(), event(bad))).rejects.toEqual(naming(`body.events.1.${field}`))
      expect(await submitEvents(event(good))).toEqual({ success: true, count: 1 })
    })

    it('are cut and marked where too long, and not refused', async () => {
      const { submitEvents, events } = await start()
      const ids = ['a', 'b'].map((end) => 'i'.repeat(200) + end)
      const long = event({
        message: `${'m'.repeat(1992)}${'🙂'.repeat(10)}`,
        source: 's'.repeat(300),
        eventId: ids[0],
        details: { a: 'x'.repeat(40_000) },
      })
      const more = [event({ ...long, eventId: ids[1] }), event({ eventId: '' }), event({ eventId: '' })]
      expect(await submitEvents(long, ...more, event({ message: 'fine' }))).toMatchObject({ count: 5 })
      expect(await submitEvents(long)).toMatchObject({ count: 0 })
      const { data } = await events()
      const kept = data.find((one) => one.message.startsWith('mmm'))!
      expect(kept.message).toBe(`${'m'.repeat(1992)}… [cut]`)
      expect(kept.source).toBe(`${'s'.repeat(248)}… [cut]`)
      expect(kept.details).toMatchObject({ cut: true, beginning: expect.stringMatching(/^{"a":"xxx/) })
    })

    it('are dated now when over ten minutes ahead', async () => {
      const { submitEvents, events, clock } = await start()
      const timestamp = '2027-01-01T00:00:00.000Z'
      await submitEvents(event({ timestamp }))
      expect((await events()).data).toMatchObject([
        { timestamp: clock(), details: { originalTimestamp: timestamp, timestampClamped: true } },
      ])
    })

    it('leave one audit entry per submission, without their messages', async () => {
      const { service, submitEvents, bakery } = await start()
      const entriesSince = await newEntries(service)
      await submitEvents(event({ message: 'private', eventId: '1' }), event({ eventId: '1' }))
      const entries = await entriesSince()
      expect(entries).toMatchObject([
        {
          action: 'agent.eventlogs.submit',
          actorType: 'agent',
          resourceType: 'device',
          resourceId: bakery.deviceId,
          orgId: bakery.id,
          result: 'success',
          details: { after: { received: 2, count: 1 } },
        },
      ])
      expect(JSON.stringify(entries)).not.toContain('private')
    })
  })

  describe('submission', () => {
    it('is 404 for the id of another agent, and 401 for an unknown token', async () => {
      const { service, world, bakery, submit } = await start()
      const { garage } = world.orgs
      for (const [entry, body] of [
        [api.diagnosticLogs.submit, { logs: [log()] }],
        [api.eventLogs.submit, { events: [event()] }],
      ] as const) {
        const submitAs = (token: string | undefined, id: string) =>
          service.client(token).request(entry, { params: { id }, body })
        await expect(submitAs(bakery.agentToken, 'f'.repeat(64))).rejects.toEqual(refused(404, 'not_found'))
        await expect(submitAs(bakery.agentToken, 'nobody')).rejects.toEqual(refused(404, 'not_found'))
        await expect(submitAs(garage.agentToken, bakery.agentId)).rejects.toEqual(refused(404, 'not_found'))
        await expect(submitAs(undefined, bakery.agentId)).rejects.toEqual(refused(401, 'unauthenticated'))
        for (const id of [bakery.agentId, 'f'.repeat(64), 'nobody']) {
          for (const token of ['svc_wrong', `svc_${'0'.repeat(64)}`, world.tokens.bakery]) {
            await expect(submitAs(token, id)).rejects.toEqual(refused(401, 'invalid_agent_credentials'))
          }
        }
      }
      expect(await submit(log())).toEqual({ received: 1 })
    })

    it('is refused for a decommissioned device', async () => {
      const { service, world, device, submit, submitEvents } = await start()
      await service.client(world.tokens.system).call(api.devices.decommission, { params: device })
      await expect(submit(log())).rejects.toEqual(refused(403, 'device_decommissioned'))
      await expect(submitEvents(event())).rejects.toEqual(refused(403, 'device_decommissioned'))
    })
  })

  describe('a list of logs', () => {
    const messages = ({ data }: { data: { message: string }[] }) => data.map(({ message }) => message)

    it('is filtered by level, component, time and text', async () => {
      const { submit, logs } = await start()
      await submit(
        log({ message: 'a Timeout', level: 'warn', timestamp: at(1) }),
        log({ message: 'b 100%', level: 'error', component: 'ws', timestamp: at(2) }),
        log({ message: 'c TIMEOUT', level: 'info', timestamp: at(3) }),
        log({ message: 'd', level: 'debug', component: 'WS', timestamp: at(4) }),
      )
      const found = async (query: Record<string, unknown>) => messages(await logs(query)).map((one) => one[0])
      expect(await found({})).toEqual(['d', 'c', 'b', 'a'])
      expect(await found({ level: 'warn, error' })).toEqual(['b', 'a'])
      expect(await found({ level: 'debug' })).toEqual(['d'])
      expect(await found({ component: 'ws' })).toEqual(['b'])
      expect(await found({ since: at(2), until: at(4) })).toEqual(['c', 'b'])
      expect(await found({ search: 'timeout' })).toEqual(['c', 'a'])
      expect(await found({ search: '0%' })).toEqual(['b'])
      expect(await found({ search: '%' })).toEqual(['b'])
      expect((await logs({ search: 'timeout', level: 'warn' })).pagination.total).toBe(1)
      await expect(logs({ level: 'warn,loud' })).rejects.toEqual(naming('query.level'))
      await expect(logs({ level: '' })).rejects.toEqual(naming('query.level'))
      await expect(logs({ since: 'soon' })).rejects.toEqual(naming('query.since'))
    })

    it('of events is filtered by category, level, source and time', async () => {
      const { submitEvents, events } = await start()
      await submitEvents(
        event({ message: 'a', category: 'security', source: 'sshd', timestamp: at(1) }),
        event({ message: 'b', level: 'critical', timestamp: at(2) }),
        event({ message: 'c', category: 'hardware', level: 'info', timestamp: at(3) }),
      )
      const found = async (query: Record<string, unknown>) => messages(await events(query))
      expect(await found({})).toEqual(['c', 'b', 'a'])
      expect(await found({ category: 'security' })).toEqual(['a'])
      expect(await found({ level: 'critical' })).toEqual(['b'])
      expect(await found({ source: 'kernel' })).toEqual(['c', 'b'])
      expect(await found({ source: 'KERNEL' })).toEqual([])
      expect(await found({ startDate: at(1), endDate: at(3) })).toEqual(['b', 'a'])
      await expect(events({ startDate: 'soon' })).rejects.toEqual(naming('query.startDate'))
      await expect(events({ level: 'loud' })).rejects.toEqual(naming('query.level'))
    })

    it('has pages of at most 1000, of events of at most 500', async () => {
      const { submit, submitEvents, logs, events } = await start()
      for (const _ of [1, 2, 3]) await submit(...some(400, (n) => log({ message: `${n}` })))
      await submitEvents(...some(600, () => event()))
      expect((await logs({ limit: '5000' })).data).toHaveLength(1000)
      expect((await events({ limit: '5000' })).data).toHaveLength(500)
      expect((await logs({ limit: '1000', page: '2' })).data).toHaveLength(200)
    })

    it('is read by cursor without gaps or repetitions, even with equal timestamps', async () => {
      const { submit, submitEvents, logs, events } = await start()
      await submit(...some(25, (n) => log({ timestamp: at(n % 3), message: `${n}` })))
      await submitEvents(...some(25, (n) => event({ timestamp: at(n % 3), message: `${n}` })))
      for (const list of [logs, events]) {
        const whole = messages(await list())
        const seen: string[] = []
        let cursor: string | null | undefined
        do {
          const page = await list({ limit: '10', ...(cursor && { cursor }) })
          expect(page.pagination.total).toBe(cursor ? undefined : 25)
          seen.push(...messages(page))
          cursor = page.pagination.nextCursor
        } while (cursor)
        expect(seen).toEqual(whole)
        expect(messages(await list({ limit: '10', page: '3' }))).toEqual(whole.slice(20))
      }
    })

    it('is visible to callers who see the device', async () => {
      const { service, world, bakery, device, submit, submitEvents } = await start()
      await submit(log())
      await submitEvents(event())
      const lists = [api.diagnosticLogs.list, api.eventLogs.list] as const
      const total = async (token: string, entry: (typeof lists)[number]) =>
        (await service.client(token).call(entry, { params: device })).pagination.total
      const site = await service
        .client(world.tokens.bakery)
        .call(api.sites.create, { body: { orgId: bakery.id, name: 'Elsewhere' } })
      const empty = await addGroup(service, bakery.id, 'Empty', [])
      const inside = {
        site: await addOrgUser(service, 'in-site', bakery.id, { siteIds: [bakery.siteId] }),
        group: await addOrgUser(service, 'in-group', bakery.id, { groupIds: [bakery.groupId] }),
      }
      const outside = {
        site: await addOrgUser(service, 'off-site', bakery.id, { siteIds: [site.id] }),
        group: await addOrgUser(service, 'off-group', bakery.id, { groupIds: [empty] }),
      }
      const { garage, acme, globex, harbor, bakeryViewer, system, acmeNone } = world.tokens
      for (const entry of lists) {
        for (const token of [inside.site, inside.group, acme, bakeryViewer, system]) {
          expect(await total(token, entry)).toBe(1)
        }
        for (const token of [outside.site, outside.group, garage, globex, harbor, acmeNone]) {
          await expect(total(token, entry)).rejects.toEqual(refused(404, 'not_found'))
        }
      }
    })

    it('is readable by API keys with devices:read, and no others', async () => {
      const { service, bakery, world, device, submit } = await start()
      await submit(log())
      const admin = service.client(world.tokens.bakery)
      const keyed = async (scopes: string[]) => {
        const body = { orgId: bakery.id, name: scopes.join(), scopes }
        const { key } = await admin.call(api.apiKeys.create, { body: body as never })
        return service.client(undefined, { 'x-api-key': key })
      }
      const reader = await keyed(['devices:read'])
      expect((await reader.call(api.diagnosticLogs.list, { params: device })).pagination.total).toBe(1)
      expect((await reader.call(api.eventLogs.list, { params: device })).pagination.total).toBe(0)
      const other = await keyed(['alerts:read'])
      for (const entry of [api.diagnosticLogs.list, api.eventLogs.list]) {
        await expect(other.request(entry, { params: device })).rejects.toEqual(refused(403, 'api_key_scope'))
      }
    })
  })

  describe('old logs', () => {
    it('are deleted by their retention since they were received, however many', async () => {
      const { service, clock, submit, submitEvents, logs, events } = await start()
      const days = (count: number) => clock.forward(count * 86_400)
      const retention = { agentLogRetentionDays: 7, eventLogRetentionDays: 30 }
      const forget = () => deleteOldLogs(service.storage, retention, clock())
      for (const _ of [1, 2, 3]) await submit(...some(500, () => log()))
      await submitEvents(...some(1200, () => event()))
      days(6)
      // Old by the clock of the device, but just submitted.
      await submit(log({ timestamp: '2001-01-01T00:00:00.000Z', message: 'late' }))
      days(1)
      await forget()
      expect((await logs()).pagination.total).toBe(1501)
      clock.forward(1)
      await forget()
      expect((await logs()).data).toMatchObject([{ message: 'late' }])
      expect((await events()).pagination.total).toBe(1200)
      days(23)
      await forget()
      expect((await events()).pagination.total).toBe(0)
      expect((await logs()).pagination.total).toBe(0)
    })

    it('are deleted with their device', async () => {
      const { service, world, device, submit, submitEvents } = await start()
      await submit(log())
      await submitEvents(event())
      const client = service.client(world.tokens.system)
      await client.call(api.devices.decommission, { params: device })
      await client.call(api.devices.remove, { params: device })
      for (const table of ['agent_logs', 'device_event_logs'] as const) {
        expect(await service.storage.read.selectFrom(table).selectAll().execute()).toEqual([])
      }
    })
  })
})

import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { deleteOldCommands, reapCommands } from '../../src/agents/commands/jobs.ts'
import { getCommand } from '../../src/agents/commands/store.ts'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemScope } from '../../src/core/scope.ts'
import { addSeconds } from '../../src/core/time.ts'
import { countRowsOf } from '../../src/storage/query/counts.ts'
import { inTurn } from '../databases.ts'
import { begin } from '../devices/device-fixture.ts'
import { testClock } from '../harness.ts'

const failing = (status: number, code: string) => expect.objectContaining({ status, code })
const collect = { type: 'collect', payload: { what: ['inventory'] } } as const
const quieter = { type: 'set_log_level', payload: { level: 'info', durationMinutes: 5 } } as const

inTurn((open) => {
  const start = async () => {
    const clock = testClock(new Date().toISOString())
    const stage = await begin(open, { clock })
    const { service, client, enroll } = stage
    const enrolled = await enroll('till-1')
    const { agentId, deviceId, authToken, watchdogAuthToken } = enrolled
    const of = (token: string) => {
      const own = service.client(token)
      return {
        fetch: async () => (await own.call(api.agentCommands.list, { params: { id: agentId } })).commands,
        beat: async (more = {}) =>
          own.call(api.agents.heartbeat, {
            params: { id: agentId },
            body: { status: 'ok', agentVersion: '0.1.0', ...more },
          }),
        answer: (commandId: string, more: Record<string, unknown> = {}) =>
          own.call(api.agentCommands.result, {
            params: { id: agentId, commandId },
            body: { status: 'completed', ...more } as never,
          }),
      }
    }
    const params = { id: deviceId }
    const send = (body: Record<string, unknown> = collect) =>
      client.call(api.deviceCommands.create, { params, body: body as never })
    const show = (commandId: string) =>
      client.call(api.deviceCommands.show, { params: { id: deviceId, commandId } })
    /** Its state in the database, also once the tenant is no longer active. */
    const kept = (ofDevice: string, id: string) =>
      getCommand(service.storage.read, systemScope, { deviceId: ofDevice, id })
    const nudged: string[] = []
    const reap = () =>
      reapCommands(
        service.storage,
        async (_tx, id) => {
          nudged.push(id)
        },
        clock(),
      )
    const roles = { agent: of(authToken), watchdog: of(watchdogAuthToken) }
    return {
      ...stage,
      ...roles,
      enrolled,
      of,
      clock,
      params,
      deviceId,
      send,
      showCommand: show,
      kept,
      reap,
      nudged,
    }
  }

  describe('a command', () => {
    it('waits for the agent, is sent once with a heartbeat, and ends with its result', async () => {
      const { agent, send, showCommand, clock, deviceId, client } = await start()
      const made = await send()
      expect(made).toEqual({
        id: expect.any(String),
        deviceId,
        type: 'collect',
        status: 'pending',
        createdAt: clock(),
      })
      expect(await showCommand(made.id)).toMatchObject({
        status: 'pending',
        payload: collect.payload,
        targetRole: 'agent',
        sentCount: 0,
        result: null,
        expiresAt: addSeconds(clock(), 7 * 86_400),
        createdBy: (await client.call(api.users.me)).id,
      })
      clock.forward(5)
      expect((await agent.beat()).commands).toEqual([{ id: made.id, ...collect }])
      expect(await showCommand(made.id)).toMatchObject({ status: 'sent', sentAt: clock(), sentCount: 1 })
      expect((await agent.beat()).commands).toEqual([])
      expect(await agent.fetch()).toEqual([])
      clock.forward(5)
      const said = { exitCode: 3, stdout: 'out', stderr: 'err', durationMs: 12.5, result: [1, { a: null }] }
      expect(await agent.answer(made.id, { ...said, startedAt: clock() })).toEqual({ success: true })
      expect(await showCommand(made.id)).toMatchObject({
        status: 'completed',
        completedAt: clock(),
        result: { status: 'completed', ...said, startedAt: clock(), error: null },
      })
    })

    it('is fetched oldest first in batches of ten, each by only one of concurrent requests', async () => {
      const { agent, send, clock } = await start()
      const ids: string[] = []
      for (let n = 0; n < 23; n++) {
        ids.push((await send(n % 2 ? collect : quieter)).id)
        if (n % 3 === 0) clock.forward(1)
      }
      expect((await agent.fetch()).map(({ id }) => id)).toEqual(ids.slice(0, 10))
      const rest = await Promise.all([
        agent.fetch(),
        agent.beat().then(({ commands }) => commands),
        agent.fetch(),
      ])
      const given = rest.flat().map(({ id }) => id)
      expect(given).toHaveLength(13)
      expect(new Set(given)).toEqual(new Set(ids.slice(10)))
    })

    it('is kept among the newest 1000 that have finished of its device', async () => {
      const { send, service, deviceId, enroll, client } = await start()
      const other = await enroll('till-2')
      const ended = async (device: string, count: number) => {
        const { org_id } = await service.storage.read
          .selectFrom('devices')
          .select('org_id')
          .where('id', '=', device)
          .executeTakeFirstOrThrow()
        const rest = {
          org_id,
          type: 'collect',
          payload: '{}',
          target_role: 'agent',
          status: 'completed',
          sent_count: 1,
        }
        const at = '2026-01-01T00:00:00.000Z'
        const times = { created_at: at, expires_at: at, completed_at: at, result: '{"stdout":"12345"}' }
        const rows = Array.from({ length: count }, () => ({
          ...rest,
          ...times,
          id: newId(),
          device_id: device,
        }))
        await service.storage.write(async (tx) => {
          for (let n = 0; n < rows.length; n += 500) {
            await tx
              .insertInto('agent_commands')
              .values(rows.slice(n, n + 500))
              .execute()
          }
        })
        return rows.map(({ id }) => id)
      }
      const count = (device: string) =>
        countRowsOf(service.storage.read.selectFrom('agent_commands').where('device_id', '=', device))
      const [oldest] = await ended(deviceId, 1003)
      await ended(other.deviceId, 1003)
      const { id } = await send()
      expect(await count(deviceId)).toBe(1001)
      expect(await count(other.deviceId)).toBe(1003)
      const show = (commandId: string) =>
        client.call(api.deviceCommands.show, { params: { id: deviceId, commandId } })
      await expect(show(oldest!)).rejects.toEqual(failing(404, 'not_found'))
      expect(await show(id)).toMatchObject({ status: 'pending' })
      const device = service.storage.read
        .selectFrom('devices')
        .select('command_bytes')
        .where('id', '=', deviceId)
      expect(Number((await device.executeTakeFirstOrThrow()).command_bytes)).toBeGreaterThan(1000 * 5)
    })

    it('that failed or timed out says so, and a late result does not change one that has ended', async () => {
      const { agent, send, showCommand } = await start()
      const [failed, slow] = [await send(), await send()]
      await agent.fetch()
      await agent.answer(failed.id, { status: 'failed', error: 'no such thing' })
      await agent.answer(slow.id, { status: 'timeout' })
      expect(await showCommand(failed.id)).toMatchObject({
        status: 'failed',
        result: { error: 'no such thing' },
      })
      expect(await showCommand(slow.id)).toMatchObject({ status: 'failed', result: { status: 'timeout' } })
      expect(await agent.answer(failed.id, { stdout: 'after all' })).toEqual({ success: true })
      expect(await showCommand(failed.id)).toMatchObject({ status: 'failed', result: { stdout: null } })
    })

    it('is answered only by the role of the device that got it, and only once it was sent', async () => {
      const { agent, watchdog, send, showCommand, service, enroll } = await start()
      const made = await send()
      await expect(agent.answer(made.id)).rejects.toEqual(failing(404, 'not_found'))
      await agent.fetch()
      await expect(watchdog.answer(made.id)).rejects.toEqual(failing(403, 'command_role_mismatch'))
      const other = await enroll('till-2')
      const foreign = service.client(other.authToken).call(api.agentCommands.result, {
        params: { id: other.agentId, commandId: made.id },
        body: { status: 'completed' },
      })
      await expect(foreign).rejects.toEqual(failing(404, 'not_found'))
      expect(await showCommand(made.id)).toMatchObject({ status: 'sent', result: null })
    })

    it('for the watchdog is sent to the watchdog alone', async () => {
      const { agent, watchdog, send, showCommand } = await start()
      const made = await send({ ...collect, targetRole: 'watchdog' })
      expect((await agent.beat()).commands).toEqual([])
      expect(await agent.fetch()).toEqual([])
      expect((await watchdog.beat({ role: 'watchdog' })).commands).toEqual([{ id: made.id, ...collect }])
      await expect(agent.answer(made.id)).rejects.toEqual(failing(403, 'command_role_mismatch'))
      await watchdog.answer(made.id)
      expect(await showCommand(made.id)).toMatchObject({ status: 'completed', targetRole: 'watchdog' })
    })

    it('stores no recognizable secret of its output, however large', async () => {
      const { agent, send, showCommand, service, deviceId } = await start()
      const made = await send()
      await agent.fetch()
      const secret = 'hunter2hunter2'
      const noise = 'a line of a log that says nothing much\n'.repeat(30_000)
      await agent.answer(made.id, {
        stdout: `${noise}password=${secret}\n`,
        stderr: `https://user:${secret}@example.com/`,
        error: `token: ${secret}`,
        result: { list: [{ apiKey: secret }, `bearer ${secret}9`], text: `${noise} secret=${secret}` },
      })
      const shown = await showCommand(made.id)
      expect(shown.result).toMatchObject({ stderr: 'https://user:[redacted]@example.com/' })
      expect(shown.result?.stdout).toBe(`${noise}password=[redacted]\n`)
      const rows = service.storage.read.selectFrom('agent_commands').selectAll()
      expect(JSON.stringify(await rows.where('device_id', '=', deviceId).execute())).not.toContain(secret)
    })

    it('may have five million characters of output, compressed or not; more is cut', async () => {
      const { send, showCommand, agent, service, enrolled } = await start()
      const made = await send()
      await agent.fetch()
      const path = `/api/v1/agents/${enrolled.agentId}/commands/${made.id}/result`
      const post = (body: object) =>
        fetch(service.url + path, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            'content-encoding': 'gzip',
            authorization: `Bearer ${enrolled.authToken}`,
          },
          body: gzipSync(JSON.stringify(body)),
        })
      const mebi = 1024 * 1024
      const said = (bytes: number) => randomBytes(bytes).toString('hex').slice(0, bytes)
      expect((await post({ status: 'completed', stdout: said(7 * mebi) })).status).toBe(413)
      expect((await post({ status: 'completed', stdout: said(5 * mebi + 1) })).status).toBe(200)
      expect((await showCommand(made.id)).result?.stdout).toHaveLength(5 * mebi)
    })

    it('stores output unchanged: NUL, lone surrogates, nothing', async () => {
      const { send, showCommand, agent } = await start()
      const made = await send()
      await agent.fetch()
      await agent.answer(made.id, { stdout: 'a\u0000b', stderr: '', result: { 'k\u0000': '\ud800' } })
      expect((await showCommand(made.id)).result).toMatchObject({ stdout: 'a\u0000b', stderr: '' })
    })

    it('that gets no result is sent again, four times in all, and then fails', async () => {
      const { agent, send, showCommand, clock, reap, nudged, deviceId } = await start()
      const made = await send()
      for (let times = 1; times <= 4; times++) {
        expect((await agent.beat()).commands).toHaveLength(1)
        clock.forward(119)
        await reap()
        expect(await showCommand(made.id)).toMatchObject({ status: 'sent', sentCount: times })
        clock.forward(1)
        await reap()
        expect(nudged).toEqual(Array(Math.min(times, 3)).fill(deviceId))
      }
      expect((await agent.beat()).commands).toEqual([])
      expect(await showCommand(made.id)).toMatchObject({
        status: 'failed',
        result: { status: 'timeout', error: 'No answer, though it was sent 4 times' },
      })
    })

    it('may get a late result while it waits to be sent again', async () => {
      const { agent, send, showCommand, clock, reap } = await start()
      const made = await send()
      await agent.beat()
      clock.forward(121)
      await reap()
      expect((await showCommand(made.id)).status).toBe('pending')
      await agent.answer(made.id)
      expect((await showCommand(made.id)).status).toBe('completed')
      expect((await agent.beat()).commands).toEqual([])
    })

    it('that is not fetched within a week, or whose device is decommissioned, fails', async () => {
      const { agent, send, kept, deviceId, clock, reap, client, enroll } = await start()
      const made = await send()
      const other = await enroll('till-2')
      const gone = await client.call(api.deviceCommands.create, {
        params: { id: other.deviceId },
        body: collect as never,
      })
      await client.call(api.devices.decommission, { params: { id: other.deviceId } })
      await reap()
      expect(await kept(other.deviceId, gone.id)).toMatchObject({
        status: 'failed',
        result: { error: 'The device was decommissioned' },
      })
      clock.forward(7 * 86_400 - 1)
      await reap()
      expect((await kept(deviceId, made.id)).status).toBe('pending')
      clock.forward(1)
      expect((await agent.beat()).commands).toEqual([])
      await reap()
      expect(await kept(deviceId, made.id)).toMatchObject({
        status: 'failed',
        result: { error: 'It was not fetched in time' },
      })
    })

    it('is deleted thirty days after its end, and not before', async () => {
      const { agent, send, clock, service } = await start()
      const [ended, waiting] = [await send(), await send()]
      await agent.fetch()
      await agent.answer(ended.id)
      clock.forward(30 * 86_400)
      await deleteOldCommands(service.storage, clock())
      const there = async () => {
        const rows = service.storage.read.selectFrom('agent_commands').select('id')
        return (await rows.where('id', 'in', [ended.id, waiting.id]).orderBy('id').execute()).map(
          ({ id }) => id,
        )
      }
      expect(await there()).toEqual([ended.id, waiting.id])
      clock.forward(1)
      await deleteOldCommands(service.storage, clock())
      expect(await there()).toEqual([waiting.id])
    })
  })

  describe('sending a command', () => {
    it('is refused for a decommissioned device and in an inactive tenant', async () => {
      const { send, client, params, service, bakery, tokens, deviceId, agent } = await start()
      const waiting = await send()
      const setStatus = (status: string) =>
        service.storage.write((tx) =>
          tx.updateTable('organizations').set({ status }).where('id', '=', bakery.id).execute(),
        )
      await setStatus('suspended')
      const bySystem = service.client(tokens.system)
      const sent = bySystem.call(api.deviceCommands.create, { params, body: collect as never })
      await expect(sent).rejects.toEqual(failing(403, 'tenant_inactive'))
      const decided = bySystem.call(api.deviceCommands.setAutoUpdate, { params, body: { enabled: false } })
      await expect(decided).rejects.toEqual(failing(403, 'tenant_inactive'))
      // The device reports, and gets no command.
      expect((await agent.beat()).commands).toEqual([])
      expect(await agent.fetch()).toEqual([])
      await setStatus('active')
      expect((await agent.beat()).commands).toMatchObject([{ id: waiting.id }])
      await client.call(api.devices.decommission, { params: { id: deviceId } })
      await expect(send()).rejects.toMatchObject({
        status: 400,
        code: 'device_out_of_use',
        message: 'Cannot send commands to a decommissioned device',
      })
    })

    it('names every fault in the request, and creates nothing', async () => {
      const { send, client, params } = await start()
      const faults: [Record<string, unknown>, string][] = [
        [{ type: 'format_disk', payload: {} }, 'body.type'],
        [{ type: 'collect', payload: { what: [] } }, 'body.payload.what'],
        [{ type: 'collect', payload: { what: ['secrets'] } }, 'body.payload.what.0'],
        [{ type: 'set_log_level', payload: { level: 'loud' } }, 'body.payload.level'],
        [{ type: 'set_auto_update', payload: {} }, 'body.payload.enabled'],
        [{ type: 'set_auto_update', payload: { enabled: true }, targetRole: 'watchdog' }, 'body.targetRole'],
        [{ ...collect, targetRole: 'helper' }, 'body.targetRole'],
        [{ ...collect, more: 1 }, 'body.more'],
      ]
      for (const [body, path] of faults) {
        await expect(send(body)).rejects.toMatchObject({ status: 400, details: [{ path }] })
      }
      expect((await client.call(api.deviceCommands.list, { params })).data).toEqual([])
    })

    it('is refused when a hundred are in progress', async () => {
      const { send, agent } = await start()
      for (let n = 0; n < 100; n++) await send()
      await expect(send()).rejects.toEqual(failing(409, 'conflict'))
      const [first] = await agent.fetch()
      await agent.answer(first!.id)
      await send()
    })

    it('is audited, as is its result, without the output', async () => {
      const { send, agent, client, deviceId } = await start()
      const made = await send(quieter)
      await agent.fetch()
      await agent.answer(made.id, { exitCode: 0, stdout: 'plenty of output' })
      const { data } = await client.call(api.auditLogs.list, { query: { limit: 2 } })
      expect(data).toMatchObject([
        {
          action: 'agent.command.result',
          resource: { id: deviceId, name: 'till-1' },
          details: { commandId: made.id, after: { status: 'completed', exitCode: 0 } },
        },
        {
          action: 'device.command',
          resource: { id: deviceId, name: 'till-1' },
          details: { commandId: made.id, after: { ...quieter, targetRole: 'agent' } },
        },
      ])
      expect(JSON.stringify(data)).not.toContain('plenty')
    })

    it('requires the permission to execute; viewing requires the permission to read', async () => {
      const { service, tokens, params } = await start()
      const viewer = service.client(tokens.bakeryViewer)
      const sent = viewer.call(api.deviceCommands.create, { params, body: collect as never })
      await expect(sent).rejects.toEqual(failing(403, 'forbidden'))
      expect((await viewer.call(api.deviceCommands.list, { params })).data).toEqual([])
    })
  })

  it('commands are listed newest first, in pages, by status and type, without their results', async () => {
    const { send, agent, client, clock, params } = await start()
    const ids: string[] = []
    for (let n = 0; n < 5; n++) {
      ids.unshift((await send(n === 2 ? quieter : collect)).id)
      clock.forward(1)
    }
    await agent.fetch()
    await agent.answer(ids[0]!)
    const list = (query: Record<string, unknown>) =>
      client.call(api.deviceCommands.list, { params, query: query as never })
    const first = await list({ limit: 2 })
    expect(first.data.map(({ id }) => id)).toEqual(ids.slice(0, 2))
    expect(first.pagination).toMatchObject({ total: 5, page: 1 })
    expect(first.data[0]).not.toHaveProperty('result')
    const second = await list({ limit: 2, cursor: first.pagination.nextCursor })
    expect(second.data.map(({ id }) => id)).toEqual(ids.slice(2, 4))
    expect((await list({ status: 'completed' })).data.map(({ id }) => id)).toEqual([ids[0]])
    expect((await list({ type: 'set_log_level' })).data.map(({ id }) => id)).toEqual([ids[2]])
  })
})

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase, openMigrated, type TestDatabase, temporaryFolder } from '../databases.ts'
import { enroller } from '../devices/device-fixture.ts'
import { clientOf, serviceOn, startService, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { type Asked, type Frame, RawAgent } from './raw-agent.ts'

const collect = { type: 'collect', payload: { what: ['metrics'] } } as const
const isCommand = (frame: Frame): boolean => 'id' in frame
const isAck = ({ type }: Frame): boolean => type === 'ack'

/** Sends commands to devices, and shows them, as an administrator of an organization. */
function commandsAs(service: TestService, token: string) {
  const client = clientOf(service.url, token)
  return {
    send: (deviceId: string) =>
      client.call(api.deviceCommands.create, { params: { id: deviceId }, body: collect as never }),
    show: (deviceId: string, commandId: string) =>
      client.call(api.deviceCommands.show, { params: { id: deviceId, commandId } }),
  }
}

onEveryDatabase((_, open) => {
  let service: TestService
  let world: World
  let enroll: Awaited<ReturnType<typeof enroller>>
  let devices = 0

  beforeAll(async () => {
    service = await startService(open)
    world = await buildWorld(service)
    enroll = await enroller(service, world.tokens.bakery)
  })
  afterAll(() => service.close())

  const start = async () => {
    devices += 1
    const enrolled = await enroll(`machine-${devices}`)
    const { agentId, deviceId, authToken } = enrolled
    const connect = () => RawAgent.connect(service.url, { agentId, agentToken: authToken })
    const row = () =>
      service.storage.read
        .selectFrom('devices')
        .select(['status', 'last_seen_at', 'last_seen_ip'])
        .where('id', '=', deviceId)
        .executeTakeFirstOrThrow()
    const set = (values: Record<string, unknown>) =>
      service.storage.write((tx) =>
        tx.updateTable('devices').set(values).where('id', '=', deviceId).execute(),
      )
    const { send, show } = commandsAs(service, world.tokens.bakery)
    const commands = { send: () => send(deviceId), show: (id: string) => show(deviceId, id) }
    return { ...enrolled, connect, row, set, ...commands }
  }

  describe('a connected agent', () => {
    it('gets a command at once, and an acknowledgment of its result', async () => {
      const { connect, send, show } = await start()
      const agent = await connect()
      const made = await send()
      expect(await agent.frame(isCommand)).toEqual({ id: made.id, ...collect })
      expect(await show(made.id)).toMatchObject({ status: 'sent', sentCount: 1 })
      agent.result(made.id, {
        exitCode: 0,
        stdout: 'token=hunter2hunter2',
        durationMs: 3,
        result: { ok: true },
      })
      expect(await agent.frame(isAck)).toEqual({ type: 'ack', commandId: made.id })
      expect(await show(made.id)).toMatchObject({
        status: 'completed',
        result: {
          status: 'completed',
          exitCode: 0,
          stdout: 'token=[redacted]',
          durationMs: 3,
          result: { ok: true },
        },
      })
      // A repeated result, as after a lost acknowledgment.
      agent.result(made.id, { stdout: 'again' })
      expect(await agent.frame(isAck)).toEqual({ type: 'ack', commandId: made.id })
      expect((await show(made.id)).result?.stdout).toBe('token=[redacted]')
    })

    it('gets its pending commands once it connects, oldest first, however many', async () => {
      const { connect, send } = await start()
      const ids: string[] = []
      for (let n = 0; n < 23; n++) ids.push((await send()).id)
      const agent = await connect()
      const given: string[] = []
      for (const _ of ids) given.push(String(((await agent.frame(isCommand)) as Asked).id))
      expect(given).toEqual(ids)
    })

    it('leaves an audit entry for its result, as over HTTP', async () => {
      const { connect, send, deviceId } = await start()
      const agent = await connect()
      const made = await send()
      await agent.frame(isCommand)
      agent.result(made.id, { status: 'failed', error: 'no', exitCode: 2 })
      await agent.frame(isAck)
      const { data } = await clientOf(service.url, world.tokens.bakery).call(api.auditLogs.list, {
        query: { action: 'agent.command.result', limit: 1 },
      })
      expect(data).toMatchObject([
        {
          resource: { id: deviceId },
          details: { commandId: made.id, after: { status: 'failed', exitCode: 2 } },
        },
      ])
    })

    it('may send megabytes as the result of its command, but no large frame otherwise', async () => {
      const { connect, send, show } = await start()
      const agent = await connect()
      agent.result('0197c1f6-1b2c-7d3e-8f40-5a6b7c8d9e0f', { stdout: 'x'.repeat(100_000) })
      expect(await agent.frame(({ type }) => type === 'error')).toMatchObject({
        code: 'INVALID_MESSAGE',
        message: 'no result of this size is expected',
      })
      const made = await send()
      await agent.frame(isCommand)
      agent.result(made.id, { stdout: 'x'.repeat(6_000_000) })
      await agent.frame(isAck)
      expect((await show(made.id)).result?.stdout).toHaveLength(5 * 1024 * 1024)
    })

    it('is disconnected when it answers commands of others, and learns nothing about them', async () => {
      const { connect } = await start()
      const victim = await start()
      const made = await victim.send()
      const agent = await connect()
      for (let n = 0; n < 5; n++) agent.result(made.id, { stdout: 'mine' })
      expect(await agent.closed).toMatchObject({ code: 4001 })
      expect(agent.frames.filter(({ type }) => type !== 'ping')).toEqual([])
      expect(await victim.show(made.id)).toMatchObject({ status: 'pending', result: null })
    })

    it('gets an error for a result of a command that is not its own, and stays connected', async () => {
      const { connect, deviceId, authToken, agentId } = await start()
      const admin = clientOf(service.url, world.tokens.bakery)
      const made = await admin.call(api.deviceCommands.create, {
        params: { id: deviceId },
        body: { ...collect, targetRole: 'watchdog' } as never,
      })
      await service.storage.write((tx) =>
        tx
          .updateTable('agent_commands')
          .set({ sent_count: 1, status: 'sent' })
          .where('id', '=', made.id)
          .execute(),
      )
      const agent = await connect()
      agent.result(made.id, {})
      expect(await agent.frame(({ type }) => type === 'error')).toEqual({
        type: 'error',
        code: 'PROCESSING_ERROR',
        message: 'Command role mismatch',
        messageType: 'command_result',
        commandId: made.id,
      })
      const own = clientOf(service.url, authToken)
      expect((await own.call(api.agentCommands.list, { params: { id: agentId } })).commands).toEqual([])
    })

    it('of a suspended organization gets no commands', async () => {
      const { connect, send, deviceId } = await start()
      const { org_id } = await service.storage.read
        .selectFrom('devices')
        .select('org_id')
        .where('id', '=', deviceId)
        .executeTakeFirstOrThrow()
      const setStatus = (status: string) =>
        service.storage.write((tx) =>
          tx.updateTable('organizations').set({ status }).where('id', '=', org_id).execute(),
        )
      await send()
      await setStatus('suspended')
      const agent = await connect()
      agent.say({ type: 'heartbeat', timestamp: new Date().toISOString() })
      expect(await agent.frame(({ type }) => type === 'heartbeat_ack')).toMatchObject({ commands: [] })
      await setStatus('active')
      agent.say({ type: 'heartbeat' })
      expect(await agent.frame(({ type }) => type === 'heartbeat_ack')).toMatchObject({ commands: [collect] })
    })

    it('is online by connecting and by heartbeats, except in maintenance or during an update', async () => {
      const { connect, row, set, manifestTrustKeys } = await start()
      const long = '2026-01-01T00:00:00.000Z'
      await set({ status: 'offline', last_seen_at: long, last_seen_ip: '192.0.2.7' })
      const agent = await connect()
      expect(await row()).toMatchObject({ status: 'online', last_seen_ip: '127.0.0.1' })
      expect((await row()).last_seen_at! > long).toBe(true)
      for (const [before, after] of [
        ['offline', 'online'],
        ['maintenance', 'maintenance'],
        ['updating', 'updating'],
      ] as const) {
        await set({ status: before, last_seen_at: long })
        agent.say({ type: 'heartbeat', timestamp: new Date().toISOString() })
        expect(await agent.frame(({ type }) => type === 'heartbeat_ack')).toEqual({
          type: 'heartbeat_ack',
          timestamp: expect.any(String),
          commands: [],
          manifestTrustKeys,
        })
        expect((await row()).status).toBe(after)
        expect((await row()).last_seen_at! > long).toBe(true)
      }
    })

    it('has its frames processed one after the other', async () => {
      const { connect } = await start()
      const agent = await connect()
      for (let n = 0; n < 20; n++) agent.say({ type: 'heartbeat' })
      const stamps: string[] = []
      for (let n = 0; n < 20; n++) {
        stamps.push(String((await agent.frame(({ type }) => type === 'heartbeat_ack')).timestamp))
      }
      expect(stamps).toEqual([...stamps].sort())
    })

    it('is disconnected when it sends too many frames', async () => {
      const { connect } = await start()
      const agent = await connect()
      for (let n = 0; n < 500; n++) agent.say({ type: 'heartbeat' })
      expect(await agent.closed).toMatchObject({ code: 1008 })
    })
  })

  it('an agent over its rate limit is refused over its connection as well', async () => {
    const limited = await startService(open, { env: { RATE_LIMIT_AGENT: '3/60' } })
    const { tokens } = await buildWorld(limited)
    const { agentId, authToken } = await (await enroller(limited, tokens.bakery))('till-1')
    const agent = await RawAgent.connect(limited.url, { agentId, agentToken: authToken })
    for (let n = 0; n < 3; n++) agent.say({ type: 'heartbeat' })
    expect(await agent.frame(({ type }) => type === 'error')).toMatchObject({
      code: 'PROCESSING_ERROR',
      messageType: 'heartbeat',
      message: 'Agent rate limit exceeded',
    })
    const beat = clientOf(limited.url, authToken).call(api.agents.heartbeat, {
      params: { id: agentId },
      body: { status: 'ok', agentVersion: '0.1.0' },
    })
    await expect(beat).rejects.toMatchObject({ status: 429 })
    agent.socket.terminate()
  })
})

describe('two processes on one Postgres', () => {
  let database: TestDatabase
  let here: TestService
  let there: TestService
  let world: World

  beforeAll(async () => {
    database = await openMigrated('postgres')
    here = await serviceOn({ dataDir: database.dataDir, databaseUrl: database.databaseUrl })
    there = await serviceOn({ dataDir: await temporaryFolder(), databaseUrl: database.databaseUrl })
    world = await buildWorld(here)
  })
  afterAll(async () => {
    await Promise.all([here.close(), there.close()])
    await database.close()
  })

  it('deliver a command sent at one of them at once to an agent connected to the other', async () => {
    const { bakery } = world.orgs
    for (const [asked, connected] of [
      [here, there],
      [there, here],
      [here, here],
    ] as const) {
      const agent = await RawAgent.connect(connected.url, bakery)
      const { send, show } = commandsAs(asked, world.tokens.bakery)
      const made = await send(bakery.deviceId)
      expect(await agent.frame(isCommand)).toEqual({ id: made.id, ...collect })
      agent.result(made.id, { stdout: 'done' })
      await agent.frame(isAck)
      expect(await show(bakery.deviceId, made.id)).toMatchObject({ status: 'completed', sentCount: 1 })
      agent.socket.terminate()
      await until(async () => {
        const links = await database.storage.read.selectFrom('agent_links').selectAll().execute()
        return links.length === 0
      })
    }
  })

  it('deliver it once, over whichever path', async () => {
    const { bakery } = world.orgs
    const agent = await RawAgent.connect(there.url, bakery)
    const { send } = commandsAs(here, world.tokens.bakery)
    const own = [here, there].map((service) => clientOf(service.url, bakery.agentToken))
    const params = { id: bakery.agentId }
    const beats = () =>
      own.map(async (client) => {
        const body = { status: 'ok', agentVersion: '0.1.0' } as const
        return (await client.call(api.agents.heartbeat, { params, body })).commands
      })
    const made: string[] = []
    const polled: string[] = []
    for (let n = 0; n < 10; n++) {
      const [sent, ...received] = await Promise.all([send(bakery.deviceId), ...beats()])
      made.push(sent.id)
      polled.push(...received.flat().map(({ id }) => id))
    }
    const pushed = () => agent.frames.filter(isCommand).map(({ id }) => String(id))
    await until(async () => pushed().length + polled.length >= made.length)
    expect([...pushed(), ...polled].sort()).toEqual([...made].sort())
    agent.socket.terminate()
  })

  it('deliver a command that was sent while the session between them was cut', async () => {
    const { garage } = world.orgs
    const agent = await RawAgent.connect(there.url, garage)
    const { sql } = await import('kysely')
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'svc signals' and datname = current_database()`.execute(database.storage.read)
    const made = await commandsAs(here, world.tokens.garage).send(garage.deviceId)
    expect(await agent.frame(isCommand)).toEqual({ id: made.id, ...collect })
    agent.socket.terminate()
  })
})

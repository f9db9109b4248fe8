import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { ServeProcess, until } from '../daemon/process.ts'
import { openMigrated, type TestDatabase, temporaryFolder } from '../databases.ts'
import { clientOf, serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type Org, type World } from '../world.ts'
import { type Asked, RawAgent } from './raw-agent.ts'

const answers =
  (name: string) =>
  ({ type, payload }: Asked) =>
    type === 'event_logs_list'
      ? { result: { logs: [{ name }] } }
      : { result: { events: [], total: Number(payload.eventId) } }

describe('two processes on one Postgres', () => {
  let database: TestDatabase
  let here: TestService
  let there: TestService
  let world: World

  beforeAll(async () => {
    database = await openMigrated('postgres')
    const env = { LIVE_QUERY_TIMEOUT_MS: '3000' }
    here = await serviceOn({ dataDir: database.dataDir, databaseUrl: database.databaseUrl }, { env })
    there = await serviceOn({ dataDir: await temporaryFolder(), databaseUrl: database.databaseUrl }, { env })
    world = await buildWorld(here)
  })
  afterAll(async () => {
    await Promise.all([here.close(), there.close()])
    await database.close()
  })

  const logsOf = (service: { url: string }, { deviceId }: Org) =>
    clientOf(service.url, world.tokens.system).call(api.liveLogs.list, { params: { deviceId } })
  const rows = async () => {
    const { read } = database.storage
    const links = await read.selectFrom('agent_links').selectAll().execute()
    const questions = await read.selectFrom('live_questions').selectAll().execute()
    return { links: links.length, questions: questions.length }
  }

  it('answer for an agent that is connected to the other, and leave no query behind', async () => {
    const { bakery } = world.orgs
    const agent = await RawAgent.connect(there.url, bakery, answers('a log of the bakery'))
    expect((await logsOf(there, bakery)).data).toMatchObject([{ name: 'a log of the bakery' }])
    expect((await logsOf(here, bakery)).data).toMatchObject([{ name: 'a log of the bakery' }])
    expect(await rows()).toEqual({ links: 1, questions: 0 })
    agent.socket.terminate()
    await until(async () => (await rows()).links === 0)
    await expect(logsOf(here, bakery)).rejects.toMatchObject({ status: 409 })
  })

  it('carry queries and results of any size, many at once, without mixing them up', async () => {
    const { bakery, garage } = world.orgs
    const long = 'x'.repeat(100_000)
    const agents = [
      await RawAgent.connect(there.url, bakery, answers(`bakery ${long}`)),
      await RawAgent.connect(there.url, garage, answers(`garage ${long}`)),
    ]
    const client = clientOf(here.url, world.tokens.acme)
    const asked = [bakery, garage].flatMap((org) => [1, 2, 3].map((eventId) => ({ org, eventId })))
    const totals = await Promise.all(
      asked.map(async ({ org: { deviceId }, eventId }) => {
        const params = { deviceId, name: 'System' }
        return (await client.call(api.liveLogs.events, { params, query: { eventId } })).pagination.total
      }),
    )
    expect(totals).toEqual([1, 2, 3, 1, 2, 3])
    expect((await logsOf(here, garage)).data[0]!.name).toBe(`garage ${long}`)
    for (const { socket } of agents) socket.terminate()
  })

  it('let the newer connection win, wherever it is', async () => {
    const { bakery } = world.orgs
    const older = await RawAgent.connect(there.url, bakery, answers('older'))
    const newer = await RawAgent.connect(here.url, bakery, answers('newer'))
    expect(await older.closed).toMatchObject({ code: 4002 })
    expect((await logsOf(there, bakery)).data).toMatchObject([{ name: 'newer' }])
    expect((await logsOf(here, bakery)).data).toMatchObject([{ name: 'newer' }])
    newer.socket.terminate()
  })

  it('report timeouts and failures of an agent at the other like their own', async () => {
    const { harbor } = world.orgs
    const agent = await RawAgent.connect(there.url, harbor, () => ({ status: 'failed', error: 'no disk' }))
    await expect(logsOf(here, harbor)).rejects.toMatchObject({ status: 502, code: 'device_failed' })
    agent.answer = undefined
    await expect(logsOf(here, harbor)).rejects.toMatchObject({ status: 504 })
    expect((await rows()).questions).toBe(0)
    agent.socket.terminate()
  })

  it('notice the death of the other: 409, also for waiting callers; the agent reconnects', async () => {
    const { bakery } = world.orgs
    const other = new ServeProcess({ dataDir: await temporaryFolder(), databaseUrl: database.databaseUrl })
    const agent = await RawAgent.connect(await other.listening(), bakery, answers('there'))
    expect((await logsOf(here, bakery)).data).toMatchObject([{ name: 'there' }])
    agent.answer = undefined
    const waiting = logsOf(here, bakery)
    await agent.frame(({ type }) => type === 'event_logs_list')
    other.kill('SIGKILL')
    await expect(waiting).rejects.toMatchObject({ status: 409, code: 'device_unreachable' })
    await expect(logsOf(here, bakery)).rejects.toMatchObject({ status: 409, code: 'device_unreachable' })
    expect(await rows()).toMatchObject({ questions: 0 })
    const again = await RawAgent.connect(here.url, bakery, answers('here'))
    expect((await logsOf(there, bakery)).data).toMatchObject([{ name: 'here' }])
    again.socket.terminate()
  })

  it('ignore messages that only a newer release understands', async () => {
    const { bakery } = world.orgs
    const old = new ServeProcess({ dataDir: database.dataDir, databaseUrl: database.databaseUrl })
    const url = await old.listening()
    const agent = await RawAgent.connect(url, bakery, answers('of the older one'))
    expect((await logsOf(here, bakery)).data).toMatchObject([{ name: 'of the older one' }])
    const { storage } = database
    const links = storage.read.selectFrom('agent_links').select('holder')
    const { holder } = await links.where('device_id', '=', bakery.deviceId).executeTakeFirstOrThrow()
    const channel = `svc_live_${holder.replaceAll('-', '')}`
    for (const said of ['{"moved":{"to":"elsewhere"}}', '{"superseded":null}', '"word"', 'null', 'no JSON'])
      await storage.write((tx) => storage.signals!.send(tx, channel, said))
    for (let n = 0; n < 3; n += 1) {
      expect((await logsOf(here, bakery)).data).toMatchObject([{ name: 'of the older one' }])
    }
    agent.socket.terminate()
    expect(await old.stop()).toMatchObject({ code: 0 })
  })

  it('continue after the database has cut the sessions between them', async () => {
    const { bakery } = world.orgs
    const agent = await RawAgent.connect(there.url, bakery, answers('still'))
    const { sql } = await import('kysely')
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'svc signals' and datname = current_database()`.execute(database.storage.read)
    await until(async () => {
      const reply = await logsOf(here, bakery).catch(() => undefined)
      return reply?.data[0]?.name === 'still'
    })
    agent.socket.terminate()
  })
})

import { sql } from 'kysely'
import type { Logger } from 'pino'
import { expect, it } from 'vitest'
import { logInto } from '../../daemon/log.ts'
import type { Dialect } from '../../src/storage/db.ts'
import type { Db, Storage } from '../../src/storage/open.ts'
import { onEveryDatabase, type TestDatabase } from '../databases.ts'
import { serviceOn, startService, type TestService } from '../harness.ts'
import { administer } from '../postgres-databases.ts'
import { buildWorld } from '../world.ts'
import { damaged } from './damage.ts'
import { send } from './request.ts'

type Line = {
  loop?: string
  level: number
  msg: string
  trouble?: string
  sqlState?: string
  err?: unknown
  reason?: string
}

/** A logger that keeps its lines in memory. */
function memoryLog(): { log: Logger; lines: () => Line[] } {
  const lines: Line[] = []
  return { log: logInto({ write: (line) => void lines.push(JSON.parse(line)) }, 'info'), lines: () => lines }
}

const nameOf = (databaseUrl: string): string => new URL(databaseUrl).pathname.slice(1)

/** How a database is made to refuse changes, and restored. */
type Fault = { begin(database: TestDatabase, storage: Storage): Promise<void>; end: Fault['begin'] }

const settingOf = async ({ databaseUrl }: TestDatabase, value: string) => {
  const name = nameOf(databaseUrl!)
  await administer(async (client) => {
    await client.query(`alter database ${name} set default_transaction_read_only = ${value}`)
    await client.query(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`)
  })
}
const pragma = (text: string) => async (_: unknown, storage: Storage) => {
  await sql.raw(`pragma ${text}`).execute(storage.read)
}

/** Raises the error that the database raises when its disk is full. */
const refuseChanges = async (db: Db) => {
  await sql`create function no_room() returns trigger language plpgsql as $$ begin
    raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$`.execute(
    db,
  )
  for (const table of ['sites', 'probes', 'outbox'])
    await sql
      .raw(
        `create trigger no_room before insert or update on ${table} for each row execute function no_room()`,
      )
      .execute(db)
}

const faults: Record<'read-only' | 'full', Record<Dialect, Fault>> = {
  'read-only': {
    postgres: {
      begin: (database) => settingOf(database, 'on'),
      end: (database) => settingOf(database, 'off'),
    },
    sqlite: { begin: pragma('query_only = on'), end: pragma('query_only = off') },
  },
  full: {
    postgres: {
      begin: (_, storage) => storage.write(refuseChanges),
      end: (_, storage) =>
        storage.write(async (tx) => {
          await sql`drop function no_room cascade`.execute(tx)
        }),
    },
    sqlite: { begin: pragma('max_page_count = 1'), end: pragma('max_page_count = 4294967294') },
  },
}
const codes = {
  'read-only': { postgres: '25006', sqlite: 'SQLITE_READONLY' },
  full: { postgres: '53100', sqlite: 'SQLITE_FULL' },
}

const ready = (service: TestService) =>
  send<{ checks: { database: string } }>(service.url, 'GET', '/health/ready')

onEveryDatabase((kind, open) => {
  it.each(['read-only', 'full'] as const)(
    'a %s database refuses changes with Retry-After, answers reads, reports why, and recovers by itself',
    async (trouble) => {
      const database = await open()
      const { log, lines } = memoryLog()
      const service = await startService(async () => database, { outside: { log } })
      const { tokens, orgs } = await buildWorld(service)
      const as = (token: string) => ({ headers: { authorization: `Bearer ${token}` } })
      const add = (name: string) =>
        send<{ code: string }>(service.url, 'POST', '/api/v1/orgs/sites', {
          ...as(tokens.bakery),
          // Enough of them to need another page.
          body: { orgId: orgs.bakery.id, name, address: { note: name.repeat(200) } },
        })
      const list = () => send(service.url, 'GET', '/api/v1/orgs/sites', as(tokens.bakery))
      expect((await add('Before')).status).toBe(201)
      const from = lines().length

      const fault = faults[trouble][kind]
      await fault.begin(database, service.storage)
      const answers = []
      for (let n = 0; n < 30; n += 1) answers.push(await add(`Site number ${n}`))
      const refused = answers.filter(({ status }) => status !== 201)
      expect(refused.length).toBeGreaterThan(10)
      const wrong = refused.filter(({ status, headers }) => status !== 503 || headers['retry-after'] !== '5')
      // Connections that the server cuts to apply the setting get a 503 as well.
      expect(wrong).toEqual([])
      expect((await list()).status).toBe(200)
      await expect
        .poll(async () => (await ready(service)).body.checks.database, { timeout: 10_000 })
        .toContain(trouble)

      const said = lines().slice(from)
      // Each background loop reports it once as well.
      const known = said.filter((line) => line.trouble === trouble && line.loop === undefined)
      expect(known).toMatchObject([{ sqlState: expect.stringMatching(codes[trouble][kind]) }])
      expect(said.filter(({ msg }) => msg === 'unhandled error')).toEqual([])
      expect(JSON.stringify(said)).not.toContain('"sqlState":"[redacted]"')

      await fault.end(database, service.storage)
      await expect.poll(async () => (await add('After')).status, { timeout: 10_000 }).toBe(201)
      await expect.poll(async () => (await ready(service)).status, { timeout: 10_000 }).toBe(200)
      expect(JSON.stringify((await list()).body)).toContain('After')
    },
  )

  it('readiness reports a damaged page, and the log reports it once', async () => {
    const { log, lines } = memoryLog()
    const first = await startService(open)
    const { tokens } = await buildWorld(first)
    await first.close()
    const place = await damaged(kind, first, ['sites'])
    const service = await serviceOn(place, { outside: { log } })
    const list = () =>
      send(service.url, 'GET', '/api/v1/orgs/sites', {
        headers: { authorization: `Bearer ${tokens.bakery}` },
      })
    for (let n = 0; n < 5; n += 1) expect((await list()).status).toBe(500)
    const { status, body } = await ready(service)
    expect([status, body.checks.database]).toEqual([200, expect.stringMatching(/^damaged/)])
    const code = { postgres: 'XX001', sqlite: 'SQLITE_CORRUPT' }[kind]
    expect(lines().filter(({ trouble }) => trouble === 'damaged')).toMatchObject([
      { sqlState: expect.stringMatching(code) },
    ])
    expect(lines().filter(({ msg }) => msg === 'unhandled error')).toEqual([])
  })
})

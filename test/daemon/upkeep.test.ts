import { truncate } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { expect, it, onTestFinished } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { checkCounts } from '../../daemon/doctor/scraped.ts'
import { checkAgentVersions } from '../../daemon/doctor/stored.ts'
import { watchUpkeep } from '../../daemon/upkeep-watch.ts'
import { migrations } from '../../migrations/index.ts'
import type { Finding } from '../../src/core/finding.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { openReadOnly, openStorage } from '../../src/storage/open.ts'
import { upkeepOf } from '../../src/storage/upkeep/upkeep.ts'
import { listening } from '../cli/network.ts'
import { onEveryDatabase, openMigrated, temporaryFolder } from '../databases.ts'
import { startService, testSecrets } from '../harness.ts'
import { metricsToken, metricValues } from '../metric-values.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { buildWorld } from '../world.ts'

type Where = { dataDir: string; databaseUrl?: string | undefined }

async function every(place: Where): Promise<Finding[]> {
  const storage = await openReadOnly(place)
  try {
    return (await upkeepOf(storage)).findings
  } finally {
    await storage.close()
  }
}

/** What a look at this database finds, without what is well. */
const found = async (place: Where): Promise<Finding[]> =>
  (await every(place)).filter(({ state }) => state !== 'ok')

const saying = (findings: Finding[], words: string) =>
  findings.filter(({ message }) => message.includes(words))

it('svc doctor names what slows a Postgres down, and the command that mends it, which does', async () => {
  const server = await OwnPostgres.begin()
  const place = { dataDir: await temporaryFolder(), databaseUrl: server.databaseUrl }
  const ask = (...statements: string[]) =>
    server.ask(async (client) => {
      for (const one of statements) await client.query(one)
    })
  await ask(
    `alter system set shared_preload_libraries = 'pg_stat_statements'`,
    `alter system set autovacuum = off`,
  )
  await server.kill()
  await server.start()
  const storage = await openStorage(place)
  await migrate(storage, migrations)
  await storage.close()
  const none = await openReadOnly(place)
  expect((await upkeepOf(none)).findings).toMatchObject([
    { state: 'ok', message: expect.stringContaining('pg_stat_statements is not there') },
    { state: 'ok' },
  ])
  await none.close()

  await ask(
    'create extension pg_stat_statements version "1.10"',
    'create table parcels (id integer, secret text)',
    // Each update leaves 60,000 dead rows.
    `insert into parcels select n, 'planted-' || n from generate_series(1, 60000) n`,
    'create index parcels_never_read on parcels (secret)',
    'update parcels set id = id + 1',
    'update parcels set id = id + 1',
    ...Array.from({ length: 110 }, () => 'select count(*) from parcels where id = 7'),
    ...Array.from({ length: 11 }, () => `select pg_sleep(0.21), 'planted-value'`),
    `select pg_create_physical_replication_slot('standby', true)`,
  )
  // A unique index on values that are there twice.
  await ask('insert into parcels values (1, $$twice$$), (1, $$twice$$)')
  await expect(ask('create unique index concurrently parcels_once on parcels (id)')).rejects.toThrow(
    /could not create/,
  )
  // A segment of this server has one mebibyte.
  await ask(
    ...Array.from({ length: 66 }, () => `select pg_logical_emit_message(false, 'a', 'b'), pg_switch_wal()`),
  )

  const before = await found(place)
  const expected: [words: string, remedy: RegExp][] = [
    ['A statement takes 2', /analyze/],
    ['parcels (60002 rows) was read from end to end', /^analyze parcels;/],
    ['parcels (60002 rows) was never analyzed', /^analyze parcels;/],
    ['dead rows beside 60002 live ones', /^vacuum \(analyze\) parcels;/],
    ['The index parcels_once of parcels is invalid', /^reindex index concurrently parcels_once;/],
    ['The replication slot standby keeps', /pg_drop_replication_slot\('standby'\)/],
    ['The extension pg_stat_statements is 1.10', /^alter extension pg_stat_statements update/],
  ]
  for (const [words, remedy] of expected) {
    const [one, ...more] = saying(before, words)
    expect(one, words).toMatchObject({
      check: 'database upkeep',
      state: 'warning',
      remedy: expect.stringMatching(remedy),
    })
    expect(more).toEqual([])
  }
  expect(before.length).toBe(expected.length)
  expect(JSON.stringify(await every(place))).toMatch(
    /index parcels_never_read of parcels \([^)]+\) was never read.*drop index concurrently parcels_never_read/,
  )
  const watched = await openStorage(place)
  const { registry, refresh } = watchUpkeep(watched)
  await refresh()
  await watched.close()
  expect(await metricValues(registry, 'svc_database_upkeep')).toEqual({
    slow_statements: 1,
    scanned: 1,
    unanalyzed: 1,
    dead: 1,
    unused: 1,
    invalid: 1,
    outdated: 1,
  })
  const { '': held } = await metricValues(registry, 'svc_database_slot_bytes')
  expect(held).toBeGreaterThan(64 * 2 ** 20)
  expect(JSON.stringify(before)).not.toContain('planted')

  await ask(
    'analyze parcels',
    'vacuum (analyze) parcels',
    'drop index concurrently parcels_never_read',
    'delete from parcels where id = 1',
    'reindex index concurrently parcels_once',
    `select pg_drop_replication_slot('standby')`,
    'alter extension pg_stat_statements update',
    'select pg_stat_statements_reset()',
    'select pg_stat_reset()',
  )
  // A test resets the statistics; what was deleted is vacuumed again.
  await ask('vacuum (analyze)')
  expect(await found(place)).toEqual([])
})

it('svc doctor says when transactions of Postgres are about to run out', async () => {
  const server = await OwnPostgres.begin()
  const place = { dataDir: await temporaryFolder(), databaseUrl: server.databaseUrl }
  const aged = (age: number) =>
    server.ask((client) =>
      client.query(
        `update pg_database set datfrozenxid = ((pg_current_xact_id()::text::bigint - ${age} + 4294967296) % 4294967296)::text::xid
         where datname = current_database()`,
      ),
    )
  await aged(600_000_000)
  expect(saying(await found(place), 'not frozen')).toMatchObject([
    { state: 'warning', message: 'Rows of 600 million transactions ago are not frozen.' },
  ])
  await aged(1_600_000_000)
  expect(saying(await found(place), 'not frozen')).toMatchObject([
    { state: 'error', remedy: expect.stringContaining('vacuumdb --freeze') },
  ])
})

it('svc doctor sees a SQLite that was never analyzed, and a write-ahead log that does not start over', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  expect(await found({ dataDir })).toEqual([])
  const file = join(dataDir, 'svc.sqlite')
  const database = new Database(file)
  database.exec('create table parcels (data blob)')
  for (let n = 0; n < 66; n++) database.exec('insert into parcels values (zeroblob(1048576))')
  expect(saying(await found({ dataDir }), 'was ever analyzed')).toMatchObject([
    { state: 'warning', remedy: expect.stringContaining(`sqlite3 svc.sqlite 'analyze'`) },
  ])
  database.exec('analyze')
  database.close()
  expect(await found({ dataDir })).toEqual([])
  await truncate(`${file}-wal`, 0).catch(() => undefined)
  const open = new Database(file)
  open.exec('insert into parcels values (1)')
  await truncate(`${file}-wal`, 1200 * 2 ** 20)
  expect(saying(await found({ dataDir }), 'Its write-ahead log has')).toMatchObject([{ state: 'warning' }])
  open.close()
})

onEveryDatabase((_, open) => {
  it('svc doctor counts agents that are far behind the promoted release, and those that cannot reach it', async () => {
    const service = await startService(open)
    const { orgs } = await buildWorld(service)
    const { read, write } = service.storage
    const look = async (version: string) => {
      await write((tx) =>
        tx.updateTable('devices').set({ agent_version: version, status: 'online' }).execute(),
      )
      return (await checkAgentVersions(read)).map(({ state, message }) => [state, message])
    }
    expect(orgs.bakery.deviceId).toBeDefined()
    await write((tx) =>
      tx.updateTable('agent_builds').set({ promoted_at: null, rollback_at: null }).execute(),
    )
    expect(await look('1.0.0')).toEqual([['ok', 'No release is promoted']])
    const now = new Date().toISOString()
    await write(async (tx) => {
      const release = { tag: 'v3.4.0', prerelease: 0, notes: null, manifest: '{}', manifest_signature: '' }
      await tx
        .insertInto('agent_releases')
        .values({
          version: '3.4.0',
          min_from: '3.1.0',
          ...release,
          signing_key_id: 'k',
          created_at: now,
          updated_at: now,
        })
        .execute()
      const kind = {
        component: 'agent',
        platform: 'linux',
        architecture: 'amd64',
        name: 'svc-agent-linux-amd64',
      }
      await tx
        .insertInto('agent_builds')
        .values({
          version: '3.4.0',
          ...kind,
          url: '',
          checksum: '',
          size: 1,
          promoted_at: now,
          rollback_at: null,
        })
        .execute()
    })
    const { count } = await read
      .selectFrom('devices')
      .select(({ fn }) => fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow()
    const all = `${count} agents online`
    expect(await look('3.3.9')).toEqual([['ok', `${all}, ${count} older than 3.4.0, none by far`]])
    expect(await look('v3.4.0')).toEqual([['ok', `${all}, 0 older than 3.4.0, none by far`]])
    const far = [
      'warning',
      `${count} of ${all} are far behind 3.4.0, which is promoted (${count} are older).`,
    ]
    expect(await look('3.2.0')).toEqual([far])
    expect(await look('2.9.0')).toEqual([
      far,
      ['warning', `${count} of ${all} are older than 3.1.0, the oldest that can update to 3.4.0.`],
    ])
  })
})

it('svc doctor names statements that the running service has found slow', async () => {
  const counts = [
    'svc_database_slow_statements_total{operation="select",table="devices"} 12',
    'svc_database_slow_statements_total{operation="insert",table="audit_logs"} 300',
    'svc_database_slow_statements_total{operation="update",table="users"} 9',
  ]
  const server = createServer((_, reply) => void reply.end(counts.join('\n')))
  const port = await listening(server)
  onTestFinished(() => void server.close())
  const place = { SVC_DATA_DIR: await temporaryFolder(), HOST: '127.0.0.1', PORT: `${port}` }
  const look = (env: Record<string, string>) => checkCounts(readConfig({ ...testSecrets, ...place, ...env }))
  expect(await look({})).toEqual([])
  expect(await look({ METRICS_TOKEN: metricsToken })).toMatchObject([
    { check: 'limits', state: 'ok' },
    {
      check: 'slow statements',
      state: 'warning',
      message: 'Statements took longer than 200 ms: insert audit_logs 300×, select devices 12×.',
    },
  ])
})

import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { openMigrated, temporaryFolder } from '../../databases.ts'
import { serviceOn } from '../../harness.ts'
import { OwnPostgres } from '../../own-postgres.ts'
import type { Place } from '../process.ts'
import { noDisk, smallDisk } from '../small-disk.ts'
import { findingsOf, summaryOf } from './findings.ts'

vi.setConfig({ testTimeout: 90_000 })

/* What the doctor says of the server of the database and of the disk, each of which is made to fail for real. */

const mebibyte = 2 ** 20

const of = async (place: Place, check: RegExp) =>
  (await findingsOf(place)).filter((found) => check.test(found.check))

/** A migrated database on a server of its own. */
async function ownServer(settings: Record<string, string> = {}) {
  const server = await OwnPostgres.begin({ settings })
  const place = { dataDir: await temporaryFolder(), databaseUrl: server.databaseUrl }
  await (await serviceOn(place)).close()
  return { server, place, found: () => of(place, /^(database|clock)$/) }
}

const connected = async (connectionString: string, application_name: string) => {
  const client = new pg.Client({ connectionString, application_name })
  client.on('error', () => {})
  await client.connect()
  onTestFinished(() => client.end())
  return client
}

/** From now on the database shows a time that is ten minutes later, to whoever connects. */
const tenMinutesAhead = `
  create schema ahead;
  create function ahead.now() returns timestamptz stable language sql
    as $$ select pg_catalog.now() + interval '10 minutes' $$;
  create function ahead.clock_timestamp() returns timestamptz volatile language sql
    as $$ select pg_catalog.clock_timestamp() + interval '10 minutes' $$;
  alter database postgres set search_path = ahead, public, pg_catalog`

it('a transaction that was left open is named, and so is what ends it; and another clock than that of the server', async () => {
  const { server, place, found } = await ownServer()
  expect(await found()).toEqual([])
  const left = await connected(place.databaseUrl, 'report of a person')
  await left.query('begin')
  await left.query('select 1')
  expect(await found()).toEqual([])
  await server.ask((client) => client.query(tenMinutesAhead))
  const [clock, idle] = (await found()).sort((a, b) => a.check.localeCompare(b.check))
  expect(clock).toMatchObject({
    check: 'clock',
    state: 'warning',
    message: expect.stringMatching(
      /^The clock of this machine is (599|60\d) s behind that of the database\.$/,
    ),
  })
  expect(idle).toMatchObject({
    check: 'database',
    state: 'warning',
    message: expect.stringMatching(
      /^Connection \d+ \(report of a person\) has been idle in a transaction for 6\d\d s\.$/,
    ),
  })
  const [, statement] = /or: (select .*)$/.exec(idle!.remedy!)!
  await server.ask((client) => client.query(statement!))
  expect((await found()).map(({ check }) => check)).toEqual(['clock'])
})

it('a server without a free connection is seen before a replica is refused', async () => {
  const { place, found } = await ownServer({ max_connections: '30' })
  expect(await found()).toEqual([])
  await Promise.all(Array.from({ length: 26 }, () => connected(place.databaseUrl, 'another program')))
  expect(summaryOf(await found())).toEqual([
    [
      'database',
      'warning',
      expect.stringMatching(/^(27|28|29|30) of 30 connections of the server are used\.$/),
    ],
  ])
})

it('a server that accepts no changes is an error', async () => {
  const { server, found } = await ownServer()
  await server.ask(async (client) => {
    await client.query('alter system set default_transaction_read_only = on')
    await client.query('select pg_reload_conf()')
  })
  await expect
    .poll(async () => summaryOf(await found()), { timeout: 10_000 })
    .toEqual([['database', 'error', 'It accepts no changes.']])
})

const why = noDisk()

describe.skipIf(why !== undefined)(`a disk (${why ?? 'tmpfs'})`, () => {
  const onDisk = async (bytes: number) => {
    const { dataDir: template, storage } = await openMigrated('sqlite')
    await storage.close()
    const disk = await smallDisk(bytes)
    const dataDir = join(disk.path, 'data')
    await cp(template, dataDir, { recursive: true })
    return { disk, place: { dataDir } }
  }

  it('that is nearly full is a warning, and one that is full is an error', async () => {
    const { disk, place } = await onDisk(128 * mebibyte)
    const message = () => expect.stringMatching(/^Only [\d.]+ [KM]i?B of 128 MiB are free for \/.*\/data\.$/)
    expect(summaryOf(await of(place, /^disk$/))).toEqual([['disk', 'warning', message()]])
    disk.fill(2 * mebibyte)
    expect(summaryOf(await of(place, /^disk$/))).toEqual([['disk', 'error', message()]])
    disk.empty()
    expect((await of(place, /^disk$/)).map(({ state }) => state)).toEqual(['warning'])
  })

  it('that was mounted read-only is told apart from a damaged database', async () => {
    const { disk, place } = await onDisk(128 * mebibyte)
    disk.setReadOnly()
    expect(summaryOf(await of(place, /^database/))).toEqual([
      [
        'database',
        'error',
        expect.stringMatching(/^Cannot open .*\/svc\.sqlite: its file system is read-only, /),
      ],
    ])
  })
})

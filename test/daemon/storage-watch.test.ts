import { sql } from 'kysely'
import { Registry } from 'prom-client'
import { expect, it, onTestFinished } from 'vitest'
import { StorageWatch } from '../../daemon/storage-watch.ts'
import { openStorage } from '../../src/storage/open.ts'
import { type Open, onEveryDatabase } from '../databases.ts'
import { metricValues } from '../metric-values.ts'

const logged = () => {
  const lines: object[] = []
  return { lines, log: { debug: (line: object) => void lines.push(line) } }
}

it('statements from 200 ms on are counted by what they do and their first table, and logged without values', async () => {
  const metrics = new Registry()
  const { lines, log } = logged()
  const watch = new StorageWatch(log, metrics)
  const slow = (text: string, ms = 200) => watch.ran(text, ms)
  slow('select * from "devices" as "d" inner join "sites" on true where "d"."id" = $1')
  slow('select 1 from (select "id" from "devices") as "x"')
  slow('insert into "outbox" ("entry") select "e" from json_each(?)', 9000)
  slow('update "webhooks" set "status" = ?')
  slow('with "old" as (select "id" from "agent_logs") delete from "x"')
  slow('commit')
  slow('select * from "users"', 199.9)
  expect(await metricValues(metrics, 'svc_database_slow_statements_total')).toEqual({
    'select,devices': 2,
    'insert,outbox': 1,
    'update,webhooks': 1,
    'with,agent_logs': 1,
    'commit,': 1,
  })
  expect(lines).toHaveLength(6)
  expect(lines[2]).toEqual({ sql: expect.stringContaining('"outbox"'), ms: 9000 })
})

async function watched(open: Open) {
  const { dataDir, databaseUrl } = await open()
  const metrics = new Registry()
  const observer = new StorageWatch(logged().log, metrics)
  const place = { dataDir, ...(databaseUrl !== undefined && { databaseUrl }) }
  const storage = await openStorage({ ...place, postgres: { poolSize: 2 }, observer })
  onTestFinished(() => storage.close())
  const stored = observer.measure(storage)
  return { storage, metrics, stored }
}

onEveryDatabase((kind, open) => {
  const isPostgres = kind === 'postgres'

  it.each(['read', 'heavy', 'readQueries'] as const)('a slow statement is counted, by %s', async (by) => {
    const { storage, metrics } = await watched(open)
    const text = isPostgres
      ? sql`select pg_sleep(0.25) from "probes"`
      : sql`with recursive "n" (x) as (select 1 from "probes" union all select x + 1 from "n" where x < 6000000)
          select count(*) from "n"`
    await text.execute(storage[by])
    const operation = isPostgres ? 'select' : 'with'
    expect(await metricValues(metrics, 'svc_database_slow_statements_total')).toMatchObject({
      [`${operation},probes`]: 1,
    })
  })

  it('a failed statement counts as well', async () => {
    const { storage, metrics } = await watched(open)
    const broken = isPostgres
      ? sql`select pg_sleep(0.25), 1 / (id - 1) from "probes"`
      : sql`with recursive "n" (x) as (select 1 from "probes" union all select x + 1 from "n" where x < 3000000)
          select sum(json(iif(x < 3000000, '1', 'x'))) from "n"`
    await expect(broken.execute(storage.read)).rejects.toThrow(
      isPostgres ? 'division by zero' : 'malformed JSON',
    )
    const operation = isPostgres ? 'select' : 'with'
    expect(await metricValues(metrics, 'svc_database_slow_statements_total')).toEqual({
      [`${operation},probes`]: 1,
    })
  })

  it('pools show what is in use and who waits, and how long callers waited', async () => {
    const { storage, metrics } = await watched(open)
    const pool = isPostgres ? 'main' : 'writes'
    const read = async (what: string) => (await metricValues(metrics, `svc_database_pool_${what}`))[pool]
    const usage = async () => [await read('limit'), await read('in_use'), await read('waiting')]
    const { promise: held, resolve: release } = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    const hold = () =>
      storage.write(async (tx) => {
        await tx.selectFrom('probes').selectAll().execute()
        begun.resolve()
        await held
      })
    // Postgres has two connections, SQLite one writer.
    const holding = Promise.all([hold(), hold()])
    await begun.promise
    const waiting = storage.write((tx) => tx.selectFrom('probes').selectAll().execute())
    await expect.poll(usage).toEqual(isPostgres ? [2, 2, 1] : [1, 1, 3])
    release()
    await Promise.all([holding, waiting])
    await expect.poll(usage).toEqual(isPostgres ? [2, 0, 0] : [1, 0, 0])
    const { values } = await metrics.getSingleMetric('svc_database_wait_seconds')!.get()
    const count = values.find((one) => {
      const { metricName } = one as { metricName?: string }
      return metricName === 'svc_database_wait_seconds_count' && one.labels.pool === pool
    })
    expect(count?.value).toBeGreaterThanOrEqual(3)
  })

  it('the size is that of the data, and of the write-ahead log where it is a file beside it', async () => {
    const { stored } = await watched(open)
    await stored.refresh()
    const { data, ...others } = await metricValues(stored.registry, 'svc_database_bytes')
    expect(data).toBeGreaterThan(100_000)
    expect(Object.keys(others)).toEqual(isPostgres ? [] : ['log'])
  })
})

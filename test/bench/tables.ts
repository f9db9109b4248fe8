import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { thinCheckpoints } from '../../src/audit/checkpoints/retention.ts'
import { newId } from '../../src/core/new-id.ts'
import { deleteOldLogs } from '../../src/logs/jobs.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { temporaryFolder } from './children.ts'
import { type Row, rounded } from './figures.ts'
import { buildWorld, type Place } from './world.ts'

type Options = { rows: number; newDatabase?: () => Promise<string> }
type Measured = { seconds: number; stallMs: number }

const old = '2020-01-01T00:00:00.000Z'
const now = new Date().toISOString()
const days = { agentLogRetentionDays: 7, eventLogRetentionDays: 7 }

/** Tables that have grown to a bound: how long their retention takes, and how long it holds up the event loop. */
export async function tables({ rows, newDatabase }: Options, say: (line: string) => void): Promise<Row[]> {
  const place: Place = {
    dataDir: temporaryFolder('tables'),
    ...(newDatabase && { databaseUrl: await newDatabase() }),
  }
  await buildWorld(place, 1000)
  const storage = await openStorage(place)
  try {
    say(`tables: writing ${rows} agent logs`)
    await fillLogs(storage, 'agent_logs', rows)
    if (newDatabase) await copyToPartition(storage)
    // On a busy machine other programs hold it up as well.
    const quiet = await measured(() => sleep(5000))
    const rowOf = (subject: string, { seconds, stallMs }: Measured, more: Row['figures']): Row => ({
      bench: 'tables',
      subject,
      figures: { seconds: rounded(seconds), 'longest stall ms': stallMs, 'quiet ms': quiet.stallMs, ...more },
      aim: '≤ 50 ms, or that of doing nothing',
      met: stallMs <= Math.max(50, quiet.stallMs),
    })
    say('tables: deleting them')
    const deleted = await measured(() => deleteOldLogs(storage, days, now))
    const found = [
      rowOf(`${rows} agent logs deleted in steps`, deleted, { 'rows/s': rows / deleted.seconds }),
    ]
    if (newDatabase) {
      found[0]!.figures['MiB that the table keeps'] = await mebibytesOf(storage, 'agent_logs')
      const dropped = await measured(() => dropPartition(storage))
      found.push(rowOf('the same rows as a partition, counted by device and dropped', dropped, {}))
    } else {
      const before = await storage.sizes()
      const given = await measured(() => storage.giveSpaceBack())
      // Without this the file has its length until the log is copied into it.
      const after = await freePages(storage)
      found.push(
        rowOf('room given back', given, { 'MiB before': before.data / 2 ** 20, 'MiB free after': after }),
      )
    }
    say('tables: ten years of hourly checkpoints')
    await fillCheckpoints(storage, 87_600)
    const thinned = await measured(() => thinCheckpoints(storage, now))
    const { count } = await storage.read
      .selectFrom('audit_checkpoints')
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow()
    found.push(rowOf('87,600 checkpoints thinned out', thinned, { left: Number(count) }))
    return found
  } finally {
    await storage.close()
  }
}

async function measured(work: () => Promise<unknown>): Promise<Measured> {
  const stalls = monitorEventLoopDelay({ resolution: 1 })
  stalls.enable()
  const begun = performance.now()
  await work()
  const seconds = (performance.now() - begun) / 1000
  stalls.disable()
  return { seconds, stallMs: stalls.max / 1e6 }
}

const numbers = (storage: Storage, from: number, to: number) =>
  storage.dialect === 'postgres'
    ? sql`(select generate_series(${from}::int, ${to - 1}::int) as n)`
    : sql`(with recursive s (n) as (select ${from} union all select n + 1 from s where n + 1 < ${to}) select n from s)`

async function fillLogs(storage: Storage, table: 'agent_logs', rows: number): Promise<void> {
  const devices = storage.read.selectFrom('devices').select(['id', 'org_id']).orderBy('id')
  const all = await devices.execute()
  const step = 20_000
  for (let from = 0; from < rows; from += step) {
    const to = Math.min(rows, from + step)
    const device = all[(from / step) % all.length]!
    const id = newId().slice(0, 19)
    await storage.write((tx) =>
      sql`insert into ${sql.table(table)}
        (id, device_id, org_id, timestamp, level, message, created_at, component, seq)
        select ${id} || '-' || cast(1000000 + n as text), ${device.id}, ${device.org_id}, ${old}, 'info',
          'connection to the update server was established after ' || cast(n as text) || ' attempts and kept', ${old},
          'updater', n from ${numbers(storage, from, to)} as s`.execute(tx),
    )
  }
}

/** A partition as retention would drop it, with the indexes of the table. */
async function copyToPartition(storage: Storage): Promise<void> {
  await storage.write(async (tx) => {
    await sql`create table logs_by_day (like agent_logs including defaults) partition by range (created_at)`.execute(
      tx,
    )
    await sql`create table logs_of_a_day partition of logs_by_day for values from (minvalue) to ('2021')`.execute(
      tx,
    )
    for (const columns of ['device_id, timestamp, id', 'created_at', 'device_id, seq', 'id'])
      await sql`create index on logs_by_day (${sql.raw(columns)})`.execute(tx)
  })
  const { rows } = await sql<{ id: string }>`select distinct device_id as id from agent_logs`.execute(
    storage.read,
  )
  for (const { id } of rows) {
    await storage.write((tx) =>
      sql`insert into logs_by_day select * from agent_logs where device_id = ${id}`.execute(tx),
    )
  }
}

/** What a device has stored is counted in its row, so it has to be known what goes. */
const dropPartition = (storage: Storage): Promise<void> =>
  storage.write(async (tx) => {
    await sql`update devices set log_bytes = greatest(0, log_bytes - gone.bytes) from (
      select device_id, sum(octet_length(message) + 400) as bytes from logs_of_a_day group by device_id
    ) as gone where gone.device_id = devices.id`.execute(tx)
    await sql`drop table logs_of_a_day`.execute(tx)
  })

/** With its indexes: room that new rows use again. */
async function mebibytesOf(storage: Storage, table: string): Promise<number> {
  const { rows } = await sql<{ bytes: string }>`select pg_total_relation_size(${table}) as bytes`.execute(
    storage.read,
  )
  return Number(rows[0]!.bytes) / 2 ** 20
}

async function freePages(storage: Storage): Promise<number> {
  const { rows } = await sql<{
    bytes: number
  }>`select freelist_count * 4096 as bytes from pragma_freelist_count`.execute(storage.read)
  return rows[0]!.bytes / 2 ** 20
}

async function fillCheckpoints(storage: Storage, count: number): Promise<void> {
  const note = 'x'.repeat(400)
  const begin = Date.parse('2015-01-01T00:00:00Z')
  for (let from = 0; from < count; from += 500) {
    const rows = Array.from({ length: Math.min(500, count - from) }, (_, n) => ({
      chain: 'system',
      seq: from + n + 1,
      note,
      created_at: new Date(begin + (from + n) * 3_600_000).toISOString(),
    }))
    await storage.write((tx) => tx.insertInto('audit_checkpoints').values(rows).execute(), { unsynced: true })
  }
}

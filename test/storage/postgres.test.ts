import { sql } from 'kysely'
import { expect, inject, onTestFinished, test, vi } from 'vitest'
import type { AnyDb } from '../../src/storage/columns.ts'
import { type Db, openStorage, type Storage } from '../../src/storage/open.ts'
import { type Params, prepared } from '../../src/storage/query/prepared.ts'
import { rowList } from '../../src/storage/query/row-list.ts'
import { openEmpty, temporaryFolder } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'
import { poolTransactions } from './pooler.ts'

async function open(): Promise<Storage> {
  const { storage, close } = await openEmpty('postgres')
  onTestFinished(close)
  return storage
}

async function openWith(poolSize: number): Promise<Storage> {
  const { databaseUrl, dataDir, close } = await openEmpty('postgres')
  onTestFinished(close)
  const storage = await openStorage({ databaseUrl, dataDir, postgres: { poolSize } })
  onTestFinished(() => storage.close())
  return storage
}
const openWithOneConnection = () => openWith(1)

type Note = { id: number; body: string; size?: number | null }

const noteById = prepared<{ id: number }, Note>((db, p: Params<{ id: number }>) =>
  (db as AnyDb).selectFrom('notes').selectAll().where('id', '=', p.id),
)

const failureOf = async (databaseUrl: string): Promise<string> => {
  const opening = openStorage({ databaseUrl, dataDir: await temporaryFolder() })
  return opening.then(
    () => 'opened',
    (error: Error) => error.message,
  )
}

test('an unreachable server is named, without the password', async () => {
  const message = await failureOf('postgres://svc:hunter2@127.0.0.1:1/things')
  expect(message).toMatch(/^Cannot use PostgreSQL at 127\.0\.0\.1:1, database things: .*ECONNREFUSED/)
  expect(message).not.toContain('hunter2')
})

test('a wrong password and a missing database get different messages, without the password', async () => {
  const url = new URL(inject('postgresUrl'))
  url.password = 'hunter2'
  expect(await failureOf(url.href)).toMatch(/database postgres: password authentication failed/)
  const missing = new URL(inject('postgresUrl'))
  missing.pathname = '/nowhere'
  const message = await failureOf(missing.href)
  expect(message).toContain('database "nowhere" does not exist')
  expect(message).not.toContain(missing.password)
})

test.each([2, 5])('at most %d queries run at once with a pool of that size', async (size) => {
  const storage = await openWith(size)
  const ask = () => sql<{ pid: number }>`select pg_backend_pid() as pid, pg_sleep(0.1)`.execute(storage.read)
  const answers = await Promise.all(Array.from({ length: 20 }, ask))
  expect(new Set(answers.map(({ rows }) => rows[0]!.pid)).size).toBe(size)
})

test.each([1, 2, 3])(
  'a transaction pooler is refused in one sentence, with %d sessions',
  async (sessions) => {
    const { databaseUrl, close } = await openEmpty('postgres')
    onTestFinished(close)
    const message = await failureOf(await poolTransactions(databaseUrl!, sessions))
    expect(message).toMatch(/^DATABASE_URL leads to a connection pooler .* session mode$/)
  },
)

test('an unsynced write does not wait for the disk, on a connection that later writes share', async () => {
  const storage = await openWithOneConnection()
  const setting = async (tx: Db, name: string) => {
    const { rows } = await sql<{ is: string }>`select current_setting(${name}) as "is"`.execute(tx)
    return rows[0]!.is
  }
  const settings = async (tx: Db) => [
    await setting(tx, 'synchronous_commit'),
    await setting(tx, 'transaction_isolation'),
  ]
  expect(await storage.write(settings, { unsynced: true })).toEqual(['off', 'read committed'])
  expect(await storage.write(settings)).toEqual(['on', 'read committed'])
  expect(await storage.write(settings, { unsynced: true })).toEqual(['off', 'read committed'])
})

test('a deadlock is resolved by a retry', async () => {
  const storage = await open()
  await createNotes(storage)
  await storage.write(async (tx) => {
    await addNote(tx, 1)
    await addNote(tx, 2)
  })
  let tries = 0
  const meeting = Promise.withResolvers<void>()
  let waiting = 0
  const updateBoth = (first: number, second: number) => {
    return storage.write(async (tx) => {
      tries++
      await sql`update notes set body = body || 'x' where id = ${first}`.execute(tx)
      if (++waiting === 2) meeting.resolve()
      await meeting.promise
      await sql`update notes set body = body || 'y' where id = ${second}`.execute(tx)
    })
  }
  await Promise.all([updateBoth(1, 2), updateBoth(2, 1)])
  expect(tries).toBeGreaterThan(2)
  const { rows } = await sql<{ body: string }>`select body from notes order by id`.execute(storage.read)
  for (const { body } of rows)
    expect(
      body
        .replace(/^note \d/, '')
        .split('')
        .sort()
        .join(''),
    ).toBe('xy')
})

test('a lost connection fails only the write that used it', async () => {
  const storage = await open()
  await createNotes(storage)
  const cut = storage.write(async (tx) => {
    await addNote(tx, 1)
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(tx)
    await sql`select pg_terminate_backend(${rows[0]?.pid})`.execute(storage.read)
    await new Promise((resolve) => setTimeout(resolve, 50))
    await addNote(tx, 2)
  })
  await expect(cut).rejects.toThrow()
  await storage.write((tx) => addNote(tx, 3))
  expect(await noteIds(storage.read)).toEqual([3])
})

test('connections set their application_name', async () => {
  const storage = await open()
  const { rows } = await sql`select current_setting('application_name') as name`.execute(storage.read)
  expect(rows).toEqual([{ name: 'svc' }])
})

test('an integer beyond the exact range is an error, not a wrong number', async () => {
  const storage = await open()
  await expect(sql`select 9007199254740993::int8 as n`.execute(storage.read)).rejects.toThrow('too large')
})

test('a prepared query is planned once per connection', async () => {
  const storage = await open()
  await createNotes(storage)
  const run = async (db: Db) => {
    for (let n = 0; n < 3; n++) await noteById(db, { id: n })
    return sql<{ statement: string }>`select statement from pg_prepared_statements`.execute(db)
  }
  const { rows } = await storage.write(run)
  expect(rows).toEqual([{ statement: 'select * from "notes" where "id" = $1' }])
})

const ids = rowList<{ id: number }>({ id: 'bigint' })
const notesByIds = prepared((db, p: { ids: string }) =>
  (db as AnyDb)
    .selectFrom('notes')
    .innerJoin(ids.as(p.ids, 'asked'), 'asked.id', 'notes.id')
    .select('notes.id'),
)

function passTenSeconds(): void {
  const before = performance.now()
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => before + 10_000)
  onTestFinished(() => clock.mockRestore())
}

test('a plan for a small table is renewed when the table has grown', async () => {
  const storage = await openWithOneConnection()
  await createNotes(storage)
  const addNotes = (from: number, to: number) =>
    storage.write((tx) =>
      sql`insert into notes select n, 'note ' || n from generate_series(${from}::int, ${to}::int) as n`.execute(
        tx,
      ),
    )
  await addNotes(1, 100)
  await sql`vacuum analyze notes`.execute(storage.read)
  const hundred = ids.of(Array.from({ length: 100 }, (_, n) => ({ id: n + 1 })))
  const planAfterUse = async () => {
    // Postgres makes a custom plan for each of the first five executions.
    for (let n = 0; n < 6; n++) await notesByIds(storage.read, { ids: hundred })
    const { rows } = await sql<{ name: string }>`select name from pg_prepared_statements
      where statement like '%jsonb_array_elements%'`.execute(storage.read)
    expect(rows).toHaveLength(1)
    const plan = await sql<
      Record<string, string>
    >`explain execute ${sql.raw(rows[0]!.name)} (${sql.lit(hundred)})`
      .execute(storage.read)
      .then((explained) => explained.rows.flatMap((row) => Object.values(row)).join('\n'))
    return plan.includes('Index') ? 'by index' : 'all of it'
  }
  expect(await planAfterUse()).toBe('all of it')
  await addNotes(101, 20_000)
  expect(await planAfterUse()).toBe('all of it')
  passTenSeconds()
  expect(await planAfterUse()).toBe('by index')
})

test('renewing a plan in a failed transaction does not hide its error', async () => {
  const storage = await openWithOneConnection()
  await createNotes(storage)
  await noteById(storage.read, { id: 1 })
  const failing = storage.write(async (tx) => {
    await addNote(tx, 1)
    await addNote(tx, 1).catch(() => {})
    passTenSeconds()
    await noteById(tx, { id: 1 })
  })
  await expect(failing).rejects.toThrow('current transaction is aborted')
  expect(await noteById(storage.read, { id: 1 })).toEqual([])
})

test('a column added under a running process disturbs no query', async () => {
  const storage = await open()
  await createNotes(storage)
  await storage.write((tx) => addNote(tx, 1))
  const onAllConnections = () =>
    Promise.all(Array.from({ length: 20 }, () => noteById(storage.read, { id: 1 })))
  await onAllConnections()
  await storage.write((tx) => sql`alter table notes add column colour text`.execute(tx))
  for (const [note] of await onAllConnections()) expect(note).toEqual({ id: 1, body: 'note 1', colour: null })

  await storage.write((tx) => sql`alter table notes add column size integer`.execute(tx))
  const both = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      storage.write(async (tx) => {
        await addNote(tx, n + 2)
        return noteById(tx, { id: n + 2 })
      }),
    ),
  )
  expect(both.map(([note]) => note?.size)).toEqual(Array.from({ length: 20 }, () => null))
  expect(await noteIds(storage.read)).toHaveLength(21)
})

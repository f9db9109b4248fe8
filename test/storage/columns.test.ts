import { sql } from 'kysely'
import { expect, test } from 'vitest'
import { type AnyDb, schemaFor } from '../../src/storage/columns.ts'
import { onEveryEmptyDatabase } from '../databases.ts'

onEveryEmptyDatabase((kind, open) => {
  const appendOnlyLog = async (options?: { message?: string; deletable?: string }) => {
    const { storage } = await open()
    await storage.write(async (tx) => {
      const { db, counter, text, appendOnly } = schemaFor(tx as AnyDb, kind)
      await counter(db.schema.createTable('log'), 'id').addColumn('line', text).execute()
      await sql`create table kept (up_to integer)`.execute(db)
      await sql`insert into kept values (1)`.execute(db)
      await appendOnly('log', options)
      await sql`insert into log (line) values ('one'), ('two')`.execute(db)
    })
    return {
      run: (statement: string) => storage.write((tx) => sql.raw(statement).execute(tx)),
      lines: async () =>
        (await sql<{ line: string }>`select line from log order by id`.execute(storage.read)).rows.map(
          (row) => row.line,
        ),
    }
  }

  test('an append-only table accepts rows and refuses to change or delete them', async () => {
    const { run, lines } = await appendOnlyLog()
    for (const statement of [
      `update log set line = 'x' where id = 1`,
      `delete from log where id = 1`,
      ...(kind === 'postgres' ? ['truncate log', 'truncate log cascade'] : []),
      ...(kind === 'sqlite' ? [`insert or replace into log values (1, 'x')`] : []),
      `insert into log values (1, 'x') on conflict (id) do update set line = 'x'`,
    ].map((it) =>
      kind === 'postgres' ? it.replace('insert into log values', 'insert into log (id, line) values') : it,
    )) {
      await expect(run(statement), statement).rejects.toThrow('audit log is append-only')
    }
    expect(await lines()).toEqual(['one', 'two'])
    await run(`insert into log (line) values ('three')`)
    expect(await lines()).toEqual(['one', 'two', 'three'])
  })

  test('an append-only table can have its own message and rows that may be deleted', async () => {
    const { run, lines } = await appendOnlyLog({
      message: `nothing here is "100%" yours to change, it's kept`,
      deletable: 'exists (select 1 from kept where old.id <= kept.up_to)',
    })
    await run('delete from log where id = 1')
    expect(await lines()).toEqual(['two'])
    await expect(run('delete from log')).rejects.toThrow(`nothing here is "100%" yours to change, it's kept`)
    await expect(run(`update log set line = 'x'`)).rejects.toThrow('nothing here')
    expect(await lines()).toEqual(['two'])
  })

  test('a linked table refuses an entry that does not follow the previous one', async () => {
    const { storage } = await open()
    await storage.write(async (tx) => {
      const { db, integer, text, linked } = schemaFor(tx as AnyDb, kind)
      const table = db.schema.createTable('links').addColumn('chain', text).addColumn('seq', integer)
      await table.addColumn('checksum', text).addColumn('previous', text).execute()
      await linked('links', { chain: 'chain', seq: 'seq', checksum: 'checksum', previous: 'previous' })
    })
    const add = (...[chain, seq, checksum, previous]: [string, number, string, string]) =>
      storage.write((tx) =>
        sql`insert into links values (${chain}, ${seq}, ${checksum}, ${previous})`.execute(tx),
      )
    await add('a', 1, 'one', 'zero')
    await add('b', 1, 'uno', 'zero')
    await expect(add('a', 2, 'two', 'uno')).rejects.toThrow('does not follow the one before it')
    await add('a', 2, 'two', 'one')
    await expect(add('a', 3, 'three', 'one')).rejects.toThrow('does not follow the one before it')
    await add('a', 3, 'three', 'two')
  })

  test('every column type returns the value that was stored', async () => {
    const { storage } = await open()
    await storage.write(async (tx) => {
      const { db, counter, text, integer, bigint, real } = schemaFor(tx as AnyDb, kind)
      await counter(db.schema.createTable('samples'), 'id')
        .addColumn('words', text)
        .addColumn('flag', integer)
        .addColumn('bytes', bigint)
        .addColumn('share', real)
        .execute()
      const sample = { words: 'ü', flag: 1, bytes: Number.MAX_SAFE_INTEGER, share: 0.1 }
      await db
        .insertInto('samples')
        .values([sample, { words: null, flag: 0, bytes: 0, share: null }])
        .execute()
    })
    const { rows } = await sql`select * from samples order by id`.execute(storage.read)
    expect(rows).toEqual([
      { id: 1, words: 'ü', flag: 1, bytes: Number.MAX_SAFE_INTEGER, share: 0.1 },
      { id: 2, words: null, flag: 0, bytes: 0, share: null },
    ])
  })

  test('text is ordered by its bytes', async () => {
    const { storage } = await open()
    await storage.write(async (tx) => {
      const { db, text } = schemaFor(tx as AnyDb, kind)
      await db.schema.createTable('words').addColumn('word', text).execute()
      const words = ['b', 'B', 'a', '_', '-', 'Z', 'é', '1']
      await db
        .insertInto('words')
        .values(words.map((word) => ({ word })))
        .execute()
    })
    const { rows } = await sql<{ word: string }>`select word from words order by word`.execute(storage.read)
    expect(rows.map((row) => row.word).join('')).toBe('-1BZ_abé')
  })
})

import { expect, expectTypeOf, test } from 'vitest'
import type { Db, Storage } from '../../src/storage/open.ts'
import { type Params, prepared } from '../../src/storage/query/prepared.ts'
import type { Tables } from '../../src/storage/schema/tables.ts'
import { onEveryDatabase } from '../databases.ts'

let builds = 0

const setHead = prepared((db, p: Params<{ chain: string; seq: number; checksum: string }>) =>
  db.insertInto('audit_heads').values({ chain: p.chain, seq: p.seq, checksum: p.checksum }),
)

const findHead = prepared((db, p: Params<{ chain: string }>) => {
  builds++
  return db.selectFrom('audit_heads').selectAll().where('chain', '=', p.chain)
})

const advance = prepared((db, p: Params<{ chain: string; from: number; to: number }>) =>
  db.updateTable('audit_heads').set({ seq: p.to }).where('chain', '=', p.chain).where('seq', '=', p.from),
)

const drop = prepared((db, p: Params<{ chain: string }>) =>
  db.deleteFrom('audit_heads').where('chain', '=', p.chain).returning('seq'),
)

const page = prepared((db, p: Params<{ limit: number; offset: number }>) =>
  db.selectFrom('audit_heads').select('chain').orderBy('chain').limit(p.limit).offset(p.offset),
)

onEveryDatabase((_kind, open) => {
  const filled = async (): Promise<Storage> => {
    const { storage } = await open()
    await storage.write(async (tx) => {
      for (const [seq, chain] of ['a', 'b', 'c'].entries())
        await setHead(tx, { chain, seq, checksum: `sum ${chain}` })
    })
    return storage
  }

  test('a prepared query takes its values by name, repeatedly', async () => {
    const { read } = await filled()
    expect(await findHead(read, { chain: 'b' })).toEqual([{ chain: 'b', seq: 1, checksum: 'sum b' }])
    expect(await findHead(read, { chain: 'c' })).toEqual([{ chain: 'c', seq: 2, checksum: 'sum c' }])
    expect(await findHead(read, { chain: 'z' })).toEqual([])
    expectTypeOf(findHead).toEqualTypeOf<
      (db: Db, values: { chain: string }) => Promise<Tables['audit_heads'][]>
    >()
  })

  test('a prepared query is built once, wherever it runs', async () => {
    const storage = await filled()
    await findHead(storage.read, { chain: 'a' })
    const before = builds
    await findHead(storage.read, { chain: 'b' })
    await findHead(storage.heavy, { chain: 'b' })
    await storage.write((tx) => findHead(tx, { chain: 'b' }))
    expect(builds).toBe(before)
  })

  test('a prepared change reports what it changed, as an ordinary one does', async () => {
    const storage = await filled()
    const [moved] = await storage.write((tx) => advance(tx, { chain: 'a', from: 0, to: 9 }))
    const [missed] = await storage.write((tx) => advance(tx, { chain: 'a', from: 0, to: 9 }))
    expect([moved?.numUpdatedRows, missed?.numUpdatedRows]).toEqual([1n, 0n])
    const [added] = await storage.write((tx) => setHead(tx, { chain: 'd', seq: 3, checksum: '' }))
    expect(added?.numInsertedOrUpdatedRows).toBe(1n)
    expect(await storage.write((tx) => drop(tx, { chain: 'a' }))).toEqual([{ seq: 9 }])
  })

  test('a prepared change inside a failing write is rolled back', async () => {
    const storage = await filled()
    const failing = storage.write(async (tx) => {
      await drop(tx, { chain: 'a' })
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    expect(await findHead(storage.read, { chain: 'a' })).toHaveLength(1)
  })

  test('limit and offset can be prepared', async () => {
    const { read } = await filled()
    expect(await page(read, { limit: 1, offset: 1 })).toEqual([{ chain: 'b' }])
    expect(await page(read, { limit: 2, offset: 0 })).toEqual([{ chain: 'a' }, { chain: 'b' }])
  })

  test('a missing value is an error that names it', async () => {
    const { read } = await filled()
    await expect(findHead(read, {} as never)).rejects.toThrow('without a value for chain')
  })

  test('parallel runs of one prepared query do not mix their values', async () => {
    const { read } = await filled()
    const asked = Array.from({ length: 60 }, (_, i) => 'abc'[i % 3]!)
    const found = await Promise.all(asked.map((chain) => findHead(read, { chain })))
    expect(found.map(([head]) => head?.chain)).toEqual(asked)
  })
})

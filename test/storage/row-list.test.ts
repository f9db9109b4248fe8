import { expect, test } from 'vitest'
import { prepared } from '../../src/storage/query/prepared.ts'
import { preparedForEach } from '../../src/storage/query/prepared-for-each.ts'
import { rowList } from '../../src/storage/query/row-list.ts'
import { onEveryDatabase } from '../databases.ts'

const heads = rowList<{ chain: string; seq: number; checksum: string | null }>({
  chain: 'text',
  seq: 'bigint',
  checksum: 'text',
})

const insertion = prepared((db, p: { heads: string; begin: number }) =>
  db
    .insertInto('audit_heads')
    .columns(['chain', 'seq', 'checksum'])
    .expression((eb) =>
      eb
        .selectFrom(heads.as(p.heads, 'h'))
        .select(['h.chain', 'h.seq'])
        .select((one) => one.fn.coalesce('h.checksum', one.val('none')).as('checksum'))
        .where('h.seq', '>=', p.begin),
    ),
)

const change = prepared((db, p: { heads: string }) =>
  db
    .updateTable('audit_heads')
    .from(heads.as(p.heads, 'h'))
    .set((eb) => ({ seq: eb('audit_heads.seq', '+', eb.ref('h.seq')) }))
    .whereRef('audit_heads.chain', '=', 'h.chain')
    .returning('audit_heads.chain'),
)

onEveryDatabase((_kind, open) => {
  test('rows in one parameter: any number, any text, typed', async () => {
    const { storage } = await open()
    const unusualText = 'é "\\\' \n 漢 𝄞'
    const rows = [
      { chain: 'a', seq: 9_007_199_254_740_991, checksum: unusualText },
      { chain: unusualText, seq: 2, checksum: null },
      { chain: 'before', seq: 0, checksum: '' },
    ]
    await storage.write((tx) => insertion(tx, { heads: heads.of(rows), begin: 1 }))
    const all = () => storage.read.selectFrom('audit_heads').selectAll().orderBy('seq').execute()
    expect(await all()).toEqual([{ ...rows[1], checksum: 'none' }, rows[0]])

    await storage.write((tx) => insertion(tx, { heads: heads.of([]), begin: 1 }))
    const many = Array.from({ length: 1000 }, (_, n) => ({ chain: `${n}`, seq: n, checksum: '' }))
    await storage.write((tx) => insertion(tx, { heads: heads.of(many), begin: 990 }))
    expect(await all()).toHaveLength(12)

    const more = [
      { chain: unusualText, seq: 40, checksum: null },
      { chain: 'nobody', seq: 1, checksum: null },
    ]
    const changed = await storage.write((tx) => change(tx, { heads: heads.of(more) }))
    expect(changed).toEqual([{ chain: unusualText }])
    expect((await all()).find(({ chain }) => chain === unusualText)?.seq).toBe(42)
  })
})

const lowestOfEach = preparedForEach<{ from: number; apart: string; limit: number }, { chain: string }>(
  { from: 'bigint', apart: 'text', limit: 'bigint' },
  (db, { from, apart, limit }) =>
    db
      .selectFrom('audit_heads as a')
      .select('a.chain')
      .where('a.seq', '>=', from)
      .where('a.chain', '!=', apart)
      .orderBy('a.seq')
      .limit(limit),
)

onEveryDatabase((_kind, open) => {
  test('a query for each of several rows returns the rows of each', async () => {
    const { storage } = await open()
    const rows = Array.from({ length: 9 }, (_, n) => ({ chain: `${n}`, seq: n, checksum: '' }))
    await storage.write((tx) => insertion(tx, { heads: heads.of(rows), begin: 0 }))
    const asked = [
      { from: 7, apart: '', limit: 5 },
      { from: 2, apart: '3', limit: 2 },
      { from: 20, apart: '', limit: 5 },
    ]
    const found = (await lowestOfEach(storage.read, asked)).map(({ chain }) => chain)
    expect(found).toEqual(['7', '8', '2', '4'])
    expect(await lowestOfEach(storage.read, [])).toEqual([])
  })
})

import { expect, it } from 'vitest'
import { listTables } from '../../src/storage/backup/catalog.ts'
import { rowPages } from '../../src/storage/backup/row-pages.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { onEveryDatabase } from '../databases.ts'

onEveryDatabase((kind, open) => {
  it('pages of a table have a quarter of a megabyte, also where large rows follow small ones', async () => {
    const { storage } = await open()
    const sizes = [...Array(700).fill(10), ...Array(12).fill(1_000_000), ...Array(700).fill(10)]
    const rows = sizes.map((size, i) => ({
      token_hash: `${i}`.padStart(5, '0'),
      content: 'x'.repeat(size),
      expires_at: '2026',
    }))
    for (let at = 0; at < rows.length; at += 100) {
      await storage.write((tx) =>
        tx
          .insertInto('registrations')
          .values(rows.slice(at, at + 100))
          .execute(),
      )
    }
    const tables = await listTables(storage.read as AnyDb, kind)
    const table = tables.find(({ name }) => name === 'registrations')!
    const seen: string[] = []
    for await (const page of rowPages(storage.read, table)) {
      const bytes = page.flat().reduce<number>((sum, cell) => sum + String(cell).length, 0)
      expect(page.length === 1 || bytes <= 2 ** 18).toBe(true)
      const place = table.columns.findIndex(({ name }) => name === 'token_hash')
      seen.push(...page.map((row) => String(row[place])))
    }
    expect(seen).toEqual(rows.map(({ token_hash }) => token_hash))
  })

  it('rows that are gone once their sizes were read make no page', async () => {
    const { storage } = await open()
    const row = { token_hash: 'a', content: 'x', expires_at: '2026' }
    await storage.write((tx) => tx.insertInto('registrations').values(row).execute())
    const tables = await listTables(storage.read as AnyDb, kind)
    let asked = 0
    const meanwhile = storage.read.withPlugin({
      transformQuery: ({ node }) => node,
      async transformResult({ result }) {
        asked += 1
        if (asked === 1) await storage.write((tx) => tx.deleteFrom('registrations').execute())
        return result
      },
    })
    const pages = rowPages(meanwhile, tables.find(({ name }) => name === 'registrations')!)
    for await (const page of pages) expect(page).toEqual('none')
    expect(asked).toBe(3)
  })
})

import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { isMoved } from '../../../daemon/backup/contents.ts'
import { migrations } from '../../../migrations/index.ts'
import { listTables } from '../../../src/storage/backup/catalog.ts'
import type { AnyDb } from '../../../src/storage/columns.ts'
import { pendingMigrations } from '../../../src/storage/migrate.ts'
import type { Storage } from '../../../src/storage/open.ts'
import { openMigrated } from '../../databases.ts'
import { takesTurn } from '../../depth.ts'
import { schemaOf } from '../../laws/schema.ts'
import { holdsAny, type Rows, rowsOf } from '../../table-dump.ts'
import { emptyPlace, filledPlace, kinds, type Place, withStorage } from '../backup/filled.ts'
import { copied, placeOf, planned } from './copies.ts'

const asTexts = (rows: Rows): [string, string[]][] =>
  [...rows]
    .filter(([table]) => isMoved(table))
    .map(([table, all]): [string, string[]] => [
      table,
      all.map((row) => JSON.stringify(Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1)))).sort(),
    ])
    .sort(([a], [b]) => (a < b ? -1 : 1))

const triggersOf = async ({ dialect, read }: Storage): Promise<string[]> => {
  const { sql } = await import('kysely')
  const found =
    dialect === 'sqlite'
      ? sql<{ name: string }>`select name || sql as name from sqlite_schema where type = 'trigger' order by 1`
      : sql<{
          name: string
        }>`select tgname || tgenabled::text as name from pg_trigger where not tgisinternal order by 1`
  return (await found.execute(read)).rows.map(({ name }) => name)
}

const filesOf = async ({ dataDir }: Place, folder: string): Promise<Record<string, string>> => {
  const names = await readdir(join(dataDir, folder))
  const all = names.map(async (name) => [name, await readFile(join(dataDir, folder, name), 'utf8')] as const)
  return Object.fromEntries(await Promise.all(all))
}

describe.each(kinds.filter((kind) => takesTurn(kind, 0)))('an installation on %s', (first) => {
  it('is equal after it moved to the other database, and back', { timeout: 240_000 }, async () => {
    const other = first === 'sqlite' ? 'postgres' : 'sqlite'
    const origin = await filledPlace(first)
    const before = await withStorage(origin, rowsOf)
    expect([...before].filter(([, rows]) => rows.length === 0).map(([table]) => table)).toEqual([])

    let from: Place = origin
    let digests: object | undefined
    for (const kind of [other, first] as const) {
      const to = await emptyPlace(kind)
      const plan = await planned(from, to)
      expect(plan).toMatchObject({
        target: { state: 'empty' },
        tables: [...before.keys()].filter(isMoved).length,
      })
      expect(await readdir(to.dataDir)).toEqual([])
      const summary = await copied(from, to)
      const place = placeOf(from, to)
      expect(summary.rows).toBe(plan.rows + 1)

      const [source, target] = [await withStorage(from, rowsOf), await withStorage(place, rowsOf)]
      expect(asTexts(target)).toEqual(asTexts(source))
      // The processes that serve the source hold nothing here.
      const holds = (storage: Storage) => holdsAny(storage, ['leases', 'audit_checkpoint_claims'])
      expect(await withStorage(place, holds)).toBe(false)
      expect(
        [...target.keys()].filter((name) => name.startsWith('svc_copy') || name === 'svc_restore'),
      ).toEqual([])
      // Digests do not depend on the database: those of the second copy differ by the entry about itself alone.
      const { outbox: _, ...alike } = summary.tables
      digests ??= alike
      expect(alike).toEqual(digests)

      const fresh = await openMigrated(kind)
      await withStorage(place, async (storage) => {
        expect(await pendingMigrations(storage, migrations)).toEqual([])
        expect(await triggersOf(storage)).toEqual(await triggersOf(fresh.storage))
        expect(await schemaOf(storage)).toEqual(await schemaOf(fresh.storage))
        expect(await listTables(storage.read as AnyDb, kind)).toEqual(
          await listTables(fresh.storage.read as AnyDb, kind),
        )
        const last = target
          .get('outbox')!
          .map(({ id }) => Number(id))
          .sort((a, b) => b - a)[0]!
        const added = await storage.write((tx) =>
          tx
            .insertInto('outbox')
            .values({ chain: 'x', entry: '{}' })
            .returning('id')
            .executeTakeFirstOrThrow(),
        )
        expect(Number(added.id)).toBe(last + 1)
        await storage.write((tx) => tx.deleteFrom('outbox').where('id', '=', added.id).execute())
      })
      for (const folder of ['checkpoints', 'outbox'])
        expect(await filesOf(place, folder)).toEqual(await filesOf(origin, folder))
      await expect(
        withStorage(from, (storage) => storage.write((tx) => tx.deleteFrom('probes').execute())),
      ).rejects.toThrow(`This database was moved to `)
      from = place
    }
    if (first === 'sqlite')
      expect((await stat(join(from.dataDir, 'outbox', 'mail.json'))).mode & 0o777).toBe(0o600)
  })
})

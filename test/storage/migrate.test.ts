import { createHash } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import { type Migration, migrate, migrationStatus, pendingMigrations } from '../../src/storage/migrate.ts'
import { breakMigrationLock } from '../../src/storage/migration-lock.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { onEveryDatabase, onEveryEmptyDatabase, temporaryFolder } from '../databases.ts'

const now = () => '2026-01-02T03:04:05.678Z'

/** Two migrations with their sources in a folder that a test may change. */
async function twoMigrations() {
  const path = await temporaryFolder()
  const folder = pathToFileURL(`${path}/`)
  const write = (name: string, text: string) => writeFile(join(path, `${name}.ts`), text)
  await write('0001_one', '// one')
  await write('0002_two', '// two')
  const creating = (table: string): NonNullable<Migration['up']> => {
    return async ({ db, text }) => {
      await db.schema.createTable(table).addColumn('id', text).execute()
    }
  }
  const list: Migration[] = [
    { name: '0001_one', up: creating('one') },
    { name: '0002_two', up: creating('two') },
  ]
  return { list, options: { folder, now }, write }
}

const ledger = async ({ read }: Storage) =>
  (await sql`select * from svc_migrations order by name`.execute(read)).rows

onEveryEmptyDatabase((_kind, open) => {
  test('migrations are applied in order, once, and recorded', async () => {
    const { storage } = await open()
    const { list, options } = await twoMigrations()
    expect(await pendingMigrations(storage, list, options)).toEqual(['0001_one', '0002_two'])
    expect(await migrate(storage, list.slice(0, 1), options)).toEqual(['0001_one'])
    expect(await pendingMigrations(storage, list, options)).toEqual(['0002_two'])
    expect(await migrate(storage, list, options)).toEqual(['0002_two'])
    expect(await migrate(storage, list, options)).toEqual([])
    expect(await pendingMigrations(storage, list, options)).toEqual([])
    expect(await ledger(storage)).toEqual([
      { name: '0001_one', checksum: createHash('sha256').update('// one').digest('hex'), applied_at: now() },
      { name: '0002_two', checksum: createHash('sha256').update('// two').digest('hex'), applied_at: now() },
    ])
    expect(await migrationStatus(storage, list, options)).toEqual([
      { name: '0001_one', state: 'applied', appliedAt: now() },
      { name: '0002_two', state: 'applied', appliedAt: now() },
    ])
  })

  test('a migration that changed after it was applied stops the migration and is named', async () => {
    const { storage } = await open()
    const { list, options, write } = await twoMigrations()
    await migrate(storage, list.slice(0, 1), options)
    await write('0001_one', '// one, improved')
    await expect(migrate(storage, list, options)).rejects.toThrow(
      'Migration checksum mismatch for 0001_one. The file changed after being applied. Add a new migration instead.',
    )
    expect(await migrationStatus(storage, list, options)).toMatchObject([
      { name: '0001_one', state: 'changed' },
      { name: '0002_two', state: 'pending' },
    ])
  })

  test('a failed migration leaves nothing behind and can be tried again', async () => {
    const { storage } = await open()
    const { list, options } = await twoMigrations()
    const [one, two] = list as [Migration, Migration]
    const failing: Migration = {
      name: two.name,
      up: async (schema) => {
        await two.up!(schema)
        throw new Error('half-way')
      },
    }
    await expect(migrate(storage, [one, failing], options)).rejects.toThrow('half-way')
    expect(await pendingMigrations(storage, list, options)).toEqual(['0002_two'])
    expect(await migrate(storage, list, options)).toEqual(['0002_two'])
  })

  test('migrations of a newer version, and tables of other programs, are left alone', async () => {
    const { storage } = await open()
    const { list, options } = await twoMigrations()
    await storage.write((tx) => sql`create table somebody_elses (id integer)`.execute(tx))
    await migrate(storage, list, options)
    expect(await migrate(storage, list.slice(0, 1), options)).toEqual([])
    expect(await migrationStatus(storage, list.slice(0, 1), options)).toHaveLength(1)
    expect((await sql`select * from somebody_elses`.execute(storage.read)).rows).toEqual([])
  })

  test('servers that start together apply each migration once', async () => {
    const { storage, dataDir, databaseUrl } = await open()
    const { list, options } = await twoMigrations()
    const others = await Promise.all([1, 2].map(() => openStorage({ dataDir, databaseUrl })))
    const applied = await Promise.all([storage, ...others].map((it) => migrate(it, list, options)))
    expect(applied.flat().sort()).toEqual(['0001_one', '0002_two'])
    await Promise.all(others.map((it) => it.close()))
  })
})

onEveryEmptyDatabase((kind, open) => {
  test('where no migration hangs there is none to break off', async () => {
    const { storage } = await open()
    expect(await breakMigrationLock(storage)).toBe(0)
  })

  // The lock of SQLite is that of its file, which ends with the process.
  test.runIf(kind === 'postgres')('a hung migration can be broken off', async () => {
    const { storage, dataDir, databaseUrl } = await open()
    const { list, options } = await twoMigrations()
    const hung = await openStorage({ dataDir, databaseUrl })
    const started = Promise.withResolvers<void>()
    const hanging: Migration = {
      name: '0001_one',
      up: async ({ db }) => {
        started.resolve()
        await sql`select pg_sleep(60)`.execute(db)
      },
    }
    const failing = expect(migrate(hung, [hanging], options)).rejects.toThrow()
    await started.promise
    const waiting = migrate(storage, list, options)
    expect(await breakMigrationLock(storage)).toBe(1)
    await failing
    expect(await waiting).toEqual(['0001_one', '0002_two'])
    await hung.close()
  })
})

onEveryDatabase((_kind, open) => {
  test('all migrations of the product are applied', async () => {
    const { storage } = await open()
    expect(await pendingMigrations(storage, migrations)).toEqual([])
    expect(await migrate(storage, migrations)).toEqual([])
  })
})

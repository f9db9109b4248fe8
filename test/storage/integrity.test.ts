import { readFileSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { constants, getPriority } from 'node:os'
import { join } from 'node:path'
import { sql } from 'kysely'
import { describe, expect, it, onTestFinished } from 'vitest'
import { newId } from '../../src/core/new-id.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import { checkSqliteIntegrity } from '../../src/storage/sqlite/integrity-check.ts'
import { damaged, damageSqlite } from '../daemon/damage.ts'
import { onEveryDatabase, openMigrated, type TestDatabase, temporaryFolder } from '../databases.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { heldCheck } from './integrity-process.ts'

const never = new AbortController().signal

async function opened(place: { dataDir: string; databaseUrl?: string }): Promise<Storage> {
  const storage = await openStorage(place)
  onTestFinished(() => storage.close())
  return storage
}

onEveryDatabase((kind, open) => {
  it('an integrity check finds a sound database sound', async () => {
    const { storage } = await open()
    expect(await storage.checkIntegrity(never)).toEqual({ verdict: 'sound' })
  })

  it('an integrity check finds each table with a damaged page', async () => {
    const database = await open()
    await database.storage.close()
    const tables = ['probes', 'svc_migrations']
    const storage = await opened(await damaged(kind, database, tables))
    if (kind === 'postgres') {
      // Postgres notices only when a client or a backup reads the pages.
      expect(await storage.checkIntegrity(never)).toEqual({ verdict: 'sound' })
      for (const table of tables)
        await expect(sql`select * from ${sql.table(table)}`.execute(storage.read)).rejects.toThrow(
          /invalid page/,
        )
    }
    expect(await storage.checkIntegrity(never)).toEqual({
      verdict: 'damaged',
      found: {
        postgres: [expect.stringMatching(/^checksum failures: 2, the last at 20/)],
        sqlite: [expect.stringMatching(/^probes: /), expect.stringMatching(/^svc_migrations: /)],
      }[kind],
    })
  })
})

it('without data checksums Postgres gives no verdict', async () => {
  const { databaseUrl } = await OwnPostgres.begin({ checksums: false })
  const storage = await opened({ dataDir: await temporaryFolder(), databaseUrl })
  expect(await storage.checkIntegrity(never)).toEqual({
    verdict: 'unknown',
    reason: 'data checksums are off',
  })
})

describe('an integrity check on sqlite', () => {
  async function open(): Promise<TestDatabase> {
    const database = await openMigrated('sqlite')
    onTestFinished(database.close)
    return database
  }

  const addRows = (storage: Storage, count: number) =>
    storage.write(async (tx) => {
      for (let n = 0; n < count; n += 1) await tx.insertInto('set_aside').values(rowOf(n)).execute()
    })
  const rowOf = (n: number) => ({
    source: 'events',
    entry: `${n} `.padEnd(2000, 'x'),
    reason: 'x',
    created_at: newId(),
  })

  it.each(['a table in the middle of the file', 'an index', 'the pages that nobody uses'])(
    'reads %s',
    async (what) => {
      const { dataDir, storage } = await open()
      await addRows(storage, 2000)
      if (what.startsWith('the pages')) await storage.write((tx) => tx.deleteFrom('set_aside').execute())
      await storage.close()
      await damageSqlite(dataDir, (database) => {
        const one = (query: string) => database.prepare<[], number>(query).pluck().get()!
        if (what === 'an index') return [one(`select max(rootpage) from sqlite_schema where type = 'index'`)]
        if (what.startsWith('the pages')) return [headOfFreePages(database)]
        return [Math.floor(one('pragma page_count') / 2)]
      })
      const { verdict } = await (await opened({ dataDir })).checkIntegrity(never)
      expect(verdict).toBe('damaged')
    },
  )

  it('runs in a process of the lowest priority, while reads and writes continue', async () => {
    const { dataDir, storage } = await open()
    const check = storage.checkIntegrity(never)
    const held = await heldCheck(dataDir)
    expect(getPriority(held.pid)).toBe(constants.priority.PRIORITY_LOW)
    await addRows(storage, 20)
    await storage.check()
    process.kill(held.pid, 'SIGCONT')
    expect(await check).toEqual({ verdict: 'sound' })
    await held.gone()
  })

  it('is ended by its abort signal, and when the storage closes', async () => {
    const { dataDir, storage } = await open()
    const late = storage.checkIntegrity(AbortSignal.timeout(3000))
    const caught = late.catch((error: unknown) => error)
    const first = await heldCheck(dataDir)
    expect(await caught).toMatchObject({ name: 'TimeoutError' })
    await first.gone()
    const closed = storage.checkIntegrity(never).catch((error: unknown) => error)
    const second = await heldCheck(dataDir)
    await storage.close()
    expect(await closed).toMatchObject({ message: 'The storage is closed' })
    await second.gone()
    await expect(storage.checkIntegrity(never)).rejects.toThrow('The storage is closed')
  })

  it('that is killed, or cannot open the file, has no verdict', async () => {
    const { dataDir, storage } = await open()
    const killed = storage.checkIntegrity(never).catch((error: unknown) => error)
    const { pid } = await heldCheck(dataDir)
    process.kill(pid, 'SIGKILL')
    expect(await killed).toMatchObject({
      message: expect.stringContaining('ended without an answer (SIGKILL)'),
    })
    const file = join(dataDir, 'svc.sqlite')
    await rename(file, `${file}.away`)
    await expect(storage.checkIntegrity(never)).rejects.toMatchObject({ code: 'SQLITE_CANTOPEN' })
    await rename(`${file}.away`, file)
    expect(await storage.checkIntegrity(never)).toEqual({ verdict: 'sound' })
  })

  it('stops before the write-ahead log grows without bound', async () => {
    const { dataDir, storage } = await open()
    const check = checkSqliteIntegrity(join(dataDir, 'svc.sqlite'), never, 2 ** 20)
    const caught = check.catch((error: unknown) => error)
    const held = await heldCheck(dataDir)
    await addRows(storage, 2000)
    expect(await caught).toMatchObject({ message: expect.stringContaining('write-ahead log grew') })
    await held.gone()
  })
})

/** The first page of the free list, as the header of the file states (SQLite, file format). */
function headOfFreePages(database: import('better-sqlite3').Database): number {
  expect(database.pragma('freelist_count', { simple: true })).toBeGreaterThan(100)
  return readFileSync(database.name).readUInt32BE(32)
}

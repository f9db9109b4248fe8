import { fork } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import { chmod, mkdir, stat, writeFile } from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import Database from 'better-sqlite3'
import { CompiledQuery, sql } from 'kysely'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { SetupError } from '../../src/core/errors.ts'
import { beforeCommit } from '../../src/storage/before-commit.ts'
import { classifyDatabaseError } from '../../src/storage/database-errors.ts'
import { lockDirectory } from '../../src/storage/directory-lock.ts'
import { type Db, openStorage, type Storage } from '../../src/storage/open.ts'
import { SqliteConnection } from '../../src/storage/sqlite/connection.ts'
import { lockForCopy } from '../../src/storage/sqlite/copy-lock.ts'
import { openReader, openWriter, sqliteFile } from '../../src/storage/sqlite/file.ts'
import { GroupCommit } from '../../src/storage/sqlite/group-commit.ts'
import { kyselyOver } from '../../src/storage/sqlite/kysely.ts'
import { ReaderPool } from '../../src/storage/sqlite/reader-pool.ts'
import { StatementCache } from '../../src/storage/sqlite/statement-cache.ts'
import { WalSync } from '../../src/storage/sqlite/wal-sync.ts'
import { temporaryFolder } from '../databases.ts'
import { addNote, createNotes, createProbes, noteIds } from './notes.ts'

async function open(dataDir?: string): Promise<Storage> {
  const storage = await openStorage({ dataDir: dataDir ?? (await temporaryFolder()) })
  onTestFinished(() => storage.close())
  return storage
}

test.each([
  ['svc.lock', lockDirectory],
  ['svc.copy', lockForCopy],
])('%s is for its user alone, also one of a former release', async (name, lock) => {
  const dataDir = await temporaryFolder()
  const modeOf = async () => ((await stat(join(dataDir, name))).mode & 0o777).toString(8)
  const unlock = lock(dataDir)
  expect(await modeOf()).toBe('600')
  expect(() => lock(dataDir)).toThrow(SetupError)
  // The refused attempt has not released it.
  expect(() => lock(dataDir)).toThrow(SetupError)
  unlock()
  await writeFile(join(dataDir, name), '')
  await chmod(join(dataDir, name), 0o644)
  lock(dataDir)
  expect(await modeOf()).toBe('600')
})

/** The niceness of each thread of this process: field 19 of its status (proc_pid_stat(5)). */
const threads = (): Map<string, number> =>
  new Map(
    fs.readdirSync('/proc/self/task').flatMap((id): [string, number][] => {
      try {
        const afterName = fs.readFileSync(`/proc/self/task/${id}/stat`, 'utf8').split(') ')[1]!
        return [[id, Number(afterName.split(' ')[16])]]
      } catch {
        // It has ended.
        return []
      }
    }),
  )

/** A log that never needs a copy and is always on disk. */
const idleLog = { ready: () => undefined, sync: async () => {}, committed: () => {}, settled: () => {} }

/** A group commit of notes whose log behaves like this. */
async function groupCommit(
  log: Partial<ConstructorParameters<typeof GroupCommit>[1]> = {},
  limits: ConstructorParameters<typeof GroupCommit>[2] = {},
) {
  const connection = new SqliteConnection(openWriter(sqliteFile(await temporaryFolder())))
  onTestFinished(() => void connection.database.close())
  connection.database.exec('create table notes (id integer primary key, body text)')
  return { connection, queue: new GroupCommit(connection, { ...idleLog, ...log }, limits) }
}

/** Concurrent writes form one batch, however slow the machine is. */
const oneBatch = { milliseconds: 10_000 }

/** Counts for one or two seconds. */
const slowQuery = sql<{ n: number }>`
  with recursive counter(n) as (select 1 union all select n + 1 from counter where n < 4000000)
  select count(*) as n from counter`

describe('durability', () => {
  test.each(['alone', 'together'])('a resolved write survives kill -9, written %s', async (how) => {
    const dataDir = await temporaryFolder()
    const child = fork(fileURLToPath(new URL('./writer-process.ts', import.meta.url)), [dataDir, how], {
      execArgv: [],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    const promised: number[] = []
    child.on('message', (id: number) => promised.push(id))
    const exited = once(child, 'exit')
    while (promised.length < 500 && child.exitCode === null) await sleep(5)
    child.kill('SIGKILL')
    await exited
    const kept = new Set(await noteIds((await open(dataDir)).read))
    expect(promised.length).toBeGreaterThanOrEqual(500)
    expect(promised.filter((id) => !kept.has(id))).toEqual([])
  })

  test('one commit serves many writes', async () => {
    let commits = 0
    const { queue } = await groupCommit({ committed: () => commits++ }, { milliseconds: 1000 })
    await Promise.all(Array.from({ length: 128 }, (_, id) => queue.write((tx) => addNote(tx, id), false)))
    expect(commits).toBe(1)
  })

  test('when the commit fails, only the write at fault fails', async () => {
    const connection = new SqliteConnection(openWriter(sqliteFile(await temporaryFolder())))
    onTestFinished(() => void connection.database.close())
    connection.database.exec(`create table notes (
      id integer primary key, body text, of integer references notes (id) deferrable initially deferred)`)
    const queue = new GroupCommit(connection, idleLog)
    const orphan = queue.write((tx) => sql`insert into notes (id, of) values (1, 99)`.execute(tx), false)
    const companion = queue.write((tx) => addNote(tx, 2), false)
    await expect(orphan).rejects.toThrow('FOREIGN KEY')
    await companion
    await queue.write((tx) => addNote(tx, 3), false)
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 2 }, { id: 3 }])
  })

  test('when SQLite rolls the transaction back, no write of the batch succeeds', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const [before, breaker, after] = await Promise.allSettled([
      queue.write((tx) => addNote(tx, 1), false),
      queue.write((tx) => sql`insert or rollback into notes (id) values (1)`.execute(tx), false),
      queue.write((tx) => addNote(tx, 3), false),
    ])
    expect([before.status, breaker.status, after.status]).toEqual(['rejected', 'rejected', 'fulfilled'])
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 3 }])
  })

  test('when SQLite rolls the transaction back, later statements of that write stay out', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const insertAfterRollback = async (tx: Db, id: number) => {
      await sql`insert or rollback into notes (id) values (1)`.execute(tx).catch(() => undefined)
      await addNote(tx, id)
    }
    const outcomes = await Promise.allSettled([
      queue.write((tx) => addNote(tx, 1), false),
      queue.write((tx) => insertAfterRollback(tx, 2), false),
      queue.write((tx) => addNote(tx, 3), false),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'fulfilled'])
    const atTheEnd = queue.write(async (tx) => {
      await addNote(tx, 1)
      beforeCommit(tx, (end) => insertAfterRollback(end, 4), undefined)
    }, false)
    await expect(atTheEnd).rejects.toThrow('UNIQUE')
    await queue.write((tx) => addNote(tx, 5), false)
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 3 }, { id: 5 }])
  })

  test('a failed write of a batch leaves nothing behind, and the others are committed', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const outcomes = await Promise.allSettled([
      queue.write(async (tx) => {
        await addNote(tx, 1)
        throw new Error('no 1')
      }, false),
      queue.write((tx) => addNote(tx, 2), false),
      queue.write(async (tx) => {
        await addNote(tx, 3)
        throw new Error('no 3')
      }, true),
      queue.write((tx) => addNote(tx, 4), true),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected', 'fulfilled'])
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 2 }, { id: 4 }])
  })

  test('a write runs again only when a later one of its batch failed after a change', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const runs = [0, 0, 0, 0, 0, 0]
    const write = (id: number, work: (tx: Db) => Promise<unknown>) =>
      queue.write((tx) => {
        runs[id]!++
        return work(tx)
      }, false)
    const refuse = async () => {
      throw new Error('no')
    }
    const outcomes = await Promise.allSettled([
      write(0, (tx) => addNote(tx, 10)),
      write(1, refuse),
      write(2, (tx) => sql`delete from notes where id = 99`.execute(tx).then(() => runs[2]!)),
      write(3, (tx) => addNote(tx, 13).then(refuse)),
      write(4, refuse),
      write(5, (tx) => addNote(tx, 15).then(refuse)),
      write(5, (tx) => addNote(tx, 16)),
    ])
    expect(runs).toEqual([2, 1, 2, 1, 1, 2])
    const [added, refused, counted, ...others] = outcomes
    expect([added, refused].map((it) => it!.status)).toEqual(['fulfilled', 'rejected'])
    expect(counted).toEqual({ status: 'fulfilled', value: 2 })
    expect(others.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected', 'fulfilled'])
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 10 }, { id: 16 }])
  })

  test('tables that a failed write created are gone as well', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const outcomes = await Promise.allSettled([
      queue.write((tx) => addNote(tx, 1), false),
      queue.write(async (tx) => {
        await sql`create table others (id integer)`.execute(tx)
        throw new Error('no')
      }, false),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
    expect(connection.run(`select name from sqlite_schema where name = 'others'`, []).rows).toEqual([])
  })

  test('the beforeCommit work of a batch runs once, for the writes that succeed', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const finished: (readonly number[])[] = []
    const finish = async (tx: Db, left: readonly number[]) => {
      finished.push(left)
      for (const id of left) await addNote(tx, id)
    }
    const writeWithWork = (id: number, fails = false) =>
      queue.write(async (tx) => {
        expect(beforeCommit(tx, finish, id)).toBe(true)
        if (fails) throw new Error(`no ${id}`)
      }, false)
    const outcomes = await Promise.allSettled([
      writeWithWork(1, true),
      writeWithWork(2),
      writeWithWork(3, true),
      writeWithWork(4),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected', 'fulfilled'])
    expect(finished).toEqual([[2, 4]])
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 2 }, { id: 4 }])
  })

  test('an ended write can add no beforeCommit work to its batch', async () => {
    const { queue } = await groupCommit({}, oneBatch)
    const left: unknown[] = []
    const finish = async (_: Db, all: readonly unknown[]) => void left.push(...all)
    let leaked: Db | undefined
    const first = queue.write(async (tx) => {
      leaked = tx
    }, false)
    const second = queue.write(async (tx) => {
      expect(beforeCommit(leaked!, finish, 1)).toBe(false)
      expect(beforeCommit(tx, finish, 2)).toBe(true)
    }, false)
    await Promise.all([first, second])
    expect(left).toEqual([2])
  })

  test('when beforeCommit work fails, only the writes that added it fail', async () => {
    const { queue, connection } = await groupCommit({}, oneBatch)
    const finish = async (tx: Db) => {
      // The work itself can add no more.
      expect(beforeCommit(tx, finish, 0)).toBe(false)
      throw new Error('cannot be done')
    }
    const writeWithWork = queue.write(async (tx) => void beforeCommit(tx, finish, 1), false)
    const other = queue.write((tx) => addNote(tx, 2), false)
    await expect(writeWithWork).rejects.toThrow('cannot be done')
    await other
    await queue.write((tx) => addNote(tx, 3), false)
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 2 }, { id: 3 }])
  })

  test('a write that waits for something else is given up, and the others continue', async () => {
    const { queue, connection } = await groupCommit({}, { patience: 50 })
    const stuck = queue.write(async (tx) => {
      await addNote(tx, 1)
      await new Promise(() => undefined)
    }, false)
    const next = queue.write((tx) => addNote(tx, 2), false)
    await expect(stuck).rejects.toThrow('A write was given up')
    await next
    expect(connection.run('select id from notes', []).rows).toEqual([{ id: 2 }])
  })

  test('a write resolves once it is on disk; an unsynced one does not wait', async () => {
    const log = {
      sync: () =>
        new Promise((resolve) => setTimeout(resolve, 20)).then(() => void events.push('on the disk')),
      committed: (touched: ReadonlySet<string>) => void events.push(`committed ${[...touched]}`),
      settled: (touched?: ReadonlySet<string>) => void events.push(`settled ${[...(touched ?? ['no'])]}`),
    }
    const { queue, connection } = await groupCommit(log, oneBatch)
    const events: string[] = []
    const write = (id: number, unsynced: boolean) =>
      queue.write((tx) => addNote(tx, id), unsynced).then(() => events.push(`written ${id}`))
    await Promise.all([write(1, true), write(2, false), write(3, true)])
    const synced = ['on the disk', 'settled notes', 'written 2']
    expect(events).toEqual(['committed notes', 'written 1', 'written 3', ...synced])
    await write(4, true)
    expect(events.slice(6)).toEqual(['committed notes', 'settled no', 'written 4'])
    expect(connection.run('select id from notes', []).rows).toHaveLength(4)
  })

  test('the event loop is not blocked while the disk is slow', async () => {
    const { queue } = await groupCommit({ sync: () => sleep(300) })
    const written = queue.write((tx) => addNote(tx, 1), false)
    let ticks = 0
    const timer = setInterval(() => ticks++, 5)
    await written
    clearInterval(timer)
    expect(ticks).toBeGreaterThan(10)
  })

  /** A disk whose syncs the test resolves, oldest first. */
  function slowDisk() {
    const asked: PromiseWithResolvers<void>[] = []
    const sync = () => {
      const answer = Promise.withResolvers<void>()
      asked.push(answer)
      return answer.promise
    }
    return { asked, sync }
  }

  test('writes during a sync are batched, and resolve after the next sync', async () => {
    const { asked, sync } = slowDisk()
    const { queue, connection } = await groupCommit({ sync }, oneBatch)
    const written: number[] = []
    const write = (id: number) => queue.write((tx) => addNote(tx, id), false).then(() => written.push(id))
    const count = () => connection.run('select id from notes', []).rows.length
    const all = [write(1), write(2)]
    await vi.waitUntil(() => asked.length === 1)
    all.push(write(3))
    await sleep(20)
    expect(count()).toBe(2)
    all.push(write(4))
    await vi.waitUntil(() => count() === 4)
    all.push(write(5), write(6))
    await sleep(20)
    expect([count(), asked.length, written]).toEqual([4, 1, []])
    asked[0]!.resolve()
    await vi.waitUntil(() => asked.length === 2)
    expect(written).toEqual([1, 2])
    asked[1]!.resolve()
    await vi.waitUntil(() => asked.length === 3)
    expect(written).toEqual([1, 2, 3, 4])
    asked[2]!.resolve()
    await Promise.all(all)
    expect(count()).toBe(6)
  })

  test('a write during a failed sync does not succeed either', async () => {
    const file = join(await temporaryFolder(), 'svc.sqlite')
    const disk = new WalSync(file)
    await expect(disk.sync()).rejects.toThrow('The disk failed to store')
    await writeFile(`${file}-wal`, '')
    await expect(disk.sync()).rejects.toThrow('The disk failed to store')
  })

  test('after a failed sync nothing is written, and the service is not ready', async () => {
    const dataDir = await temporaryFolder()
    const before = await open(dataDir)
    await createProbes(before)
    await before.close()
    const storage = await open(dataDir)
    await storage.check()
    const { openSync } = fs
    fs.openSync = (path, ...rest) => {
      if (String(path).endsWith('-wal')) throw Object.assign(new Error('EIO: i/o error'), { code: 'EIO' })
      return openSync(path, ...rest)
    }
    syncBuiltinESMExports()
    onTestFinished(() => {
      fs.openSync = openSync
      syncBuiltinESMExports()
    })
    await expect(createNotes(storage)).rejects.toThrow('The disk failed to store')
    await expect(storage.write((tx) => addNote(tx, 1))).rejects.toThrow('The disk failed to store')
    await expect(storage.check()).rejects.toThrow('The disk failed to store')
    expect(classifyDatabaseError(await storage.check().catch((error: unknown) => error))).toBe('failing disk')
    expect(await noteIds(storage.read)).toEqual([])
  })
})

describe('heavy reads', () => {
  test('a slow query does not block the event loop', async () => {
    const storage = await open()
    await sql`select 1`.execute(storage.heavy)
    let ticks = 0
    let longest = 0
    let last = performance.now()
    const timer = setInterval(() => {
      const now = performance.now()
      longest = Math.max(longest, now - last)
      last = now
      ticks++
    }, 5)
    const begun = last
    const { rows } = await slowQuery.execute(storage.heavy)
    const took = performance.now() - begun
    clearInterval(timer)
    expect(rows).toEqual([{ n: 4_000_000 }])
    expect(ticks).toBeGreaterThan(10)
    // Of the loop's own thread it would be all of it; a busy machine holds any thread for a while.
    expect(longest).toBeLessThan(took / 2)
  })

  test('a second heavy read does not wait for the first', async () => {
    const storage = await open()
    const finished: string[] = []
    await Promise.all([
      slowQuery.execute(storage.heavy).then(() => finished.push('slow')),
      sql`select 1`.execute(storage.heavy).then(() => finished.push('quick')),
    ])
    expect(finished).toEqual(['quick', 'slow'])
  })

  test('errors keep their code', async () => {
    const storage = await open()
    const failing = sql`select * from nowhere`.execute(storage.heavy)
    await expect(failing).rejects.toMatchObject({ code: 'SQLITE_ERROR', message: 'no such table: nowhere' })
    await expect(failing).rejects.toBeInstanceOf(Error)
  })

  test('a value that cannot be sent to a thread is refused', async () => {
    const storage = await open()
    await expect(sql`select ${Symbol('x')} as x`.execute(storage.heavy)).rejects.toThrow()
    expect((await sql`select 1 as x`.execute(storage.heavy)).rows).toEqual([{ x: 1 }])
  })

  test('a file that another process does not let go of is refused with what to do', async () => {
    const file = sqliteFile(await temporaryFolder())
    const other = openWriter(file)
    onTestFinished(() => void other.close())
    other.exec('begin immediate')
    expect(() => openReader(file).close()).not.toThrow()
    expect(() => openWriter(file)).toThrow(/^Another svc serve, .* end its process if it hangs\.$/)
  })

  test('a dead thread is replaced', async () => {
    const file = sqliteFile(await temporaryFolder())
    const readers = new ReaderPool(file, 1)
    onTestFinished(() => readers.close())
    const ask = () => kyselyOver(readers).executeQuery(CompiledQuery.raw('select 1 as x'))
    await expect(ask()).rejects.toThrow('Cannot open the database file')
    openWriter(file).close()
    expect((await ask()).rows).toEqual([{ x: 1 }])
  })

  test.runIf(process.platform === 'linux')('their threads let the main thread go first', async () => {
    const file = sqliteFile(await temporaryFolder())
    openWriter(file).close()
    const readers = new ReaderPool(file, 2)
    onTestFinished(() => readers.close())
    const others = threads()
    const ask = () => kyselyOver(readers).executeQuery(CompiledQuery.raw('select 1 as x'))
    await Promise.all([ask(), ask()])
    const nice = [...threads()].filter(([id, niceness]) => !others.has(id) && niceness === getPriority() + 5)
    expect(nice).toHaveLength(2)
  })

  test('reading connections cannot write', async () => {
    const storage = await open()
    await createNotes(storage)
    for (const db of [storage.read, storage.heavy]) {
      await expect(addNote(db, 1)).rejects.toMatchObject({ code: 'SQLITE_READONLY' })
    }
  })

  test('close waits for a running heavy read', async () => {
    const storage = await open()
    await createNotes(storage)
    const reading = noteIds(storage.heavy)
    await storage.close()
    expect(await reading).toEqual([])
    await expect(noteIds(storage.heavy)).rejects.toThrow('closed')
  })
})

describe('the database file', () => {
  test('only its owner can read it', async () => {
    const dataDir = join(await temporaryFolder(), 'new', 'data')
    const storage = await open(dataDir)
    await createNotes(storage)
    const mode = async (path: string) => ((await stat(path)).mode & 0o777).toString(8)
    expect(await mode(dataDir)).toBe('700')
    for (const suffix of ['', '-wal', '-shm']) {
      expect(await mode(`${sqliteFile(dataDir)}${suffix}`)).toBe('600')
    }
  })

  test('a file that others could read becomes private', async () => {
    const dataDir = await temporaryFolder()
    await writeFile(sqliteFile(dataDir), '')
    await chmod(sqliteFile(dataDir), 0o644)
    await open(dataDir)
    expect((await stat(sqliteFile(dataDir))).mode & 0o777).toBe(0o600)
  })

  test('a file that is not a database is named', async () => {
    const dataDir = await temporaryFolder()
    await writeFile(sqliteFile(dataDir), 'This is not a database. '.repeat(500))
    await expect(openStorage({ dataDir })).rejects.toThrow(
      `The database file ${sqliteFile(dataDir)} is damaged or is not a SQLite database (SQLITE_NOTADB)`,
    )
  })

  test('a damaged database is named', async () => {
    const dataDir = await temporaryFolder()
    const storage = await openStorage({ dataDir })
    await createNotes(storage)
    await storage.close()
    const database = new Database(sqliteFile(dataDir))
    database.unsafeMode(true)
    database.pragma('writable_schema = on')
    database.prepare(`update sqlite_schema set sql = 'create nonsense' where name = 'notes'`).run()
    database.close()
    await expect(openStorage({ dataDir })).rejects.toThrow(/svc\.sqlite is damaged.*SQLITE_CORRUPT/)
  })

  test('a path that cannot be opened is named', async () => {
    const dataDir = await temporaryFolder()
    await mkdir(sqliteFile(dataDir))
    await expect(openStorage({ dataDir })).rejects.toThrow('svc.sqlite')
  })
})

test('a statement in use is prepared once, an unused one is dropped', () => {
  const database = new Database(':memory:')
  onTestFinished(() => void database.close())
  const statements = new StatementCache(database, 2)
  const kept = statements.get('select 1')
  const dropped = statements.get('select 2')
  for (const n of [3, 4, 5, 6]) {
    statements.get(`select ${n}`)
    expect(statements.get('select 1')).toBe(kept)
  }
  expect(statements.get('select 2')).not.toBe(dropped)
})

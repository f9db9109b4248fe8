import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import type { Db } from '../../src/storage/open.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { addNote, createNotes, createProbes, noteIds } from './notes.ts'

const ids = (count: number) => Array.from({ length: count }, (_, i) => i + 1)

onEveryEmptyDatabase((kind, open) => {
  test('a failed write leaves the other writes of its batch committed', async () => {
    const { storage } = await open()
    await createNotes(storage)
    const outcomes = await Promise.allSettled(
      ids(40).map((id) =>
        storage.write(async (tx) => {
          await addNote(tx, id)
          if (id % 4 === 0) throw new Error(`no ${id}`)
          return id
        }),
      ),
    )
    expect(outcomes.map((it) => it.status === 'fulfilled')).toEqual(ids(40).map((id) => id % 4 !== 0))
    expect(outcomes[3]).toMatchObject({ reason: { message: 'no 4' } })
    expect(await noteIds(storage.read)).toEqual(ids(40).filter((id) => id % 4 !== 0))
  })

  test('a write whose statement is refused rolls back alone', async () => {
    const { storage } = await open()
    await createNotes(storage)
    const twice = (id: number, body: string) => storage.write((tx) => addNote(tx, id, body))
    const [first, second, third] = await Promise.allSettled([twice(1, 'a'), twice(2, 'a'), twice(3, 'b')])
    const failures = [first, second].filter((it) => it?.status === 'rejected')
    expect(failures).toHaveLength(1)
    expect(third?.status).toBe('fulfilled')
    expect(await noteIds(storage.read)).toHaveLength(2)
  })

  test('a read never sees uncommitted rows', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let seen: number[] | undefined
    await storage.write(async (tx) => {
      await addNote(tx, 1)
      seen = await noteIds(storage.read)
      expect(await noteIds(tx)).toEqual([1])
    })
    expect(seen).toEqual([])
    expect(await noteIds(storage.read)).toEqual([1])
  })

  test('a resolved write is visible to plain and heavy reads', async () => {
    const { storage } = await open()
    await createNotes(storage)
    await storage.write((tx) => addNote(tx, 1))
    expect(await noteIds(storage.read)).toEqual([1])
    expect(await noteIds(storage.heavy)).toEqual([1])
  })

  test('a nested write is refused, so it cannot wait for itself', async () => {
    const { storage } = await open()
    await createNotes(storage)
    const nested = storage.write(async (tx) => {
      await addNote(tx, 1)
      await sleep(1)
      await storage.write((inner) => addNote(inner, 2))
    })
    await expect(nested).rejects.toThrow('write() was called inside a write()')
    expect(await noteIds(storage.read)).toEqual([])
  })

  test('asynchronous work of an ended write may write', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let later: Promise<void> | undefined
    await storage.write(async (tx) => {
      await addNote(tx, 1)
      later = sleep(50).then(() => storage.write((inner) => addNote(inner, 2)))
    })
    await later
    expect(await noteIds(storage.read)).toEqual([1, 2])
  })

  test('the tx of an ended write runs nothing more', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let leaked: Db | undefined
    await storage.write(async (tx) => {
      leaked = tx
    })
    await expect(addNote(leaked!, 1)).rejects.toThrow()
    expect(await noteIds(storage.read)).toEqual([])
  })

  test('commits wake the listeners; unsynced and failed writes do not', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let woken = 0
    storage.onCommit(() => {
      woken++
    })
    await storage.write((tx) => addNote(tx, 1), { unsynced: true })
    await storage.write(() => Promise.reject(new Error('no'))).catch(() => undefined)
    expect(woken).toBe(0)
    await storage.write((tx) => addNote(tx, 2))
    expect(woken).toBe(1)
    expect(await noteIds(storage.read)).toEqual([1, 2])
  })

  test('a listener is not woken by unrelated tables, where SQLite reports them', async () => {
    const { storage } = await open()
    await createNotes(storage)
    await storage.write((tx) => sql`create table outbox (chain text, entry text)`.execute(tx))
    const woken = { outbox: 0, events: 0 }
    storage.onCommit(() => woken.outbox++, ['outbox', 'users'])
    storage.onCommit(() => woken.events++, ['events'])
    const keep = (tx: Db) => tx.insertInto('outbox').values({ chain: 'x', entry: '{}' }).execute()
    await Promise.all([storage.write(keep), storage.write((tx) => addNote(tx, 1))])
    expect(woken).toEqual(kind === 'sqlite' ? { outbox: 1, events: 0 } : { outbox: 2, events: 2 })
    await storage.write((tx) => sql`with none as (select 1) delete from outbox`.execute(tx))
    expect(woken).toEqual(kind === 'sqlite' ? { outbox: 2, events: 1 } : { outbox: 3, events: 3 })
  })

  test('a failing listener neither undoes nor stops anything', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let woken = 0
    const warned = new Promise((resolve) => process.once('warning', resolve))
    storage.onCommit(() => {
      throw new Error('deaf')
    })
    storage.onCommit(() => {
      woken++
    })
    await storage.write((tx) => addNote(tx, 1))
    expect(woken).toBe(1)
    expect(await warned).toMatchObject({ message: 'deaf' })
  })

  test('unsynced writes between synced ones are all stored', async () => {
    const { storage } = await open()
    await createNotes(storage)
    await Promise.all(
      ids(300).map((id) => storage.write((tx) => addNote(tx, id), { unsynced: id % 3 !== 0 })),
    )
    expect(await noteIds(storage.read)).toEqual(ids(300))
  })

  test('close finishes queued writes and then refuses new ones', async () => {
    const { storage, dataDir, databaseUrl } = await open()
    await createNotes(storage)
    const queued = ids(20).map((id) => storage.write((tx) => addNote(tx, id)))
    const closed = storage.close()
    await Promise.all(queued)
    await closed
    await storage.close()
    await expect(storage.write((tx) => addNote(tx, 99))).rejects.toThrow('closed')
    await expect(storage.check()).rejects.toThrow()
    const { openStorage } = await import('../../src/storage/open.ts')
    const again = await openStorage({ dataDir, databaseUrl })
    expect(await noteIds(again.read)).toEqual(ids(20))
    await again.close()
  })

  test('check passes while the database answers', async () => {
    const { storage } = await open()
    await createProbes(storage)
    await expect(storage.check()).resolves.toBeUndefined()
  })

  test('both databases return the same values', async () => {
    const { storage } = await open()
    await createNotes(storage)
    await storage.write((tx) => addNote(tx, 7, 'x'))
    const { rows } = await sql`
      select count(*) as count, sum(id) as sum, max(body) as body, 1 = 1 as yes, 1 = 2 as no,
        (select body from notes where id = 8) as none from notes`.execute(storage.read)
    expect(rows).toEqual([{ count: 1, sum: 7, body: 'x', yes: 1, no: 0, none: null }])
  })

  test.runIf(kind === 'sqlite').each([
    ['boolean', true],
    ['Date', new Date()],
    ['object', { secret: 1 }],
    ['array', [1]],
    ['undefined', undefined],
  ])('a parameter of type %s is refused by name, not converted', async (type, value) => {
    const { storage } = await open()
    const query = sql`select ${1} as a, ${value} as b`.execute(storage.read)
    await expect(query).rejects.toThrow(`Parameter 2 is of type ${type}`)
  })
})

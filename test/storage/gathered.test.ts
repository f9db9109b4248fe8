import { expect, test } from 'vitest'
import { batchReads, batchWrites } from '../../src/storage/batching.ts'
import type { Db, Storage } from '../../src/storage/open.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'

const ids = (count: number) => Array.from({ length: count }, (_, i) => i + 1)

onEveryEmptyDatabase((kind, open) => {
  /** Notes that are kept together, and how many at a time. */
  const keeping = async (most?: number) => {
    const { storage } = await open()
    await createNotes(storage)
    const sizes: number[] = []
    const keep = batchWrites(
      storage,
      async (tx: Db, notes: readonly number[]) => {
        sizes.push(notes.length)
        for (const id of notes) {
          if (id < 0) throw new Error(`no ${id}`)
          await addNote(tx, id)
        }
        return notes.map((id) => `kept ${id}`)
      },
      most,
    )
    return { storage, keep, sizes }
  }

  test('what comes in together is written together, and each hears of its own', async () => {
    const { storage, keep, sizes } = await keeping()
    expect(await Promise.all(ids(60).map(keep))).toEqual(ids(60).map((id) => `kept ${id}`))
    expect(await noteIds(storage.read)).toEqual(ids(60))
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(60)
    expect(sizes.length).toBeLessThan(6)
  })

  test('no more than so many at a time; the rest comes next', async () => {
    const { storage, keep, sizes } = await keeping(7)
    await Promise.all(ids(100).map(keep))
    expect(Math.max(...sizes)).toBeLessThanOrEqual(7)
    expect(await noteIds(storage.read)).toEqual(ids(100))
  })

  test('what resolved is committed', async () => {
    const { storage, keep } = await keeping()
    for (const id of ids(20)) {
      await keep(id)
      expect(await noteIds(storage.read)).toContain(id)
    }
  })

  test('one that cannot be written fails alone, and spoils no other', async () => {
    const { storage, keep } = await keeping()
    const outcomes = await Promise.allSettled([1, 2, -3, 4, 2, 5].map(keep))
    expect(outcomes.map(({ status }) => status)).toEqual([
      ...['fulfilled', 'fulfilled', 'rejected', 'fulfilled', 'rejected', 'fulfilled'],
    ])
    expect(outcomes[2]).toMatchObject({ reason: { message: 'no -3' } })
    expect(await noteIds(storage.read)).toEqual([1, 2, 4, 5])
  })

  test('when the database cannot be used all fail at once, and later ones work again', async () => {
    const { storage, sizes } = await keeping()
    let isOut = true
    const writes: number[] = []
    const flaky: Pick<Storage, 'write'> = {
      write: (work, options) => {
        writes.push(1)
        return isOut
          ? Promise.reject(Object.assign(new Error('out'), { code: 'ECONNREFUSED' }))
          : storage.write(work, options)
      },
    }
    const keep = batchWrites(flaky, async (tx: Db, notes: readonly number[]) => {
      for (const id of notes) await addNote(tx, id)
      return notes
    })
    const outcomes = await Promise.allSettled(ids(10).map(keep))
    expect(outcomes.every(({ status }) => status === 'rejected')).toBe(true)
    expect(writes.length).toBeLessThanOrEqual(2)
    isOut = false
    await keep(11)
    expect(await noteIds(storage.read)).toEqual([11])
    expect(sizes).toEqual([])
  })

  test('from within a write it waits for its own turn, and is no part of that write', async () => {
    const { storage, keep } = await keeping()
    let inner: Promise<string> | undefined
    const outer = storage.write(async () => {
      inner = keep(1)
      throw new Error('undone')
    })
    await expect(outer).rejects.toThrow('undone')
    expect(await inner).toBe('kept 1')
    expect(await noteIds(storage.read)).toEqual([1])
  })

  test.runIf(kind === 'postgres')(
    'a deadlock is tried again with the same ones, and none of them twice',
    async () => {
      const { storage } = await open()
      await createNotes(storage)
      let attempts = 0
      const keep = batchWrites(storage, async (tx: Db, notes: readonly number[]) => {
        for (const id of notes) await addNote(tx, id)
        if (attempts++ === 0) throw Object.assign(new Error('deadlock detected'), { code: '40P01' })
        return notes
      })
      expect(await Promise.all([1, 2, 3].map(keep))).toEqual([1, 2, 3])
      expect(await noteIds(storage.read)).toEqual([1, 2, 3])
    },
  )

  test('what is asked for in one turn is read at once, after what was committed by then', async () => {
    const { storage } = await open()
    await createNotes(storage)
    const sizes: number[] = []
    const find = batchReads(async (asked: readonly number[]) => {
      sizes.push(asked.length)
      if (asked.includes(0)) throw new Error('no 0')
      const known = await noteIds(storage.read)
      return new Map(asked.filter((id) => known.includes(id)).map((id) => [id, `note ${id}`]))
    })
    await storage.write((tx) => addNote(tx, 1))
    expect(await Promise.all([1, 2, 1].map(find))).toEqual(['note 1', undefined, 'note 1'])
    await storage.write((tx) => addNote(tx, 2))
    expect(await find(2)).toBe('note 2')
    const failed = await Promise.allSettled([0, 1].map(find))
    expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(await find(1)).toBe('note 1')
    expect(sizes).toEqual([3, 1, 2, 1])
  })
})

import { expect, test } from 'vitest'
import { batchReads, batchWrites } from '../../src/storage/batching.ts'
import type { Db, Storage } from '../../src/storage/open.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { addNote, createNotes, noteIds } from './notes.ts'

const ids = (count: number) => Array.from({ length: count }, (_, i) => i + 1)

onEveryEmptyDatabase((kind, open) => {
  /** Batched writes of notes, with the sizes of their batches. */
  const batched = async (max?: number) => {
    const { storage } = await open()
    await createNotes(storage)
    const sizes: number[] = []
    const add = batchWrites(
      storage,
      async (tx: Db, notes: readonly number[]) => {
        sizes.push(notes.length)
        for (const id of notes) {
          if (id < 0) throw new Error(`no ${id}`)
          await addNote(tx, id)
        }
        return notes.map((id) => `kept ${id}`)
      },
      max,
    )
    return { storage, add, sizes }
  }

  test('concurrent writes are batched, and each caller gets its own result', async () => {
    const { storage, add, sizes } = await batched()
    expect(await Promise.all(ids(60).map(add))).toEqual(ids(60).map((id) => `kept ${id}`))
    expect(await noteIds(storage.read)).toEqual(ids(60))
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(60)
    expect(sizes.length).toBeLessThan(6)
  })

  test('a batch has a maximum size; the rest is the next batch', async () => {
    const { storage, add, sizes } = await batched(7)
    await Promise.all(ids(100).map(add))
    expect(Math.max(...sizes)).toBeLessThanOrEqual(7)
    expect(await noteIds(storage.read)).toEqual(ids(100))
  })

  test('a resolved write is committed', async () => {
    const { storage, add } = await batched()
    for (const id of ids(20)) {
      await add(id)
      expect(await noteIds(storage.read)).toContain(id)
    }
  })

  test('a failing write fails alone, without its batch', async () => {
    const { storage, add } = await batched()
    const outcomes = await Promise.allSettled([1, 2, -3, 4, 2, 5].map(add))
    expect(outcomes.map(({ status }) => status)).toEqual([
      'fulfilled',
      'fulfilled',
      'rejected',
      'fulfilled',
      'rejected',
      'fulfilled',
    ])
    expect(outcomes[2]).toMatchObject({ reason: { message: 'no -3' } })
    expect(await noteIds(storage.read)).toEqual([1, 2, 4, 5])
  })

  test('in an outage all writes fail at once, and later ones succeed', async () => {
    const { storage, sizes } = await batched()
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
    const add = batchWrites(flaky, async (tx: Db, notes: readonly number[]) => {
      for (const id of notes) await addNote(tx, id)
      return notes
    })
    const outcomes = await Promise.allSettled(ids(10).map(add))
    expect(outcomes.every(({ status }) => status === 'rejected')).toBe(true)
    expect(writes.length).toBeLessThanOrEqual(2)
    isOut = false
    await add(11)
    expect(await noteIds(storage.read)).toEqual([11])
    expect(sizes).toEqual([])
  })

  test('a batched write from within a write is a separate transaction', async () => {
    const { storage, add } = await batched()
    let inner: Promise<string> | undefined
    const outer = storage.write(async () => {
      inner = add(1)
      throw new Error('undone')
    })
    await expect(outer).rejects.toThrow('undone')
    expect(await inner).toBe('kept 1')
    expect(await noteIds(storage.read)).toEqual([1])
  })

  test.runIf(kind === 'postgres')('a deadlock retries the same batch, and writes nothing twice', async () => {
    const { storage } = await open()
    await createNotes(storage)
    let attempts = 0
    const add = batchWrites(storage, async (tx: Db, notes: readonly number[]) => {
      for (const id of notes) await addNote(tx, id)
      if (attempts++ === 0) throw Object.assign(new Error('deadlock detected'), { code: '40P01' })
      return notes
    })
    expect(await Promise.all([1, 2, 3].map(add))).toEqual([1, 2, 3])
    expect(await noteIds(storage.read)).toEqual([1, 2, 3])
  })

  test('reads of one tick are batched, and see what was committed before', async () => {
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

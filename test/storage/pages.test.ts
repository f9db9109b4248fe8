import type { SelectQueryBuilder } from 'kysely'
import { expect, test } from 'vitest'
import type { AnyDb } from '../../src/storage/columns.ts'
import type { Db } from '../../src/storage/open.ts'
import { readCursorPage, readPage } from '../../src/storage/query/pages.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { addNote, createNotes } from './notes.ts'

type Notes = SelectQueryBuilder<{ notes: { id: number; body: string } }, 'notes', object>

const notesIn = (db: Db): Notes => (db as AnyDb).selectFrom('notes') as never

onEveryEmptyDatabase((_, open) => {
  /** Seven notes with unordered bodies. */
  const start = async () => {
    const { storage } = await open()
    await createNotes(storage)
    for (const [at, body] of [...'dbgafce'].entries()) await storage.write((tx) => addNote(tx, at, body))
    return notesIn(storage.read)
  }
  const body = (row: { body: string }) => row.body

  test('a page has the ordered rows and the total', async () => {
    const notes = await start()
    const byBody = (q: Notes) => q.selectAll().orderBy('body')
    const pages = [1, 2, 3, 4].map((page) => readPage(notes, { page, limit: 3 }, byBody, body))
    expect((await Promise.all(pages)).map(({ data, pagination }) => [data.join(''), pagination])).toEqual([
      ['abc', { page: 1, limit: 3, total: 7 }],
      ['def', { page: 2, limit: 3, total: 7 }],
      ['g', { page: 3, limit: 3, total: 7 }],
      ['', { page: 4, limit: 3, total: 7 }],
    ])
    const some = notes.where('body', '>', 'd')
    expect((await readPage(some, { page: 1, limit: 3 }, byBody, body)).pagination.total).toBe(3)
  })

  test.each([
    ['asc', 'abcdefg'],
    ['desc', 'gfedcba'],
  ] as const)('a long list is read by cursors, %s', async (direction, whole) => {
    const notes = await start()
    const order = {
      by: ['body', 'id'] as const,
      direction,
      keyOf: (row: { id: number; body: string }) => [row.body, row.id],
    }
    const ask = (query: { page?: number; cursor?: string }) =>
      readCursorPage(
        notes,
        { page: 1, limit: 3, ...query },
        order,
        (q) => q.selectAll(),
        (row) => row,
      )
    const read: string[] = []
    let cursor: string | null | undefined
    do {
      const { data, pagination } = await ask(cursor ? { cursor } : {})
      expect(pagination.total).toBe(cursor ? undefined : 7)
      read.push(data.map(body).join(''))
      cursor = pagination.nextCursor
    } while (cursor)
    expect(read).toEqual([whole.slice(0, 3), whole.slice(3, 6), whole.slice(6)])
    expect((await ask({ page: 3 })).data.map(body)).toEqual([whole[6]])
    const other = Buffer.from(JSON.stringify(['a'])).toString('base64url')
    await expect(ask({ cursor: other })).rejects.toMatchObject({ code: 'invalid_request' })
  })
})

import { sql } from 'kysely'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { AnyDb } from '../../src/storage/columns.ts'
import type { Params } from '../../src/storage/query/prepared.ts'
import { openEmpty } from '../databases.ts'
import { createNotes } from './notes.ts'

test('the name of a statement depends on its text alone, not on earlier statements', async () => {
  const statement = 'select * from "notes" where "id" = $1'
  const nameAfter = async (others: number) => {
    vi.resetModules()
    const fresh = await import('../../src/storage/query/prepared.ts')
    for (let n = 0; n < others; n++) {
      const other = fresh.prepared((db) => (db as AnyDb).selectFrom('notes').select(sql.lit(n).as('n')))
      await other(storage.read, {})
    }
    const byId = fresh.prepared((db, p: Params<{ id: number }>) =>
      (db as AnyDb).selectFrom('notes').selectAll().where('id', '=', p.id),
    )
    await byId(storage.read, { id: 1 })
    return fresh.statementName(statement)
  }
  const { storage, close } = await openEmpty('postgres')
  onTestFinished(close)
  await createNotes(storage)
  const name = await nameAfter(0)
  expect(name).toMatch(/^svc_[0-9a-f]{32}$/)
  expect(await nameAfter(3)).toBe(name)
})

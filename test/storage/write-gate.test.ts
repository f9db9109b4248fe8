import pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { copyLockKey, WriteGate } from '../../src/storage/copy/write-gate.ts'
import { lockForCopy } from '../../src/storage/sqlite/copy-lock.ts'
import { onEveryDatabase, type TestDatabase } from '../databases.ts'

onEveryDatabase((kind, open) => {
  it('tells of its closing whoever looks first', async () => {
    const database = await open()
    const heard: (string | undefined)[] = []
    const gate = new WriteGate(database, (closure) => heard.push(closure?.kind))
    onTestFinished(() => gate.close())
    const unlock = await locked(database)
    // As a write does that the database refuses.
    await gate.look()
    expect(heard).toEqual(['maintenance'])
    await gate.look()
    await unlock()
    await gate.look()
    expect(heard).toEqual(['maintenance', undefined])
  })

  async function locked({ dataDir, databaseUrl }: TestDatabase): Promise<() => Promise<void>> {
    if (kind === 'sqlite') {
      const unlock = lockForCopy(dataDir)
      return async () => unlock()
    }
    const client = new pg.Client(databaseUrl)
    await client.connect()
    await client.query('select pg_advisory_lock($1, $2)', [...copyLockKey])
    return async () => {
      await client.query('select pg_advisory_unlock($1, $2)', [...copyLockKey])
      await client.end()
    }
  }
})

import { readdir } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { files, isKept, ownTables, tables } from '../../../daemon/backup/contents.ts'
import { api } from '../../../src/api.ts'
import { listTables } from '../../../src/storage/backup/catalog.ts'
import type { AnyDb } from '../../../src/storage/columns.ts'
import { onEveryDatabase, temporaryFolder } from '../../databases.ts'
import { adminEmail, adminPassword, clientOf } from '../../harness.ts'
import { ServeProcess, until } from '../process.ts'

onEveryDatabase((_, open) => {
  describe('the list of tables', () => {
    it('has each table of a migrated database, and no other', async () => {
      const { storage } = await open()
      const live = (await listTables(storage.read as AnyDb, storage.dialect)).map(({ name }) => name)
      const own = live.filter((name) => ownTables.some(([pattern]) => pattern.test(name)))
      expect(live.filter((name) => !own.includes(name)).sort()).toEqual(Object.keys(tables).sort())
    })

    it('has tables with a primary key alone, by which their rows are read in order', async () => {
      const { storage } = await open()
      const live = await listTables(storage.read as AnyDb, storage.dialect)
      expect(live.filter(({ name, key }) => isKept(name) && key.length === 0)).toEqual([])
    })

    it('has tables that migrations leave empty, as a restore needs them', async () => {
      const { storage } = await open()
      for (const name of Object.keys(tables).filter(isKept)) {
        const row = await (storage.read as AnyDb).selectFrom(name).selectAll().limit(1).executeTakeFirst()
        expect([name, row]).toEqual([name, undefined])
      }
    })
  })
})

describe('the list of files', () => {
  it('has each file that a service writes into its data directory', async () => {
    const dataDir = await temporaryFolder()
    const env = {
      SVC_ADMIN_EMAIL: adminEmail,
      SVC_ADMIN_PASSWORD: adminPassword,
      AUDIT_CHECKPOINT_SECONDS: '1',
    }
    const service = new ServeProcess({ dataDir }, { env })
    const client = clientOf(await service.listening())
    await client.call(api.auth.forgotPassword, { body: { email: adminEmail } })
    const paths = async () =>
      (await readdir(dataDir, { recursive: true })).map((path) => path.replaceAll('\\', '/'))
    await until(async () => {
      const all = await paths()
      return all.includes('checkpoints/system') && all.some((path) => /^outbox\/.*\.json$/.test(path))
    }, 20_000)
    const found = new Set(await paths())
    await service.stop()
    for (const path of await paths()) found.add(path)
    const folders = ['checkpoints', 'outbox']
    const unknown = [...found].filter(
      (path) => !folders.includes(path) && !files.some(([pattern]) => pattern.test(path)),
    )
    expect(unknown).toEqual([])
    expect([...found]).toEqual(expect.arrayContaining(['svc.sqlite', 'svc.lock', 'secrets.json']))
  })
})

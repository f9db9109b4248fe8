import { sql } from 'kysely'
import { describe, expect, it, onTestFinished } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Migration, migrate, migrationStatus, pendingMigrations } from '../../src/storage/migrate.ts'
import { version } from '../../src/version.ts'
import { Home } from '../cli/run.ts'
import { failedStart, ServeProcess, until } from '../daemon/process.ts'
import { onEveryDatabase, onEveryEmptyDatabase } from '../databases.ts'
import { sourcesWith } from './migration-files.ts'

const adding = (name: string): Migration => ({
  name,
  up: async ({ db, text }) => {
    await db.schema.createTable(`t_${name}`).addColumn('id', text).execute()
  },
})
const contracting = (name: string, oldestVersion: string): Migration => ({ ...adding(name), oldestVersion })

const refusal = (needed: string, own: string, migration: string) =>
  `The database needs svc ${needed} or later since the migration ${migration}, and this is svc ${own}: ` +
  `use svc ${needed} or later, or restore a backup from before that migration.`

onEveryEmptyDatabase((_kind, open) => {
  describe('the oldest version that may use a schema', () => {
    it('is raised by migrations, never lowered, and kept by those that only add', async () => {
      const { storage } = await open()
      const list = [
        adding('0001'),
        contracting('0002', '1.10.0'),
        contracting('0003', '1.9.0'),
        adding('0004'),
      ]
      const options = await sourcesWith(list)
      const asking = (version: string) =>
        pendingMigrations(storage, list.slice(0, 1), { ...options, version })
      await migrate(storage, list.slice(0, 1), options)
      expect(await asking('0.0.1')).toEqual([])
      await migrate(storage, list, options)
      for (const allowed of ['1.10.0', '1.11.0', '2.0.0']) expect(await asking(allowed)).toEqual([])
      for (const refused of ['1.9.9', '1.10.0-rc.1', '0.0.1'])
        await expect(asking(refused)).rejects.toThrow(refusal('1.10.0', refused, '0002'))
      const { rows } = await sql`select * from svc_oldest_version`.execute(storage.read)
      expect(rows).toEqual([{ id: 1, version: '1.10.0', migration: '0002' }])
    })

    it('is asked by everything that works on the schema, before it changes anything', async () => {
      const { storage } = await open()
      const list = [contracting('0001', '2.0.0'), adding('0002')]
      const options = { ...(await sourcesWith(list)), version: '1.0.0' }
      await migrate(storage, list.slice(0, 1), { ...options, version: '2.0.0' })
      const needed = refusal('2.0.0', '1.0.0', '0001')
      for (const ask of [migrate, migrationStatus, pendingMigrations])
        await expect(ask(storage, list, options)).rejects.toThrow(new SetupError(needed))
      expect(await pendingMigrations(storage, list, { ...options, version: '2.0.0' })).toEqual(['0002'])
    })

    it('stays with the change: a migration that fails raises nothing', async () => {
      const { storage } = await open()
      const failing: Migration = {
        name: '0001',
        oldestVersion: '2.0.0',
        up: async ({ db }) => {
          await sql`insert into nowhere values (1)`.execute(db)
        },
      }
      const options = await sourcesWith([failing])
      await expect(migrate(storage, [failing], options)).rejects.toThrow()
      expect(await pendingMigrations(storage, [failing], { ...options, version: '1.0.0' })).toEqual(['0001'])
    })
  })
})

onEveryDatabase((_, open) => {
  describe('a program beside a schema of a later version', () => {
    const upgraded = async (last: Migration) => {
      const { storage, dataDir, databaseUrl } = await open()
      const list = [...migrations, last]
      await migrate(storage, list, await sourcesWith(list))
      await storage.close()
      const home = new Home({
        SVC_DATA_DIR: dataDir,
        ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
      })
      onTestFinished(() => home.remove())
      return { home, place: { dataDir, databaseUrl } }
    }

    it('is refused by svc serve, svc db migrate and svc db status in one sentence', async () => {
      const { home, place } = await upgraded(contracting('9999_later', '9999.0.0'))
      const said = refusal('9999.0.0', version, '9999_later')
      const { code, stderr } = await failedStart(place)
      expect([code, stderr]).toEqual([1, `svc serve: ${said}\n`])
      for (const command of ['migrate', 'status']) {
        const result = await home.run(['db', command])
        expect([result.code, result.stdout, result.stderr]).toEqual([1, '', `Error: ${said}\n`])
        const json = await home.run(['db', command, '--json'])
        expect(JSON.parse(json.stderr)).toMatchObject({ error: { code: 'setup', message: said } })
      }
    })

    it('starts, migrates and shows the status when the later one only added, and says so', async () => {
      const { home, place } = await upgraded(adding('9999_later'))
      const service = new ServeProcess(place)
      await service.listening()
      await until(() => service.stderr.includes('which this version can work with'))
      expect(service.stderr).toContain('9999_later')
      await service.stop()
      for (const command of ['migrate', 'status']) {
        const result = await home.run(['db', command])
        expect(result.code).toBe(0)
        expect(result.stderr).toBe(
          `A later version has applied 9999_later, which svc ${version} can work with\n`,
        )
      }
    })
  })
})

import { sql } from 'kysely'
import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import { api } from '../../src/api.ts'
import { type Migration, migrate, pendingMigrations } from '../../src/storage/migrate.ts'
import type { MigrationWait } from '../../src/storage/migration-wait.ts'
import { openStorage } from '../../src/storage/open.ts'
import { Home } from '../cli/run.ts'
import { failedStart, serviceEnv, until } from '../daemon/process.ts'
import { openEmpty, openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { sourcesWith } from './migration-files.ts'

const adding: Migration = {
  name: '9999_adding',
  up: async ({ db, text }) => {
    await db.schema.alterTable('devices').addColumn('color', text).execute()
  },
}

/** A session of somebody else that has read or written a table and does not end its transaction. */
async function idleSession(databaseUrl: string, statement: string) {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'a forgotten session' })
  client.on('error', () => {})
  await client.connect()
  onTestFinished(() => client.end())
  const { rows } = await client.query('select pg_backend_pid() as pid')
  await client.query('begin')
  await client.query(statement)
  return { pid: rows[0].pid as number, release: () => client.query('rollback') }
}

/** Ending a connection takes a moment: on SQLite there are no such locks. */
describe('a migration of a table that an idle transaction has locked', () => {
  it('waits in slices while heartbeats and reads go on, names who blocks it, and completes once it is free', async () => {
    const service = await startService(() => openMigrated('postgres'))
    const { orgs, tokens } = await buildWorld(service)
    const { agentId, agentToken, deviceId } = orgs.bakery
    const { databaseUrl = '', dataDir } = service
    const beat = () =>
      service.client(agentToken).call(api.agents.heartbeat, {
        params: { id: agentId },
        body: { status: 'ok', agentVersion: '0.1.0', metrics: { cpuPercent: Math.random() * 100 } },
      })
    const read = () => service.client(tokens.bakery).call(api.devices.list, {})
    await beat()
    const { pid, release } = await idleSession(databaseUrl, 'select 1 from devices')
    const list = [...migrations, adding]
    const options = await sourcesWith(list)
    const other = await openStorage({ dataDir, databaseUrl })
    onTestFinished(() => other.close())
    const waits: MigrationWait[] = []
    let isOver = false
    const migrating = migrate(other, list, {
      ...options,
      locks: { sliceMs: 400 },
      onWait: (wait) => waits.push(wait),
    }).finally(() => {
      isOver = true
    })
    let beats = 0
    while (waits.length < 3) {
      await Promise.all([beat(), read()])
      beats += 1
    }
    expect(isOver).toBe(false)
    expect(beats).toBeGreaterThan(3)
    const blocker = { pid, application: 'a forgotten session', state: 'idle in transaction' }
    for (const wait of waits) {
      expect(wait).toMatchObject({ migration: '9999_adding' })
      expect(wait.blockers).toContainEqual(expect.objectContaining(blocker))
    }
    expect(waits[0]!.blockers.find((it) => it.pid === pid)!.since).toMatch(
      /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
    )
    await release()
    expect(await migrating).toEqual(['9999_adding'])
    await Promise.all([beat(), read()])
    const { rows } = await sql`select color from devices where id = ${deviceId}`.execute(service.storage.read)
    expect(rows).toEqual([{ color: null }])
  })

  it('gives up after a while with what to do, and changes nothing', async () => {
    const { storage, databaseUrl = '' } = await openMigrated('postgres')
    const { pid } = await idleSession(databaseUrl, 'lock table devices in access share mode')
    const list = [...migrations, adding]
    const options = await sourcesWith(list)
    const locks = { sliceMs: 200, totalMs: 1000 }
    await expect(migrate(storage, list, { ...options, locks })).rejects.toThrow(
      new RegExp(
        `^Migration 9999_adding waited 1 s for a lock of pid ${pid} \\(a forgotten session of postgres, idle in transaction since \\S+Z\\), ` +
          `and was not applied: end that transaction \\(select pg_terminate_backend\\(${pid}\\)\\) and start again, ` +
          'or wait longer with MIGRATION_LOCK_WAIT_SECONDS\\.$',
      ),
    )
    expect(await pendingMigrations(storage, list, options)).toEqual(['9999_adding'])
  })

  it('is told by svc db migrate and svc serve, which end with the reason', async () => {
    const { storage, dataDir, databaseUrl = '' } = await openEmpty('postgres')
    await migrate(
      storage,
      migrations.filter(({ name }) => name < '0058'),
    )
    const { pid, release } = await idleSession(databaseUrl, 'lock table alerts in row exclusive mode')
    const home = new Home({ SVC_DATA_DIR: dataDir, DATABASE_URL: databaseUrl })
    onTestFinished(() => home.remove())
    const env = { MIGRATION_LOCK_WAIT_SECONDS: '1' }
    const failed = await home.run(['db', 'migrate'], { env })
    const waiting = `migration 0058_ended_alerts waits for a lock of pid ${pid} (a forgotten session of postgres, idle in transaction`
    expect([failed.code, failed.stdout]).toEqual([1, ''])
    expect(failed.stderr).toContain(waiting)
    expect(failed.stderr).toContain(
      `Error: Migration 0058_ended_alerts waited 1 s for a lock of pid ${pid} (`,
    )
    const start = await failedStart({ dataDir, databaseUrl }, { env: { ...serviceEnv, ...env } })
    expect(start.code).toBe(1)
    expect(start.stderr).toContain(waiting)
    expect(start.stderr).toContain(`svc serve: Migration 0058_ended_alerts waited 1 s`)
    await release()
    expect((await home.run(['db', 'migrate'])).stdout).toMatch(/^Applied 0058_ended_alerts\b/)
  })

  it('waits for another process that migrates, and says which', async () => {
    const { storage, databaseUrl = '' } = await openEmpty('postgres')
    const list: Migration[] = [{ name: '0001', up: async () => {} }]
    const options = await sourcesWith(list)
    const { pid, release } = await idleSession(databaseUrl, 'select pg_advisory_xact_lock(7566947, 1)')
    const waits: MigrationWait[] = []
    const migrating = migrate(storage, list, { ...options, onWait: (wait) => waits.push(wait) })
    await until(() => waits.length > 0)
    expect(waits).toMatchObject([
      { migration: null, blockers: [{ pid, application: 'a forgotten session' }] },
    ])
    await release()
    expect(await migrating).toEqual(['0001'])
  })
})

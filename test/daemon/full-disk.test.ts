import { spawnSync } from 'node:child_process'
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { sql } from 'kysely'
import { describe, expect, test } from 'vitest'
import { deleteOldLogs } from '../../src/logs/jobs.ts'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { buildWorld } from '../world.ts'
import { failedStart, type Place, ServeProcess } from './process.ts'
import { send } from './request.ts'
import { noDisk, type SmallDisk, smallDisk } from './small-disk.ts'
import { Writers } from './writers.ts'

const mebibyte = 2 ** 20

const places: Record<string, () => Promise<{ disk: SmallDisk; place: Place }>> = {
  async sqlite() {
    const { dataDir: template, storage } = await openMigrated('sqlite')
    await storage.close()
    const disk = await smallDisk(24 * mebibyte)
    const dataDir = join(disk.path, 'data')
    await cp(template, dataDir, { recursive: true })
    return { disk, place: { dataDir } }
  },
  // Postgres stops by itself where its write-ahead log finds no room either.
  async postgres() {
    const disk = await smallDisk(96 * mebibyte)
    const log = await smallDisk(96 * mebibyte)
    const { databaseUrl } = await OwnPostgres.begin({ folder: disk.path, walFolder: log.path })
    return { disk, place: { dataDir: await temporaryFolder(), databaseUrl } }
  },
}

const why = noDisk()

describe.skipIf(why !== undefined)(`a real full disk (${why ?? 'tmpfs'})`, () => {
  test.each(Object.keys(places))(
    'of %s: changes get 503 with Retry-After, reads work, and free space is enough to recover',
    async (kind) => {
      const { disk, place } = await places[kind]!()
      const first = await serviceOn(place)
      const { tokens, orgs } = await buildWorld(first)
      await first.close()
      const service = new ServeProcess(place)
      const url = await service.listening()
      const ready = async () => {
        const { status, body } = await send<{ checks: object }>(url, 'GET', '/health/ready')
        return { status, checks: body.checks }
      }
      const writers = new Writers(tokens.bakery, orgs.bakery.id)
      for (let n = 0; n < 20; n += 1) expect(await writers.add(url)).toBe(201)
      expect(await ready()).toMatchObject({ status: 200 })

      disk.fill()
      for (let n = 0; n < 100; n += 1) await writers.add(url)
      expect(writers.replies.filter(({ status }) => status === 503).length).toBeGreaterThan(50)
      const said = { status: 503, checks: { database: 'error: full' } }
      await expect.poll(ready, { timeout: 10_000 }).toMatchObject(said)
      for (const [token, org] of [
        [tokens.bakery, orgs.bakery],
        [tokens.harbor, orgs.harbor],
      ] as const) {
        const { status, body } = await send<{ data: object[] }>(url, 'GET', '/api/v1/orgs/sites', { token })
        expect(status).toBe(200)
        expect(JSON.stringify(body)).toContain(org.siteId)
      }
      expect((await send(url, 'GET', '/health/live')).status).toBe(200)

      disk.empty()
      await expect.poll(() => writers.add(url), { timeout: 10_000 }).toBe(201)
      await expect.poll(ready, { timeout: 10_000 }).toMatchObject({ status: 200 })
      expect(writers.wrong).toEqual([])
      expect(await writers.notOnce(url)).toEqual([])
      const lines = service.stderr.split('\n').filter((line) => line.startsWith('{'))
      expect(lines.filter((line) => line.includes('"trouble":"full","sqlState"'))).toHaveLength(1)
      expect(lines.filter((line) => line.includes('"stack"'))).toEqual([])
      expect(await service.stop()).toEqual({ code: 0, signal: null })
    },
  )

  test('that is read-only stops the start of SQLite with one sentence, and loses nothing', async () => {
    const { disk, place } = await places.sqlite!()
    const service = new ServeProcess(place)
    await service.listening()
    expect(await service.stop()).toEqual({ code: 0, signal: null })
    disk.setReadOnly()
    const { code, stderr } = await failedStart(place)
    expect(code).toBe(1)
    expect(stderr.trim().split('\n')).toEqual([
      expect.stringMatching(/Cannot open the database file .*svc\.sqlite: .*EROFS: read-only file system/),
    ])
  })

  test('of the data directory: what needs it is refused or waits, the rest works', async () => {
    const disk = await smallDisk(4 * mebibyte)
    const { databaseUrl, storage } = await openMigrated('postgres')
    await storage.close()
    const place = { dataDir: join(disk.path, 'data'), databaseUrl }
    const first = await serviceOn(place)
    const { tokens, orgs } = await buildWorld(first)
    await first.close()
    const service = new ServeProcess(place)
    const url = await service.listening()
    const as = { token: tokens.bakery }
    const writers = new Writers(tokens.bakery, orgs.bakery.id)
    const checkpoint = () => send(url, 'GET', '/api/v1/audit-logs/checkpoint', as)
    disk.fill()
    expect(await writers.add(url)).toBe(201)
    const body = { email: 'new@example.com' }
    expect((await send(url, 'POST', '/api/v1/auth/forgot-password', { body })).status).toBe(200)
    for (let n = 0; n < 3; n += 1) {
      expect(await checkpoint()).toMatchObject({ status: 503, headers: { 'retry-after': '5' } })
    }
    expect(await writers.add(url)).toBe(201)
    disk.empty()
    await expect.poll(async () => (await checkpoint()).status, { timeout: 10_000 }).toBe(200)
    expect(service.stderr).not.toContain('"stack"')
    expect(await service.stop()).toEqual({ code: 0, signal: null })
  })
})

/** The size limit of the files of a process: a write past it fails, and not for lack of space. */
const limitFiles = (pid: number, bytes: string) =>
  spawnSync('prlimit', ['--pid', String(pid), `--fsize=${bytes}:`], { encoding: 'utf8' })

const noLimit = limitFiles(process.pid, 'unlimited').status === 0 ? undefined : 'prlimit is not there'

test.skipIf(noLimit !== undefined)(
  `an I/O error of the disk of SQLite is a 503, and the service recovers (${noLimit ?? 'prlimit'})`,
  async () => {
    const { dataDir, storage } = await openMigrated('sqlite')
    await storage.close()
    const first = await serviceOn({ dataDir })
    const { tokens, orgs } = await buildWorld(first)
    await first.close()
    const service = new ServeProcess({ dataDir })
    const url = await service.listening()
    const writers = new Writers(tokens.bakery, orgs.bakery.id)
    const ready = () => send<{ checks: { database: string } }>(url, 'GET', '/health/ready')
    expect(await writers.add(url)).toBe(201)
    expect(limitFiles(service.pid, '8192').status).toBe(0)
    for (let n = 0; n < 20; n += 1) expect(await writers.add(url)).toBe(503)
    await expect
      .poll(ready, { timeout: 10_000 })
      .toMatchObject({ status: 503, body: { checks: { database: 'error: failing disk' } } })
    const list = await send(url, 'GET', '/api/v1/orgs/sites', { token: tokens.harbor })
    expect(list.status).toBe(200)
    limitFiles(service.pid, 'unlimited')
    await expect.poll(() => writers.add(url), { timeout: 10_000 }).toBe(201)
    await expect.poll(async () => (await ready()).status, { timeout: 10_000 }).toBe(200)
    expect(writers.wrong).toEqual([])
    expect(await writers.notOnce(url)).toEqual([])
    expect(service.stderr).toContain('"sqlState":"SQLITE_IOERR')
    expect(service.stderr).not.toContain('"stack"')
    expect(await service.stop()).toEqual({ code: 0, signal: null })
  },
)

test('retention runs on an SQLite that may not grow, and what it deletes makes room for writes', async () => {
  const { dataDir, storage: template } = await openMigrated('sqlite')
  await template.close()
  const service = await serviceOn({ dataDir })
  const { tokens, orgs } = await buildWorld(service)
  const { agentId, agentToken: token } = orgs.bakery
  const logs = Array.from({ length: 500 }, () => ({
    timestamp: new Date().toISOString(),
    level: 'info',
    component: 'agent',
    message: 'm'.repeat(1000),
  }))
  for (let n = 0; n < 6; n += 1) {
    const sent = await send(service.url, 'POST', `/api/v1/agents/${agentId}/logs`, { token, body: { logs } })
    expect(sent.status).toBe(201)
  }
  const writers = new Writers(tokens.bakery, orgs.bakery.id)
  const ready = async () => (await send(service.url, 'GET', '/health/ready')).status
  await sql.raw('pragma max_page_count = 1').execute(service.storage.read)
  for (let n = 0; n < 30; n += 1) await writers.add(service.url)
  expect(writers.replies.at(-1)!.status).toBe(503)
  await expect.poll(ready, { timeout: 10_000 }).toBe(503)
  const kept = { agentLogRetentionDays: 1, eventLogRetentionDays: 1 }
  await deleteOldLogs(service.storage, kept, '2999-01-01T00:00:00.000Z')
  expect(await writers.add(service.url)).toBe(201)
  await expect.poll(ready, { timeout: 10_000 }).toBe(200)
})

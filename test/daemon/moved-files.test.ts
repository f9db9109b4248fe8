import { renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { openMigrated } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess } from './process.ts'
import { send } from './request.ts'
import { Writers } from './writers.ts'

/*
 * A deleted file stays open in its process: a write to it would be acknowledged, and lost with the process.
 */

const database = (dataDir: string) => join(dataDir, 'svc.sqlite')
const log = (dataDir: string) => join(dataDir, 'svc.sqlite-wal')

type Readiness = { checks: { database: string } }

async function begin() {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  const first = await serviceOn({ dataDir })
  const { tokens, orgs } = await buildWorld(first)
  await first.close()
  const service = new ServeProcess({ dataDir })
  const url = await service.listening()
  const writers = new Writers(tokens.bakery, orgs.bakery.id)
  for (let n = 0; n < 30; n += 1) expect(await writers.add(url)).toBe(201)
  const write = async (): Promise<void> => {
    for (let n = 0; n < 10; n += 1) await writers.add(url)
  }
  const database = async () => (await send<Readiness>(url, 'GET', '/health/ready')).body.checks.database
  return { dataDir, service, url, writers, write, database }
}

it.each([
  ['the database', (dataDir: string) => rmSync(database(dataDir))],
  ['the data directory', (dataDir: string) => rmSync(dataDir, { recursive: true })],
])('writes are refused after %s was deleted, and readiness says so', async (_, fault) => {
  const { dataDir, service, write, writers, database } = await begin()
  const { length: before } = writers.acknowledged
  fault(dataDir)
  await write()
  expect(writers.acknowledged).toHaveLength(before)
  expect(writers.wrong).toEqual([])
  await expect.poll(database, { timeout: 10_000 }).toBe('error: moved')
  await expect
    .poll(() => service.stdout + service.stderr, { timeout: 10_000 })
    .toContain('was moved, deleted or replaced')
  expect(await service.stop()).toMatchObject({ code: 0 })
})

it('a data directory that is moved away and back accepts writes again, and none is lost', async () => {
  const { dataDir, service, url, write, writers, database } = await begin()
  renameSync(dataDir, `${dataDir}.away`)
  await write()
  await expect.poll(database, { timeout: 10_000 }).toBe('error: moved')
  renameSync(`${dataDir}.away`, dataDir)
  await expect.poll(database, { timeout: 10_000 }).toBe('ok')
  expect(await writers.add(url)).toBe(201)
  expect(writers.wrong).toEqual([])
  expect(await writers.notOnce(url)).toEqual([])
  await service.stop()
})

it('no acknowledged write is lost with a deleted write-ahead log, even after kill -9', async () => {
  const { dataDir, service, write, writers, database } = await begin()
  rmSync(log(dataDir))
  await write()
  expect(writers.wrong).toEqual([])
  await expect.poll(database, { timeout: 10_000 }).toBe('error: moved')
  service.kill('SIGKILL')
  await service.ended
  const again = new ServeProcess({ dataDir })
  const url = await again.listening()
  expect(await writers.notOnce(url)).toEqual([])
  expect(await writers.add(url)).toBe(201)
  await again.stop()
})

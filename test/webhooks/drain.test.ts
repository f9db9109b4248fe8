import { describe, expect, it, onTestFinished } from 'vitest'
import { openStorage } from '../../src/storage/open.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { type Place, until } from '../daemon/process.ts'
import { onEveryDatabase, openMigrated } from '../databases.ts'
import { after, checkWhole, finish, makeWorld, raise, started, storm, type World } from './killing.ts'

describe.skipIf(!hasOpenssl)('SIGTERM', () => {
  const certificate = testCertificate()

  /** After the service has ended: the rows in the database of the deliveries that have arrived. */
  const arrived = async ({ dataDir, databaseUrl }: Place, world: World) => {
    const storage = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
    try {
      const held = storage.read
        .selectFrom('webhook_queues')
        .select('webhook_id')
        .where('holder', 'is not', null)
      expect(await held.execute(), 'queues are given back').toEqual([])
      const all = storage.read
        .selectFrom('webhook_deliveries')
        .select(['id', 'webhook_id', 'status', 'attempt'])
      const rows = new Map((await all.execute()).map((row) => [row.id, row]))
      return world.hooks.map(({ to }) =>
        to.got.map(({ headers }) => rows.get(String(headers['x-service-delivery-id']))!),
      )
    } finally {
      await storage.close()
    }
  }

  onEveryDatabase((_, open) => {
    it('under load lets attempts in flight finish, nothing is sent twice, a restart continues', async () => {
      const database = await open()
      await database.storage.close()
      const world = await makeWorld(database, certificate)
      for (const { to } of world.hooks) {
        const { answer } = to
        to.answer = (got, socket) => ({ ...answer(got, socket), afterMs: 20 })
      }
      const { service, url } = await started(database, certificate)
      after(250, world, () => service.kill('SIGTERM'))
      await storm([url], world, 150)
      expect(await service.ended).toEqual({ code: 0, signal: null })
      for (const rows of await arrived(database, world)) {
        expect(rows.filter(({ status, attempt }) => status !== 'delivered' || attempt !== 1)).toEqual([])
      }
      await finish(database, certificate, world)
      await checkWhole(database, world, 0)
    })
  })

  it('does not wait for a receiver that hangs, nor loses what others have answered meanwhile', async () => {
    const onOne = async (kind: 'sqlite' | 'postgres') => {
      const database = await openMigrated(kind)
      onTestFinished(database.close)
      await database.storage.close()
      const world = await makeWorld(database, certificate)
      const [hanging, slow] = world.hooks.map(({ to }) => to)
      const answers = world.hooks.map(({ to }) => to.answer)
      hanging!.answer = () => undefined
      slow!.answer = () => ({ status: 204, afterMs: 500 })
      const { service, url } = await started(database, certificate)
      for (let n = 0; n < 8; n++) await raise(url, world, 'patch.installed')
      await until(() => hanging!.got.length === 4 && slow!.got.length >= 4, 20_000)
      expect(await service.stop()).toEqual({ code: 0, signal: null })
      const [hung, answered] = await arrived(database, world)
      expect(hung!.map(({ status, attempt }) => [status, attempt])).toEqual(Array(4).fill(['pending', 0]))
      expect(answered!.length).toBeGreaterThanOrEqual(4)
      expect(answered!.filter(({ status, attempt }) => status !== 'delivered' || attempt !== 1)).toEqual([])

      for (const [n, { to }] of world.hooks.entries()) to.answer = answers[n]!
      await finish(database, certificate, world)
      expect(slow!.got).toHaveLength(8)
      await checkWhole(database, world, 1)
    }
    await Promise.all([onOne('sqlite'), onOne('postgres')])
  })
})

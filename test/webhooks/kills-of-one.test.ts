import { describe, expect, it, onTestFinished } from 'vitest'
import { addSeconds } from '../../src/core/time.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { until } from '../daemon/process.ts'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { randomFrom, seed } from '../depth.ts'
import { serviceOn, testClock } from '../harness.ts'
import { after, checkWhole, makeWorld, raise, started, storm, untilQuiet, workersOn } from './killing.ts'
import { reaching } from './receiver.ts'
import { gate } from './webhook-fixture.ts'

const kills = 2
const perRound = 150

describe.skipIf(!hasOpenssl)('two processes on one Postgres', () => {
  const certificate = testCertificate()

  const start = async () => {
    const database = await openMigrated('postgres')
    onTestFinished(database.close)
    const workers = await workersOn(database.databaseUrl!)
    onTestFinished(workers.close)
    return { database, workers, world: await makeWorld(database, certificate) }
  }

  it(`lose nothing when one is killed, and the other continues (SEED=${seed})`, async () => {
    const random = randomFrom(seed)
    const { database, workers, world } = await start()
    const known = new Set<string>()
    /** A process that has sent a delivery, so that its worker id is known. */
    const introduced = async () => {
      const place = { dataDir: await temporaryFolder(), databaseUrl: database.databaseUrl }
      const one = await started(place, certificate)
      const fresh = async () => (await workers.ids()).find((id) => !known.has(id))
      while ((await fresh()) === undefined) {
        await raise(one.url, world, 'user.login')
        await until(async () => (await fresh()) !== undefined, 500).catch(() => {})
      }
      const worker = (await fresh())!
      known.add(worker)
      return { ...one, worker }
    }
    const both = [await introduced(), await introduced()]
    for (let round = 1; round <= kills; round++) {
      const at = random() < 0.5 ? 0 : 1
      const victim = both[at]!
      after(1 + Math.floor(random() * 2 * perRound), world, () => victim.service.kill('SIGKILL'))
      await storm(
        both.map(({ url }) => url),
        world,
        perRound,
      )
      expect(await victim.service.ended).toEqual({ code: null, signal: 'SIGKILL' })
      expect(both[1 - at]!.service.running).toBe(true)
      await workers.haveDied([victim.worker])
      both[at] = await introduced()
    }
    await untilQuiet(both[0]!.url, world)
    for (const { service } of both) expect(await service.stop()).toEqual({ code: 0, signal: null })
    await checkWhole(database, world, kills)
  })

  it('release the queues of a dead one 30 s after its last heartbeat, and no sooner', async () => {
    const { database, workers, world } = await start()
    const { service, url } = await started(database, certificate)
    const { opened: asked, open: answer } = gate()
    const [all, , logins] = world.hooks
    all!.to.answer = () => ({ status: 204, when: asked })
    await raise(url, world, 'patch.failed')
    await all!.to.until(1)
    const [dead] = await workers.holders()
    const begin = new Date().toISOString()
    service.kill('SIGKILL')
    await service.ended
    answer()
    const freeAt = (await workers.aliveUntil(dead!))!
    expect(freeAt <= addSeconds(begin, 30)).toBe(true)

    const clock = testClock(addSeconds(freeAt, -0.001))
    const other = await serviceOn(database, { env: reaching(certificate), clock })
    for (let n = 1; n <= 2; n++) {
      await raise(other.url, world, 'user.login')
      await logins!.to.until(n)
    }
    expect(all!.to.got).toHaveLength(1)
    expect(await workers.holders()).toContain(dead)
    clock.forward(0.001)
    await untilQuiet(other.url, world)
    await other.close()
    await checkWhole(database, world, 1)
    expect(all!.to.got).toHaveLength(4)
  })
})

import { describe, expect, it, onTestFinished } from 'vitest'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth, randomFrom, seed } from '../depth.ts'
import { after, checkWhole, finish, makeWorld, started, storm, workersOn } from './killing.ts'

const kills = depth(2, 5)
const perRound = 150

describe.skipIf(!hasOpenssl)('kill -9', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    it(`loses no accepted event and no sequence number (SEED=${seed})`, async () => {
      const random = randomFrom(seed)
      const database = await open()
      await database.storage.close()
      const { databaseUrl } = database
      const workers = databaseUrl === undefined ? undefined : await workersOn(databaseUrl)
      if (workers) onTestFinished(workers.close)
      const world = await makeWorld(database, certificate)
      for (let round = 1; round <= kills; round++) {
        const { service, url } = await started(database, certificate)
        // 150 events make 225 deliveries.
        after(1 + Math.floor(random() * 2.4 * perRound), world, () => service.kill('SIGKILL'))
        await storm([url], world, perRound)
        expect(await service.ended).toEqual({ code: null, signal: 'SIGKILL' })
        await workers?.haveDied(await workers.ids())
      }
      await finish(database, certificate, world)
      await checkWhole(database, world, kills)
    })
  })
})

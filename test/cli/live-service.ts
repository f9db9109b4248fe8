import { afterAll, beforeAll } from 'vitest'
import { openMigrated, type TestDatabase } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { buildWorld, type World } from '../world.ts'
import { Home } from './run.ts'

/** A service on SQLite with the world of the tests, which a file runs the real binary against. */
export function liveService() {
  const live = { home: new Home() } as { readonly home: Home; service: TestService; world: World }
  let database: TestDatabase
  beforeAll(async () => {
    database = await openMigrated('sqlite')
    live.service = await serviceOn(database)
    live.world = await buildWorld(live.service)
  })
  afterAll(async () => {
    await live.service?.close()
    await database?.close()
    live.home.remove()
  })
  return live
}

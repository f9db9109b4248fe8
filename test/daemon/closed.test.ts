import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { pino } from 'pino'
import { expect, it } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { serve } from '../../daemon/serve.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { adminEmail, adminPassword, testSecrets } from '../harness.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** Starts and closes a service; what is returned does not keep it in memory. */
async function closedService(dataDir: string, databaseUrl: string | undefined) {
  const config = readConfig({
    ...testSecrets,
    ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
    SVC_DATA_DIR: dataDir,
    PORT: '0',
    SVC_ADMIN_EMAIL: adminEmail,
    SVC_ADMIN_PASSWORD: adminPassword,
  })
  const service = await serve(config, systemClock, { log: pino({ level: 'silent' }) })
  await fetch(`${service.url}/health`).then((reply) => reply.text())
  await service.close()
  return new WeakRef(service.storage)
}

onEveryDatabase((_, open) => {
  // A timer, an observer or a listener that goes on would keep it, and cost processor time for as long as the process runs.
  it('a service that is closed leaves nothing in memory', async () => {
    const { dataDir, databaseUrl } = await open()
    const storage = await closedService(dataDir, databaseUrl)
    const left = () => {
      collectGarbage()
      return storage.deref() === undefined ? 'nothing' : 'the service'
    }
    await expect.poll(left, { timeout: 10_000 }).toBe('nothing')
  })
})

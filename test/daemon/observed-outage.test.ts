import pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess, serviceEnv } from './process.ts'
import { send } from './request.ts'

const token = 'YJke2C/PB6ZHQF0hW+OJAgV7Lobb3I4S1Hd2SMRVA1s='

async function begin() {
  const server = await OwnPostgres.begin()
  const place = { dataDir: await temporaryFolder(), databaseUrl: server.databaseUrl }
  const first = await serviceOn(place)
  const { tokens } = await buildWorld(first)
  await first.close()
  const service = new ServeProcess(place, { env: { ...serviceEnv, METRICS_TOKEN: token } })
  const url = await service.listening()
  const scrape = async () => {
    const reply = await fetch(`${url}/metrics`, {
      headers: { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(8000),
    })
    const text = await reply.text()
    return {
      status: reply.status,
      isOfProcess: text.includes('svc_connections{') || text.includes('svc_connections '),
      isOfDatabase: text.includes('svc_set_aside_rows'),
      lacking: /^svc_metrics_lacking (\d)$/m.exec(text)?.[1],
    }
  }
  const ready = async () => {
    const reply = await fetch(`${url}/health/ready`, { signal: AbortSignal.timeout(8000) })
    return { status: reply.status, text: await reply.text() }
  }
  return { server, service, url, tokens, scrape, ready }
}

const whole = { status: 200, isOfProcess: true, isOfDatabase: true, lacking: '0' }
const ofProcess = {
  status: 200,
  isOfProcess: true,
  isOfDatabase: false,
  lacking: expect.stringMatching(/[1-9]/),
}

it('metrics of the process are served while the database is frozen, and all metrics afterwards', async () => {
  const { server, service, scrape, ready } = await begin()
  expect(await scrape()).toEqual(whole)
  server.signalAll('SIGSTOP')
  try {
    expect(await scrape()).toEqual(ofProcess)
    expect(await ready()).toMatchObject({ status: 503 })
  } finally {
    server.signalAll('SIGCONT')
  }
  await expect.poll(scrape, { timeout: 20_000 }).toEqual(whole)
  await service.stop()
})

it('readiness and metrics answer while requests hold every database connection', async () => {
  const { server, service, url, tokens, scrape, ready } = await begin()
  const client = new pg.Client(server.databaseUrl)
  await client.connect()
  onTestFinished(() => client.end().catch(() => {}))
  await client.query('begin; lock table sites in access exclusive mode')
  const requests = Array.from({ length: 40 }, () =>
    send(url, 'GET', '/api/v1/orgs/sites', { token: tokens.bakery }).then(({ status }) => status, String),
  )
  await new Promise((resolve) => setTimeout(resolve, 500))
  expect(await scrape()).toMatchObject({ status: 200, isOfProcess: true })
  expect(await ready()).toMatchObject({
    status: 200,
    text: expect.stringContaining('database'),
  })
  await client.query('rollback')
  for (const status of await Promise.all(requests)) expect([200, 503]).toContain(status)
  await expect.poll(scrape, { timeout: 20_000 }).toEqual(whole)
  expect(await ready()).toMatchObject({ status: 200 })
  await service.stop()
})

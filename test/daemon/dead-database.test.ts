import { expect, test } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess } from './process.ts'
import { send } from './request.ts'
import { pause, Writers } from './writers.ts'

async function serviceUnderLoad() {
  const server = await OwnPostgres.begin()
  const place = { dataDir: await temporaryFolder(), databaseUrl: server.databaseUrl }
  const first = await serviceOn(place)
  const { tokens, orgs } = await buildWorld(first)
  await first.close()
  const service = new ServeProcess(place)
  const url = await service.listening()
  const writers = new Writers(tokens.bakery, orgs.bakery.id)
  writers.begin(url)
  const count = () => writers.acknowledged.length
  await expect.poll(count, { timeout: 10_000 }).toBeGreaterThan(50)
  /** Until more writes are acknowledged and readiness is 200. */
  const recovers = async () => {
    const before = count()
    await expect.poll(count, { timeout: 20_000 }).toBeGreaterThan(before + 50)
    await expect.poll(async () => (await ready(url)).status, { timeout: 10_000 }).toBe(200)
  }
  return { server, place, service, url, writers, recovers }
}

const ready = (url: string) => send<{ checks: { database: string } }>(url, 'GET', '/health/ready')

test('no acknowledged write is lost when the processes of the database are killed', async () => {
  const { server, service, url, writers, recovers } = await serviceUnderLoad()
  const one = await server.ask(async (client) => {
    const { rows } = await client.query(
      `select pid from pg_stat_activity where application_name = 'svc' limit 1`,
    )
    return rows[0].pid as number
  })
  process.kill(one, 'SIGKILL')
  await recovers()

  await server.kill()
  await expect
    .poll(() => ready(url), { timeout: 10_000 })
    .toMatchObject({ status: 503, body: { checks: { database: 'error: unreachable' } } })
  await server.start()
  await recovers()

  await writers.end()
  expect(writers.wrong).toEqual([])
  expect(writers.replies.filter(({ status }) => status === 503).length).toBeGreaterThan(0)
  expect(await writers.missing(url)).toEqual([])
  expect(service.stderr).not.toContain('"stack"')
  expect(await service.stop()).toEqual({ code: 0, signal: null })
}, 60_000)

test('with a frozen database readiness is 503, SIGTERM ends the service, and no write is lost', async () => {
  const { server, place, service, url, writers } = await serviceUnderLoad()
  server.signalAll('SIGSTOP')
  expect(await ready(url)).toMatchObject({
    status: 503,
    body: { checks: { database: expect.stringMatching(/^error: (unreachable|no answer)/) } },
  })
  expect((await send(url, 'GET', '/health/live')).status).toBe(200)
  await pause(1100)
  // A request is in flight while it ends.
  const asked = ready(url).catch(() => undefined)
  await pause(50)
  const begun = performance.now()
  expect(await service.stop()).toEqual({ code: 0, signal: null })
  expect(performance.now() - begun).toBeLessThan(10_000)
  await asked
  await writers.end()

  server.signalAll('SIGCONT')
  const again = new ServeProcess(place)
  const there = await again.listening()
  expect(writers.wrong).toEqual([])
  expect(await writers.missing(there)).toEqual([])
  expect(await writers.add(there)).toBe(201)
  expect(await again.stop()).toEqual({ code: 0, signal: null })
}, 60_000)

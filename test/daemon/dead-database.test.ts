import { expect, test } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { type LossyProxy, lossyProxy } from '../storage/packet-loss-proxy.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess, serviceEnv } from './process.ts'
import { send } from './request.ts'
import { pause, Writers } from './writers.ts'

/** A service with writers of two tenants; `between`: what its connections go through. */
async function serviceUnderLoad(between?: (databaseUrl: string) => Promise<LossyProxy>) {
  const server = await OwnPostgres.begin()
  const dataDir = await temporaryFolder()
  const first = await serviceOn({ dataDir, databaseUrl: server.databaseUrl })
  const { tokens, orgs } = await buildWorld(first)
  await first.close()
  const proxy = await between?.(server.databaseUrl)
  const place = { dataDir, databaseUrl: proxy?.databaseUrl ?? server.databaseUrl }
  const env = { ...serviceEnv, DATABASE_STATEMENT_TIMEOUT_MS: '3000' }
  const service = new ServeProcess(place, proxy ? { env } : {})
  const url = await service.listening()
  const all = [new Writers(tokens.bakery, orgs.bakery.id), new Writers(tokens.harbor, orgs.harbor.id)]
  for (const one of all) one.begin(url)
  const counts = () => all.map((one) => one.acknowledged.length)
  const more = (than: number[]) => () => counts().every((count, n) => count > than[n]! + 25)
  await expect.poll(more([0, 0]), { timeout: 10_000 }).toBe(true)
  return {
    server,
    place,
    service,
    url,
    tokens,
    proxy: proxy!,
    /** Until more writes of each tenant are acknowledged and readiness is 200. */
    async recovers() {
      await expect.poll(more(counts()), { timeout: 20_000 }).toBe(true)
      await expect.poll(async () => (await ready(url)).status, { timeout: 10_000 }).toBe(200)
    },
    end: () => Promise.all(all.map((one) => one.end())),
    refusals: () => all.map((one) => one.replies.filter(({ status }) => status === 503).length),
    wrong: () => all.flatMap((one) => one.wrong),
    notOnce: async (at: string) => (await Promise.all(all.map((one) => one.notOnce(at)))).flat(),
    add: (at: string) => Promise.all(all.map((one) => one.add(at))),
  }
}

/** Ends the service in the middle of a request; within ten seconds, as the manual says. */
async function ends(service: ServeProcess, url: string): Promise<void> {
  const asked = ready(url).catch(() => undefined)
  await pause(50)
  const begun = performance.now()
  expect(await service.stop()).toEqual({ code: 0, signal: null })
  expect(performance.now() - begun).toBeLessThan(10_000)
  await asked
}

const ready = (url: string) => send<{ checks: { database: string } }>(url, 'GET', '/health/ready')

test('no acknowledged write is lost when the processes of the database are killed', async () => {
  const { server, service, url, ...writers } = await serviceUnderLoad()
  const one = await server.ask(async (client) => {
    const { rows } = await client.query(
      `select pid from pg_stat_activity where application_name = 'svc' limit 1`,
    )
    return rows[0].pid as number
  })
  process.kill(one, 'SIGKILL')
  await writers.recovers()

  const isUnreachable = { status: 503, body: { checks: { database: 'error: unreachable' } } }
  await server.kill()
  await expect.poll(() => ready(url), { timeout: 10_000 }).toMatchObject(isUnreachable)
  await expect.poll(() => Math.min(...writers.refusals()), { timeout: 20_000 }).toBeGreaterThan(0)
  await server.start()
  await writers.recovers()
  await writers.end()
  expect(writers.wrong()).toEqual([])
  expect(await writers.notOnce(url)).toEqual([])
  expect(service.stderr).not.toContain('"stack"')

  await server.kill()
  await ends(service, url)
})

test('with a frozen database readiness is 503, SIGTERM ends the service, and no write is lost', async () => {
  const { server, place, service, url, ...writers } = await serviceUnderLoad()
  server.signalAll('SIGSTOP')
  expect(await ready(url)).toMatchObject({
    status: 503,
    body: { checks: { database: expect.stringMatching(/^error: (unreachable|no answer)/) } },
  })
  expect((await send(url, 'GET', '/health/live')).status).toBe(200)
  await pause(1100)
  await ends(service, url)
  await writers.end()

  server.signalAll('SIGCONT')
  const again = new ServeProcess(place)
  const there = await again.listening()
  expect(writers.wrong()).toEqual([])
  expect(await writers.notOnce(there)).toEqual([])
  expect(await writers.add(there)).toEqual([201, 201])
  expect(await again.stop()).toEqual({ code: 0, signal: null })
})

test('while the database is read-only, reads are served, changes get 503, and readiness says why', async () => {
  const { server, service, url, tokens, ...writers } = await serviceUnderLoad()
  const readOnly = (state: 'on' | 'off') =>
    server.ask(async (client) => {
      await client.query(`alter system set default_transaction_read_only = ${state}`)
      await client.query('select pg_reload_conf()')
    })
  await readOnly('on')
  await expect
    .poll(() => ready(url), { timeout: 10_000 })
    .toMatchObject({ status: 503, body: { checks: { database: 'error: read-only' } } })
  await expect.poll(() => Math.min(...writers.refusals()), { timeout: 10_000 }).toBeGreaterThan(0)
  for (const token of [tokens.bakery, tokens.harbor])
    expect((await send(url, 'GET', '/api/v1/orgs/sites', { token })).status).toBe(200)
  await readOnly('off')
  await writers.recovers()
  await writers.end()
  expect(writers.wrong()).toEqual([])
  expect(await writers.notOnce(url)).toEqual([])
  expect(service.stderr).not.toContain('"stack"')
  expect(service.stderr).toContain('"sqlState":"25006"')
  expect(await service.stop()).toEqual({ code: 0, signal: null })
})

test('when a firewall drops every packet, the service recovers by itself, and no write is lost', async () => {
  const { service, url, proxy, ...writers } = await serviceUnderLoad(lossyProxy)
  proxy.swallow()
  await expect.poll(async () => (await ready(url)).status, { timeout: 10_000 }).toBe(503)
  expect((await send(url, 'GET', '/health/live')).status).toBe(200)
  await expect.poll(() => Math.min(...writers.refusals()), { timeout: 20_000 }).toBeGreaterThan(0)
  // The connections from before stay silent for ever.
  proxy.recover()
  await writers.recovers()
  await writers.end()
  expect(writers.wrong()).toEqual([])
  expect(await writers.notOnce(url)).toEqual([])
  expect(service.stderr).not.toContain('"stack"')

  proxy.swallow()
  await ends(service, url)
})

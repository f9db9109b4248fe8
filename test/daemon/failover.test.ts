import { chmodSync, copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { describe, expect, inject, onTestFinished, test } from 'vitest'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { OwnPostgres, replicated } from '../own-postgres.ts'
import { buildWorld } from '../world.ts'
import { movingAddress } from './moving-address.ts'
import { failedStart, ServeProcess } from './process.ts'
import { send } from './request.ts'
import { Writers } from './writers.ts'

const certificate = testCertificate()
const other = testCertificate()
/** Of another host: valid, and trusted by whoever trusts it. */
const elsewhere = testCertificate({ names: 'DNS:elsewhere.test' })

const ready = (url: string) => send(url, 'GET', '/health/ready')

test('when the primary dies and its standby is promoted, everything that was acknowledged is there', async () => {
  const primary = await OwnPostgres.begin({ settings: replicated })
  const dataDir = await temporaryFolder()
  const first = await serviceOn({ dataDir, databaseUrl: primary.databaseUrl })
  const { tokens, orgs } = await buildWorld(first)
  await first.close()
  const standby = await primary.synchronousStandby()

  const address = await movingAddress(primary.databaseUrl)
  const service = new ServeProcess({ dataDir, databaseUrl: address.databaseUrl })
  const url = await service.listening(60_000)
  const writers = new Writers(tokens.bakery, orgs.bakery.id)
  writers.begin(url)
  await expect.poll(() => writers.acknowledged.length, { timeout: 40_000 }).toBeGreaterThan(50)
  await primary.kill()
  // The address still leads to nobody, then to a server that accepts no change, then to a primary.
  address.leadTo(standby.databaseUrl)
  await expect
    .poll(() => ready(url), { timeout: 30_000 })
    .toMatchObject({ status: 503, body: { checks: { database: 'error: read-only' } } })
  const before = writers.acknowledged.length
  standby.promote()
  await expect.poll(() => writers.acknowledged.length, { timeout: 40_000 }).toBeGreaterThan(before + 25)
  await expect.poll(async () => (await ready(url)).status, { timeout: 20_000 }).toBe(200)
  await writers.end()
  expect(writers.wrong).toEqual([])
  expect(await writers.notOnce(url)).toEqual([])
  expect(service.stderr).not.toContain('"stack"')
  expect(await service.stop()).toEqual({ code: 0, signal: null })
}, 180_000)

test('a server without a free connection is 503 until it has one again', async () => {
  const server = await OwnPostgres.begin({ settings: { max_connections: '30' } })
  const dataDir = await temporaryFolder()
  const place = { dataDir, databaseUrl: server.databaseUrl }
  const first = await serviceOn(place)
  const { tokens, orgs } = await buildWorld(first)
  await first.close()
  const service = new ServeProcess(place)
  const url = await service.listening(60_000)
  const writers = new Writers(tokens.bakery, orgs.bakery.id)
  writers.begin(url)
  await expect.poll(() => writers.acknowledged.length, { timeout: 40_000 }).toBeGreaterThan(20)

  const held: pg.Client[] = []
  const take = async (): Promise<boolean> => {
    const client = new pg.Client(server.databaseUrl)
    client.on('error', () => {})
    try {
      await client.connect()
      held.push(client)
      return true
    } catch {
      return false
    }
  }
  onTestFinished(async () => void (await Promise.allSettled(held.map((one) => one.end()))))
  await expect
    .poll(
      async () => {
        while (await take());
        const away = `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'svc%'`
        await held[0]!.query(away)
        while (await take());
        return ready(url)
      },
      { timeout: 60_000 },
    )
    .toMatchObject({ status: 503, body: { checks: { database: 'error: unreachable' } } })
  await Promise.allSettled(held.map((one) => one.end()))
  const before = writers.acknowledged.length
  await expect.poll(() => writers.acknowledged.length, { timeout: 40_000 }).toBeGreaterThan(before + 25)
  await expect.poll(async () => (await ready(url)).status, { timeout: 20_000 }).toBe(200)
  await writers.end()
  expect(writers.wrong).toEqual([])
  expect(await writers.notOnce(url)).toEqual([])
  expect(await service.stop()).toEqual({ code: 0, signal: null })
}, 180_000)

/** A server with TLS, and a way to be connected with it by whoever trusts this certificate. */
async function serverWithTls({ file }: typeof certificate) {
  // Not within the folder of the tests, which the user of the server may not enter.
  const folder = mkdtempSync(join(dirname(inject('temporaryFolder')), 'svc-postgres-tls-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  chmodSync(folder, 0o755)
  const at = (name: string) => join(folder, name)
  copyFileSync(file, at('cert.pem'))
  copyFileSync(file.replace('cert.pem', 'key.pem'), at('key.pem'))
  chmodSync(at('key.pem'), 0o600)
  await OwnPostgres.give(at('key.pem'))
  const settings = { ssl: 'on', ssl_cert_file: at('cert.pem'), ssl_key_file: at('key.pem') }
  const server = await OwnPostgres.begin({ settings })
  const through = (trusted: typeof certificate, sslmode = 'verify-full') =>
    `${server.databaseUrl}?sslmode=${sslmode}&sslrootcert=${trusted.file}`
  return { server, through }
}

const refusedIn = async (databaseUrl: string) => {
  const { code, stderr } = await failedStart({ databaseUrl })
  expect(code).toBe(1)
  return stderr
}

describe.skipIf(!hasOpenssl)('TLS verifies the server', () => {
  test('another authority is refused in one sentence', async () => {
    const { server, through } = await serverWithTls(certificate)
    expect(await refusedIn(through(other))).toMatch(
      /^svc serve: Cannot use PostgreSQL at 127\.0\.0\.1:\d+, [^\n]*certificate[^\n]*\n$/,
    )
    const service = new ServeProcess({ dataDir: await temporaryFolder(), databaseUrl: through(certificate) })
    expect((await ready(await service.listening(60_000))).status).toBe(200)
    const encrypted = await server.ask(async (client) => {
      const { rows } = await client.query(
        `select bool_and(ssl) as ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name like 'svc%'`,
      )
      return rows[0].ssl as boolean
    })
    expect(encrypted).toBe(true)
    expect(await service.stop()).toEqual({ code: 0, signal: null })
  })

  test('a trusted certificate of another host is refused in one sentence', async () => {
    const { through } = await serverWithTls(elsewhere)
    const [byAddress, byName] = [through(elsewhere), through(elsewhere).replace('127.0.0.1', 'localhost')]
    expect(await refusedIn(byAddress)).toMatch(
      /^svc serve: Cannot use PostgreSQL at 127\.0\.0\.1:\d+, [^\n]*IP: 127\.0\.0\.1 is not in the cert[^\n]*\n$/,
    )
    expect(await refusedIn(byName)).toMatch(
      /^svc serve: Cannot use PostgreSQL at localhost:\d+, [^\n]*Host: localhost\. is not in the cert[^\n]*elsewhere\.test[^\n]*\n$/,
    )
    // Whoever asks for the authority alone gets it: the certificate itself is good.
    const databaseUrl = through(elsewhere, 'verify-ca&uselibpqcompat=true')
    const service = new ServeProcess({ dataDir: await temporaryFolder(), databaseUrl })
    expect((await ready(await service.listening(60_000))).status).toBe(200)
    expect(await service.stop()).toEqual({ code: 0, signal: null })
  })
})

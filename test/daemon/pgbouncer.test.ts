import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { describe, expect, inject, onTestFinished, test } from 'vitest'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { freePort } from '../postgres.ts'
import { buildWorld } from '../world.ts'
import { failedStart, ServeProcess, until } from './process.ts'
import { send } from './request.ts'
import { Writers } from './writers.ts'

const missing = spawnSync('pgbouncer', ['--version']).status === 0 ? undefined : 'pgbouncer is not installed'

/** Debian's PgBouncer before a database; returns the URL that leads through it. */
async function pgbouncer(databaseUrl: string, mode: 'session' | 'transaction'): Promise<string> {
  const { hostname, port, username, password, pathname } = new URL(databaseUrl)
  const listens = await freePort()
  const place = `host=${hostname} port=${port} dbname=${pathname.slice(1)} user=${username} password=${password}`
  // Not within the folder of the tests, which nobody else may enter.
  const file = join(
    await mkdtemp(join(dirname(inject('temporaryFolder')), 'svc-pgbouncer-')),
    'pgbouncer.ini',
  )
  const settings = [
    ...['listen_addr = 127.0.0.1', `listen_port = ${listens}`, 'unix_socket_dir ='],
    ...[
      'auth_type = any',
      `pool_mode = ${mode}`,
      'default_pool_size = 60',
      'server_reset_query = DISCARD ALL',
    ],
  ]
  writeFileSync(file, ['[databases]', `svc = ${place}`, '[pgbouncer]', ...settings, ''].join('\n'), {
    mode: 0o644,
  })
  spawnSync('chmod', ['755', dirname(file)])
  // It refuses to run as root.
  const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}
  const child = spawn('pgbouncer', [file], { stdio: ['ignore', 'ignore', 'pipe'], cwd: '/', ...nobody })
  let log = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text
  })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await ended
    spawnSync('rm', ['-r', dirname(file)])
  })
  const url = `postgres://${username}:x@127.0.0.1:${listens}/svc`
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`pgbouncer ended: ${log}`)
    const client = new pg.Client(url)
    client.on('error', () => {})
    const answers = await client.connect().then(
      () => true,
      () => false,
    )
    await client.end().catch(() => {})
    return answers
  }, 10_000)
  return url
}

describe.skipIf(missing !== undefined)(`behind PgBouncer (${missing ?? 'of this machine'})`, () => {
  test('in transaction mode the service refuses to start, in one sentence', async () => {
    const { databaseUrl, storage } = await openMigrated('postgres')
    await storage.close()
    const { code, stderr } = await failedStart({ databaseUrl: await pgbouncer(databaseUrl!, 'transaction') })
    expect(code).toBe(1)
    expect(stderr.trim().split('\n')).toEqual([
      expect.stringMatching(/DATABASE_URL leads to a connection pooler .* set the pooler to session mode/),
    ])
  }, 30_000)

  test('in session mode two replicas serve, and nothing that was acknowledged is lost', async () => {
    const { databaseUrl: direct, storage } = await openMigrated('postgres')
    await storage.close()
    const first = await serviceOn({ dataDir: await temporaryFolder(), databaseUrl: direct! })
    const { tokens, orgs } = await buildWorld(first)
    await first.close()
    const databaseUrl = await pgbouncer(direct!, 'session')
    const place = async () => ({ dataDir: await temporaryFolder(), databaseUrl })
    const services = [new ServeProcess(await place()), new ServeProcess(await place())]
    const urls = await Promise.all(services.map((one) => one.listening()))
    const writers = [new Writers(tokens.bakery, orgs.bakery.id), new Writers(tokens.harbor, orgs.harbor.id)]
    for (const [n, one] of writers.entries()) one.begin(urls[n]!)
    await expect
      .poll(() => writers.every((one) => one.acknowledged.length > 50), { timeout: 20_000 })
      .toBe(true)
    for (const url of urls) expect((await send(url, 'GET', '/health/ready')).status).toBe(200)
    for (const one of writers) await one.end()
    expect(writers.flatMap((one) => one.replies.filter(({ status }) => status !== 201))).toEqual([])
    // Each replica sees what the other one wrote.
    expect(await writers[0]!.missing(urls[1]!)).toEqual([])
    expect(await writers[1]!.missing(urls[0]!)).toEqual([])
    for (const one of services) expect(await one.stop()).toEqual({ code: 0, signal: null })
  }, 60_000)
})

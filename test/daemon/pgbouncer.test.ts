import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import pg from 'pg'
import { describe, expect, inject, onTestFinished, test } from 'vitest'
import { openEmpty, openMigrated, temporaryFolder } from '../databases.ts'
import { isSoak } from '../depth.ts'
import { serviceOn } from '../harness.ts'
import { replaced, textOf } from '../operations/guide.ts'
import { OwnPostgres, replicated } from '../own-postgres.ts'
import { freePort } from '../postgres.ts'
import { buildWorld } from '../world.ts'
import { svc } from './backup/binary.ts'
import { movingAddress } from './moving-address.ts'
import { failedStart, ServeProcess, serviceEnv, until } from './process.ts'
import { send } from './request.ts'
import { Writers } from './writers.ts'

const missing = spawnSync('pgbouncer', ['--version']).status === 0 ? undefined : 'pgbouncer is not installed'

/** Debian's PgBouncer before a database. */
async function pooler(databaseUrl: string, mode: 'session' | 'transaction') {
  const { username, password } = new URL(databaseUrl)
  const listens = await freePort()
  // Not within the folder of the tests, which nobody else may enter.
  const file = join(
    await mkdtemp(join(dirname(inject('temporaryFolder')), 'svc-pgbouncer-')),
    'pgbouncer.ini',
  )
  /** The configuration of the guide of operators. */
  const configure = (to: string) => {
    const { hostname, port, pathname } = new URL(to)
    const settings = replaced(textOf('pgbouncer.ini'), {
      'host=127.0.0.1 port=5432 dbname=svc': `host=${hostname} port=${port} dbname=${pathname.slice(1)} user=${username} password=${password}`,
      'listen_port = 6432': `listen_port = ${listens}`,
      'auth_type = scram-sha-256\nauth_file = /etc/pgbouncer/userlist.txt': 'auth_type = any',
      'pool_mode = session': `pool_mode = ${mode}`,
      // Fewer sessions than clients: in transaction mode each is passed on all the time.
      'default_pool_size = 60': `default_pool_size = ${mode === 'session' ? 60 : 4}`,
    })
    writeFileSync(file, settings, { mode: 0o644 })
  }
  configure(databaseUrl)
  spawnSync('chmod', ['755', dirname(file)])
  const url = `postgres://${username}:x@127.0.0.1:${listens}/svc`
  const start = async () => {
    // It refuses to run as root.
    const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}
    const child = spawn('pgbouncer', [file], { stdio: ['ignore', 'ignore', 'pipe'], cwd: '/', ...nobody })
    let log = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      log += text
    })
    const ended = new Promise((resolve) => child.once('exit', resolve))
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
    return { child, ended }
  }
  let running = await start()
  const kill = async () => {
    running.child.kill('SIGKILL')
    await running.ended
  }
  onTestFinished(async () => {
    await kill()
    spawnSync('rm', ['-r', dirname(file)])
  })
  return {
    url,
    kill,
    async start() {
      running = await start()
    },
    /** As its operator does after a failover: another address in its configuration, and a reload. */
    leadTo(next: string) {
      configure(next)
      running.child.kill('SIGHUP')
    },
  }
}

const pgbouncer = async (databaseUrl: string, mode: 'session' | 'transaction') =>
  (await pooler(databaseUrl, mode)).url

/** In `npm test` each rule is tried in one of the modes. */
const modes = ['session', 'transaction'] as const
const modeOr = (one: (typeof modes)[number]) => (isSoak ? modes : [one])

describe.skipIf(missing !== undefined)(`behind PgBouncer (${missing ?? 'of this machine'})`, () => {
  test('in transaction mode the service refuses to start, in one sentence', async () => {
    const { databaseUrl, storage } = await openMigrated('postgres')
    await storage.close()
    const { code, stderr } = await failedStart({ databaseUrl: await pgbouncer(databaseUrl!, 'transaction') })
    expect(code).toBe(1)
    expect(stderr.trim().split('\n')).toEqual([
      expect.stringMatching(
        /DATABASE_URL leads to a connection pooler .* set DATABASE_DIRECT_URL to the address of PostgreSQL itself, .*/,
      ),
    ])
  })

  test('an address for sessions has to be one, and lead to the same database', async () => {
    const { databaseUrl: direct, storage } = await openMigrated('postgres')
    const other = await openMigrated('postgres')
    await Promise.all([storage.close(), other.storage.close()])
    const databaseUrl = await pgbouncer(direct!, 'transaction')
    const examined = async (DATABASE_DIRECT_URL: string) => {
      const dataDir = await temporaryFolder()
      const env = { ...serviceEnv, DATABASE_DIRECT_URL }
      const { stdout } = await svc(['doctor', '--offline', '--json'], { dataDir, databaseUrl }, env)
      const { findings } = JSON.parse(stdout) as { findings: { check: string; message: string }[] }
      return findings.filter(({ check }) => check === 'pooler').map(({ message }) => message)
    }
    const refused = async (DATABASE_DIRECT_URL: string) => {
      const { code, stderr } = await failedStart(
        { databaseUrl },
        { env: { ...serviceEnv, DATABASE_DIRECT_URL } },
      )
      expect([code, stderr.trim().split('\n').length]).toEqual([1, 1])
      return stderr
    }
    expect(await refused(databaseUrl)).toMatch(/DATABASE_DIRECT_URL leads to a connection pooler/)
    expect(await refused(other.databaseUrl!)).toMatch(/lead to two databases/)
    expect(await examined(other.databaseUrl!)).toEqual([expect.stringMatching(/lead to two databases/)])
    expect(await examined(direct!)).toEqual(['DATABASE_URL and DATABASE_DIRECT_URL lead to one database'])
  })

  test.each(modeOr('session'))(
    'in %s mode two replicas serve, and nothing that was acknowledged is lost',
    async (mode) => {
      const { databaseUrl: direct, storage } = await openMigrated('postgres')
      const first = await serviceOn({ dataDir: await temporaryFolder(), databaseUrl: direct! })
      const { tokens, orgs } = await buildWorld(first)
      await first.close()
      const databaseUrl = await pgbouncer(direct!, mode)
      const place = async () => ({ dataDir: await temporaryFolder(), databaseUrl })
      const env = { ...serviceEnv, ...(mode === 'transaction' && { DATABASE_DIRECT_URL: direct! }) }
      const services = [new ServeProcess(await place(), { env }), new ServeProcess(await place(), { env })]
      const urls = await Promise.all(services.map((one) => one.listening(60_000)))
      const writers = [new Writers(tokens.bakery, orgs.bakery.id), new Writers(tokens.harbor, orgs.harbor.id)]
      for (const [n, one] of writers.entries()) one.begin(urls[n]!)
      await expect
        .poll(() => writers.every((one) => one.acknowledged.length > 50), { timeout: 40_000 })
        .toBe(true)
      for (const url of urls) expect((await send(url, 'GET', '/health/ready')).status).toBe(200)
      for (const one of writers) await one.end()
      expect(writers.flatMap((one) => one.replies.filter(({ status }) => status !== 201))).toEqual([])
      // Each replica sees what the other one wrote.
      expect(await writers[0]!.notOnce(urls[1]!)).toEqual([])
      expect(await writers[1]!.notOnce(urls[0]!)).toEqual([])
      for (const one of services) expect(await one.stop()).toEqual({ code: 0, signal: null })
      await storage.close()
    },
    180_000,
  )

  test.each(modeOr('transaction'))(
    'in %s mode its restart and a failover behind it need nobody, and each write is stored once',
    async (mode) => {
      const primary = await OwnPostgres.begin({ settings: replicated })
      const dataDir = await temporaryFolder()
      const first = await serviceOn({ dataDir, databaseUrl: primary.databaseUrl })
      const { tokens, orgs } = await buildWorld(first)
      await first.close()
      const standby = await primary.synchronousStandby()
      const direct = await movingAddress(primary.databaseUrl)
      const between = await pooler(primary.databaseUrl, mode)
      const env = {
        ...serviceEnv,
        ...(mode === 'transaction' && { DATABASE_DIRECT_URL: direct.databaseUrl }),
      }
      const service = new ServeProcess({ dataDir, databaseUrl: between.url }, { env })
      const url = await service.listening(60_000)
      const ready = () => send<{ checks: { database: string } }>(url, 'GET', '/health/ready')
      const writers = new Writers(tokens.bakery, orgs.bakery.id)
      writers.begin(url)
      const goesOn = async (count: number) => {
        const before = writers.acknowledged.length
        await expect
          .poll(() => writers.acknowledged.length, { timeout: 60_000 })
          .toBeGreaterThan(before + count)
      }
      await goesOn(50)

      await between.kill()
      await expect
        .poll(ready, { timeout: 30_000 })
        .toMatchObject({ status: 503, body: { checks: { database: 'error: unreachable' } } })
      await between.start()
      await goesOn(25)
      await expect.poll(async () => (await ready()).status, { timeout: 30_000 }).toBe(200)

      await primary.kill()
      standby.promote()
      direct.leadTo(standby.databaseUrl)
      between.leadTo(standby.databaseUrl)
      await goesOn(25)
      await expect.poll(async () => (await ready()).status, { timeout: 30_000 }).toBe(200)
      await writers.end()
      expect(writers.replies.filter(({ status }) => status !== 201).length).toBeGreaterThan(0)
      expect(writers.wrong).toEqual([])
      expect(await writers.notOnce(url)).toEqual([])
      expect(service.stderr).not.toContain('"stack"')
      expect(await service.stop()).toEqual({ code: 0, signal: null })
    },
    240_000,
  )

  test('the locks of sessions end with their holder, also with one that was frozen', async () => {
    const { databaseUrl: direct, storage } = await openEmpty('postgres')
    const databaseUrl = await pgbouncer(direct!, 'transaction')
    const folder = await temporaryFolder()
    writeFileSync(join(folder, '0001_waits.ts'), '')
    const script = fileURLToPath(new URL('../storage/locks-child.ts', import.meta.url))
    const child = spawn(process.execPath, [script, direct!, databaseUrl, folder], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = new Promise((resolve) => child.once('exit', resolve))
    onTestFinished(async () => {
      child.kill('SIGKILL')
      await ended
    })
    const held = async () => {
      const { rows } = await sql<{ classid: number }>`
        select distinct classid::int as classid from pg_locks where locktype = 'advisory' and granted
        and database = (select oid from pg_database where datname = current_database()) order by 1`.execute(
        storage.read,
      )
      return rows.map(({ classid }) => classid)
    }
    const [migrations, listeners] = [0x737663, 1937138540]
    await expect.poll(held, { timeout: 40_000 }).toEqual([migrations, listeners])
    // The server notices after a minute.
    if (isSoak) {
      child.kill('SIGSTOP')
      await expect.poll(held, { timeout: 90_000, interval: 1000 }).toEqual([])
      child.kill('SIGCONT')
      await expect.poll(held, { timeout: 30_000 }).toEqual([listeners])
    }
    child.kill('SIGKILL')
    await expect.poll(held, { timeout: 20_000 }).toEqual([])
    await storage.close()
  }, 200_000)
})

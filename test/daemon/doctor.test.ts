import { hash } from 'node:crypto'
import { chmod, lstat, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { examine } from '../../daemon/doctor/checks.ts'
import { runCheck } from '../../daemon/doctor/finding.ts'
import { addressFinding } from '../../daemon/doctor/network.ts'
import { migrations } from '../../migrations/index.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { SetupError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import { createMark } from '../../src/storage/backup/restore-mark.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { onEveryDatabase, onEveryEmptyDatabase, openMigrated, temporaryFolder } from '../databases.ts'
import { serviceOn, startService, testSecrets } from '../harness.ts'
import { certificate, privateKey } from '../messages/certificate.ts'
import { startMailServer } from '../messages/mail-server.ts'
import { metricsToken } from '../metric-values.ts'
import { buildWorld } from '../world.ts'
import { asking, damaged, damageSqlite } from './damage.ts'
import { type Env, findingsOf, summaryOf } from './doctor/findings.ts'
import { ServeProcess } from './process.ts'

it('ends a finding with one full stop, whatever it quotes', async () => {
  const { dataDir } = await openMigrated('sqlite')
  const refuse = async () => {
    throw new SetupError('The file is damaged. Restore it from a backup.')
  }
  const { findings } = await runCheck('queues', refuse)
  expect(findings.map(({ message }) => message)).toEqual([
    'This cannot be checked: The file is damaged. Restore it from a backup.',
  ])
  const direct = {
    DATABASE_URL: 'postgres://a@127.0.0.1:1/a',
    DATABASE_DIRECT_URL: 'postgres://a@127.0.0.1:1/a',
  }
  for (const env of [{}, direct]) {
    const found = await findingsOf(
      { dataDir, databaseUrl: undefined },
      { ...env, SVC_DATA_DIR: dataDir, PORT: '1' },
      false,
    )
    expect(found.length).toBeGreaterThan(0)
    for (const { message, reason, remedy } of found)
      for (const text of [message, reason, remedy]) expect(text).not.toMatch(/\.\.$/)
  }
})

onEveryDatabase((kind, open) => {
  it('finds nothing in an installation that is well, with rows of every kind', async () => {
    const service = await startService(open)
    await buildWorld(service)
    await chmod(service.dataDir, 0o700)
    // It was filled by hand: its webhooks and devices are in every state, and one mail waits.
    const found = await findingsOf(service)
    expect(found.filter(({ check }) => !['webhooks', 'devices', 'mail', 'queues'].includes(check))).toEqual(
      [],
    )
  })

  it('sees a damaged page', async () => {
    const service = await startService(open)
    await buildWorld(service)
    await service.close()
    const place = await damaged(kind, service, ['scripts'])
    if (kind === 'postgres') {
      // PostgreSQL notices when somebody reads the page.
      const read = asking(place.databaseUrl!, (client) => client.query('select * from scripts'))
      await expect(read).rejects.toMatchObject({ code: 'XX001' })
    }
    const pages = () => findingsOf(place).then((all) => all.find(({ check }) => check === 'database pages'))
    await expect.poll(pages, { timeout: 15_000 }).toMatchObject({
      state: 'error',
      message: expect.stringMatching({ sqlite: /scripts/, postgres: /checksum failures/ }[kind]),
      remedy: expect.stringContaining('restore the database from a backup'),
    })
  })

  it('names the columns whose values were encrypted with another key, and those that were changed', async () => {
    const { storage, ...place } = await open()
    const service = await serviceOn(place)
    const { orgs } = await buildWorld(service)
    const { id } = (await storage.read.selectFrom('webhooks').select('id').executeTakeFirst())!
    const { id: changed } = (await storage.read
      .selectFrom('webhooks')
      .select('id')
      .where('id', '<>', id)
      .executeTakeFirst())!
    const foreign = createCipher(['another key of which nothing is known'])
    const own = createCipher([testSecrets.APP_ENCRYPTION_KEY])
    await storage.write(async (tx) => {
      const table = tx.updateTable('webhooks')
      await table
        .set({ secret: foreign.encrypt('s', `webhooks.secret.${id}`) })
        .where('id', '=', id)
        .execute()
      const moved = own.encrypt('s', `webhooks.secret.${newId()}`)
      await table.set({ secret: moved }).where('id', '=', changed).execute()
      const clientSecret = foreign.encrypt('s', `sso_providers.client_secret.${orgs.bakery.providerId}`)
      await tx
        .updateTable('sso_providers')
        .set({ client_secret: clientSecret })
        .where('id', '=', orgs.bakery.providerId)
        .execute()
    })
    const found = (await findingsOf(place)).filter(({ check }) => check === 'encrypted values')
    expect(summaryOf(found)).toEqual([
      [
        'encrypted values',
        'error',
        '1 value of webhooks.secret encrypted with another key, 1 value of webhooks.secret changed since.',
      ],
      ['encrypted values', 'error', '1 value of sso_providers.client_secret encrypted with another key.'],
    ])
    expect(found[1]?.remedy).toContain('svc sso update')
  })

  it('names secrets that have been in use for more than a year, and how each is changed', async () => {
    const { storage, ...place } = await open()
    const file = join(place.dataDir, 'secrets.json')
    await writeFile(file, JSON.stringify({ jwt: testSecrets.JWT_SECRET }), { mode: 0o600 })
    await (await serviceOn(place, { env: { JWT_SECRET: '' } })).close()
    const ages = async () =>
      (await findingsOf(place, { JWT_SECRET: undefined })).filter(({ check }) => check === 'secret ages')
    const usedSince = (days: number) =>
      storage.write((tx) =>
        tx
          .updateTable('key_prints')
          .set({ since: addSeconds(systemClock(), -days * 86_400) })
          .where('name', 'in', ['JWT_SECRET', 'MFA_RECOVERY_CODE_PEPPER'])
          .execute(),
      )
    await usedSince(364)
    expect(await ages()).toEqual([])
    await usedSince(366)
    expect(await ages()).toMatchObject([
      {
        state: 'warning',
        message: expect.stringMatching(/^JWT_SECRET has been in use for 366 days, since \d{4}-\d\d-\d\d\.$/),
        remedy: 'svc secrets rotate JWT_SECRET',
      },
      {
        message: expect.stringMatching(/^MFA_RECOVERY_CODE_PEPPER has been in use for 366 days/),
        remedy: 'change it where it is set, as svc-serve(8) says under Changing a key',
      },
    ])
  })

  it('refuses other keys than those of the database', async () => {
    const service = await startService(open)
    await service.close()
    const found = await findingsOf(service, { JWT_SECRET: 'AAjq8b9DsX+YFc4PacPescFk0DSwo7kDQduSA9o90wI=' })
    expect(found.find(({ check }) => check === 'keys')).toMatchObject({
      state: 'error',
      message: 'The database is used with other keys: JWT_SECRET.',
    })
  })

  it('reports tampered chains, dead letters, failed webhooks and stuck queues', async () => {
    const { storage, ...place } = await open()
    const service = await serviceOn(place)
    const { orgs } = await buildWorld(service)
    const org = orgs.bakery.id
    await service.close()
    const long = '2020-01-01T00:00:00.000Z'
    await storage.write(async (tx) => {
      const row = { verdict: 'tampered', fault: null, entries: 1, checked_at: long, seal: null }
      await tx
        .insertInto('audit_verdicts')
        .values({ chain: org, ...row })
        .onConflict((c) => c.column('chain').doUpdateSet(row))
        .execute()
      await tx
        .insertInto('set_aside')
        .values({ source: 'events', org_id: org, entry: '{}', reason: 'refused', created_at: long })
        .execute()
      await tx
        .insertInto('set_aside_lost')
        .values({ source: 'events', count: 2, reason: 'full', last_at: new Date().toISOString() })
        .execute()
      await tx
        .updateTable('webhooks')
        .set({ status: 'error' })
        .where('id', '=', orgs.bakery.webhookId)
        .execute()
      await tx.updateTable('webhook_queues').set({ due_at: null }).execute()
      await tx
        .updateTable('webhook_queues')
        .set({ due_at: long })
        .where('webhook_id', '=', orgs.bakery.webhookId)
        .execute()
      await tx.deleteFrom('mails').execute()
      const mail = { id: newId(), kind: 'invitation', attempts: 3, lease: null, expires_at: '9999' }
      const content = createCipher([testSecrets.APP_ENCRYPTION_KEY]).encrypt('{}', `mails.content.${mail.id}`)
      await tx
        .insertInto('mails')
        .values({ ...mail, content, due_at: long, created_at: long })
        .execute()
    })
    const found = summaryOf(await findingsOf(place))
    expect(found).toEqual(
      expect.arrayContaining([
        ['audit log', 'error', `1 chain not sound: ${org} (tampered).`],
        ['dead letters', 'warning', '1 row could not be written to events.'],
        ['dead letters', 'error', '2 rows of events were lost (full).'],
        [
          'webhooks',
          'warning',
          expect.stringMatching(/^the deliveries of 1 webhook.* ten minutes or longer\.$/),
        ],
        ['webhooks', 'warning', expect.stringMatching(/^\d webhooks? failed too often\.$/)],
        ['mail', 'warning', '1 mail could not be sent for ten minutes or longer.'],
      ]),
    )
  })

  it('sees a service that is down, one that is another program, and one that runs', async () => {
    const { storage, ...place } = await open()
    const service = await serviceOn(place)
    const port = (url: string) => new URL(url).port
    const online = async (port: string) =>
      (await findingsOf(place, { PORT: port }, false)).filter(({ check }) => check === 'service')
    expect(await online(port(service.url))).toEqual([])
    await service.close()
    expect(await online(port(service.url))).toMatchObject([
      { state: 'error', message: expect.stringMatching(/nothing listens there/) },
    ])
    const other = await listening(createServer((_, reply) => void reply.end('hello')))
    expect(await online(`${other}`)).toMatchObject([
      { state: 'error', message: expect.stringMatching(/answered by another program/) },
    ])
  })
})

onEveryEmptyDatabase((kind, open) => {
  it('--fix applies the migrations of which an older database has only the first', async () => {
    const { storage, dataDir, databaseUrl } = await open()
    await migrate(storage, migrations.slice(0, 20))
    const env = { ...testSecrets, SVC_DATA_DIR: dataDir, DATABASE_URL: databaseUrl }
    const before = await examine({}, { offline: true, env })
    expect(before.findings.find(({ check }) => check === 'database schema')).toMatchObject({
      state: 'warning',
    })
    for (const { run } of before.repairs) await run()
    const after = await examine({}, { offline: true, env })
    expect(after.findings.find(({ check }) => check === 'database schema')).toMatchObject({ state: 'ok' })
    expect(after.repairs).toEqual([])
    expect(kind).toBeDefined()
  })
})

const listening = async (server: ReturnType<typeof createServer>): Promise<number> => {
  server.listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await new Promise((resolve) => server.once('listening', resolve))
  return (server.address() as AddressInfo).port
}

it('creates nothing: without a data directory, a database or secrets it says so', async () => {
  const folder = await temporaryFolder()
  const nowhere = join(folder, 'none')
  expect(summaryOf(await findingsOf({ dataDir: nowhere }))).toEqual([
    ['data directory', 'error', `The data directory ${nowhere} does not exist.`],
  ])
  const empty = join(folder, 'empty')
  await mkdir(empty, { mode: 0o700 })
  const without = Object.fromEntries(Object.keys(testSecrets).map((name) => [name, undefined]))
  const secrets = await findingsOf({ dataDir: empty }, without)
  expect(secrets).toMatchObject([
    {
      check: 'settings',
      message: expect.stringMatching(
        /JWT_SECRET, APP_ENCRYPTION_KEY, .*are missing.*for a new installation svc serve generates them/,
      ),
    },
    { check: 'database' },
  ])
  expect(await findingsOf({ dataDir: empty })).toMatchObject([
    { check: 'database', message: expect.stringMatching(/no database/) },
  ])
  await expect(rm(join(empty, 'secrets.json'))).rejects.toMatchObject({ code: 'ENOENT' })
  await expect(rm(join(empty, 'svc.sqlite'))).rejects.toMatchObject({ code: 'ENOENT' })
})

it('names settings that do not work, without their secrets', async () => {
  const { dataDir } = await openMigrated('sqlite')
  const [found] = await findingsOf({ dataDir }, { DATABASE_URL: 'postgres://svc:s3cret@[::/' })
  expect(found).toMatchObject({
    check: 'settings',
    state: 'error',
    message: expect.stringMatching(/DATABASE_URL is not a valid URL/),
  })
  expect(JSON.stringify(found)).not.toContain('s3cret')
  const unreachable = await findingsOf({ dataDir }, { DATABASE_URL: 'postgres://svc:s3cret@127.0.0.1:1/svc' })
  expect(unreachable.find(({ check }) => check === 'database')).toMatchObject({ state: 'error' })
  expect(JSON.stringify(unreachable)).not.toContain('s3cret')
})

it('a file that is no database, and files that others may read', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  await chmod(dataDir, 0o755)
  await writeFile(join(dataDir, 'secrets.json'), '{}', { mode: 0o644 })
  const readable = (await findingsOf({ dataDir })).filter(({ check }) => check === 'data directory')
  expect(readable.map(({ remedy }) => remedy)).toEqual(
    expect.arrayContaining([`chmod 0700 ${dataDir}`, `chmod 0600 ${join(dataDir, 'secrets.json')}`]),
  )
  await writeFile(join(dataDir, 'svc.sqlite'), 'no database, but longer than a header of one: '.repeat(100))
  const [found] = (await findingsOf({ dataDir })).filter(({ check }) => check === 'database')
  expect(found).toMatchObject({ state: 'error' })
})

it('secrets that another key serves as are named before that key is changed', async () => {
  const { dataDir } = await openMigrated('sqlite')
  const settingsWith = async (env: Env) =>
    (await findingsOf({ dataDir }, env)).filter(({ check }) => check === 'settings')
  expect(
    await settingsWith({ ENROLLMENT_KEY_PEPPER: undefined, AUDIT_SIGNING_KEY: undefined }),
  ).toMatchObject([
    {
      message: 'ENROLLMENT_KEY_PEPPER is not set: APP_ENCRYPTION_KEY serves as it.',
      remedy: expect.stringContaining(
        'set ENROLLMENT_KEY_PEPPER_PREVIOUS to the present value of APP_ENCRYPTION_KEY',
      ),
    },
    {
      message: 'AUDIT_SIGNING_KEY is not set: it is derived from APP_ENCRYPTION_KEY.',
      remedy: expect.stringContaining('set AUDIT_SIGNING_KEY to a new one'),
    },
  ])
  expect(await settingsWith({ ENROLLMENT_KEY_PEPPER: testSecrets.JWT_SECRET })).toMatchObject([
    { message: 'ENROLLMENT_KEY_PEPPER is the same as JWT_SECRET.' },
  ])
})

it('judges by three addresses whether a proxy hides its clients, or lets them choose', () => {
  const own = '198.51.100.9'
  const judge = (seen: string, seenForged: string, isBelieved = false) =>
    addressFinding({ own, isBelieved, seen, seenForged }).state
  expect(judge(own, own)).toBe('ok')
  expect(judge('127.0.0.1', '127.0.0.1')).toBe('warning')
  expect(judge(own, '192.0.2.1')).toBe('error')
  // Another machine between, or network address translation.
  expect(judge('203.0.113.7', '203.0.113.7')).toBe('ok')
  expect(judge('192.0.2.1', '192.0.2.1', true)).toBe('ok')
})

it('from this machine the address of a client is shown, and not judged', async () => {
  const { storage, ...place } = await openMigrated('sqlite')
  const { url } = await serviceOn(place, { env: { TRUST_PROXY_HEADERS: 'true' } })
  const { findings } = await examine(
    {},
    {
      offline: false,
      env: { ...testSecrets, SVC_DATA_DIR: place.dataDir, PORT: new URL(url).port, PUBLIC_URL: url },
    },
  )
  const found = findings.filter(({ check }) => check === 'client addresses')
  expect(found).toMatchObject([
    { state: 'ok', message: expect.stringContaining('sees this machine as 127.0.0.1;') },
  ])
})

it('a service that limits this machine is not taken for another program', async () => {
  const { storage, ...place } = await openMigrated('sqlite')
  const { url } = await serviceOn(place, { env: { RATE_LIMIT_IP: '1/60', METRICS_TOKEN: metricsToken } })
  await fetch(`${url}/api/v1/health`)
  const found = await findingsOf(place, { PORT: new URL(url).port, METRICS_TOKEN: metricsToken }, false)
  expect(found.filter(({ check }) => check === 'service')).toMatchObject([
    { state: 'warning', message: expect.stringMatching(/429/) },
  ])
})

/** Every file with its content, mode and time of change. */
async function snapshot(folder: string): Promise<Record<string, string>> {
  const names = (await readdir(folder, { recursive: true })).sort()
  const entries = names.map(async (name) => {
    const path = join(folder, name)
    const { mode, mtimeMs, size } = await stat(path)
    const content = (await lstat(path)).isFile() ? hash('sha256', await readFile(path), 'hex') : ''
    return [name, `${mode} ${mtimeMs} ${size} ${content}`]
  })
  return Object.fromEntries(await Promise.all(entries))
}

it('changes nothing: neither a database that is stopped, nor the log of one that was killed', async () => {
  const stopped = await openMigrated('sqlite')
  await (await serviceOn(stopped)).close()
  await stopped.storage.close()
  await chmod(stopped.dataDir, 0o755)
  await chmod(join(stopped.dataDir, 'svc.sqlite'), 0o644)
  const before = await snapshot(stopped.dataDir)
  expect((await findingsOf(stopped)).filter(({ check }) => check === 'data directory')).toHaveLength(2)
  // SQLite leaves an empty log and its index.
  const { 'svc.sqlite-wal': wal, 'svc.sqlite-shm': shm, ...after } = await snapshot(stopped.dataDir)
  expect(after).toEqual(before)
  expect((await readFile(join(stopped.dataDir, 'svc.sqlite-wal')).catch(() => '')).length).toBe(0)

  const dataDir = await temporaryFolder()
  const killed = new ServeProcess({ dataDir })
  await killed.listening()
  killed.kill('SIGKILL')
  await killed.ended
  const files = ['svc.sqlite', 'svc.sqlite-wal']
  const contents = () => Promise.all(files.map((name) => readFile(join(dataDir, name))))
  const left = await contents()
  expect(left[1]!.length).toBeGreaterThan(0)
  expect((await findingsOf({ dataDir })).filter(({ check }) => check.startsWith('database'))).toEqual([])
  expect(await contents()).toEqual(left)
})

it('a lost database is an error, and nothing is offered to hide it', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  await writeFile(join(dataDir, 'svc.sqlite'), '')
  const env = { ...testSecrets, SVC_DATA_DIR: dataDir }
  const { findings, repairs } = await examine({}, { offline: true, env })
  expect(findings.find(({ check }) => check === 'database schema')).toMatchObject({
    state: 'error',
    message: 'The database is empty, or belongs to another program.',
  })
  expect(repairs.filter(({ plan }) => !plan.startsWith('chmod'))).toEqual([])
})

it('a restore that was interrupted is repeated, not migrated', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.write((tx) => createMark(tx as never as AnyDb))
  await storage.close()
  const { findings, repairs } = await examine(
    {},
    { offline: true, env: { ...testSecrets, SVC_DATA_DIR: dataDir } },
  )
  expect(findings.find(({ check }) => check === 'database schema')).toMatchObject({
    state: 'error',
    message: expect.stringContaining('repeat svc db restore'),
  })
  expect(repairs.filter(({ plan }) => !plan.startsWith('chmod'))).toEqual([])
})

it('a damaged database is not migrated', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.write((tx) =>
    (tx as never as AnyDb).deleteFrom('svc_migrations').where('name', 'like', '0058%').execute(),
  )
  await storage.close()
  await damageSqlite(dataDir, (database) =>
    database.prepare<[], number>(`select rootpage from sqlite_schema where name = 'scripts'`).pluck().all(),
  )
  const { findings, repairs } = await examine(
    {},
    { offline: true, env: { ...testSecrets, SVC_DATA_DIR: dataDir } },
  )
  expect(findings.find(({ check }) => check === 'database schema')).toMatchObject({ state: 'warning' })
  expect(repairs.filter(({ plan }) => !plan.startsWith('chmod'))).toEqual([])
})

it('one wrong setting does not hide what is wrong with the database', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  await writeFile(join(dataDir, 'svc.sqlite'), '')
  const found = await findingsOf({ dataDir }, { PORT: 'abc' })
  expect(found.map(({ check }) => check)).toEqual(expect.arrayContaining(['settings', 'database schema']))
})

it('what a link leads to is not changed', async () => {
  const { dataDir, storage } = await openMigrated('sqlite')
  await storage.close()
  await chmod(dataDir, 0o700)
  const elsewhere = join(await temporaryFolder(), 'mounted')
  await writeFile(elsewhere, '{}', { mode: 0o644 })
  await symlink(elsewhere, join(dataDir, 'secrets.json'))
  const { findings, repairs } = await examine(
    {},
    { offline: true, env: { ...testSecrets, SVC_DATA_DIR: dataDir } },
  )
  expect(findings.filter(({ check }) => check === 'data directory')).toMatchObject([
    { state: 'warning', remedy: 'restrict what the link leads to' },
  ])
  expect(repairs).toEqual([])
})

it('failures of TLS and of the name are in words', async () => {
  const { storage, ...place } = await openMigrated('sqlite')
  await serviceOn(place)
  const address = async (publicUrl: string) => {
    const all = await findingsOf(
      place,
      { PUBLIC_URL: publicUrl, TRUST_PROXY_HEADERS: 'true', PORT: '0' },
      false,
    )
    return all.filter(({ check }) => check === 'public address').map(({ message }) => message)
  }
  const tls = await listening(
    createTlsServer({ key: privateKey, cert: certificate }, (_, reply) => void reply.end()),
  )
  const plain = await listening(createServer((_, reply) => void reply.end('hello')))
  expect(await address(`https://localhost:${tls}`)).toEqual([
    expect.stringContaining('its certificate is self-signed'),
  ])
  expect(await address(`https://localhost:${plain}`)).toEqual([
    expect.stringContaining('it does not speak TLS'),
  ])
  expect(await address('https://svc.invalid')).toEqual([expect.stringContaining('its name does not resolve')])
  expect(await address(`http://localhost:${plain}`)).toEqual([
    expect.stringContaining('not as this service does'),
  ])
})

it('a mail server is asked whether it accepts the user, and gets no mail', async () => {
  const place = await openMigrated('sqlite')
  const server = await startMailServer({ plain: true, login: { user: 'svc', pass: 'right' } })
  const mail = async (password: string) => {
    const url = `smtp://svc:${password}@127.0.0.1:${server.port}`
    const all = await findingsOf(place, { SMTP_URL: url, SMTP_STARTTLS: 'false', PORT: '0' }, false)
    return all.filter(({ check }) => check === 'mail')
  }
  expect(await mail('right')).toEqual([])
  expect(await mail('wrong')).toMatchObject([
    { state: 'error', message: expect.stringMatching(/cannot be used/) },
  ])
  expect(server.received).toEqual([])
})

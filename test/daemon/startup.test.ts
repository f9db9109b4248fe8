import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Kysely } from 'kysely'
import { describe, expect, it, onTestFinished } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { api } from '../../src/api.ts'
import { onEveryDatabase, onEveryEmptyDatabase, openMigrated, temporaryFolder } from '../databases.ts'
import { takesTurn } from '../depth.ts'
import { adminEmail, adminPassword, clientOf, serviceOn, testSecrets } from '../harness.ts'
import { overTcp } from '../postgres-databases.ts'
import { failedStart, type Place, ServeProcess, serviceEnv, until } from './process.ts'

/** A failed start prints one line, without internals, and exits with 1. */
const oneLine = (about: RegExp) => ({
  code: 1,
  signal: null,
  stdout: '',
  stderr: expect.stringMatching(new RegExp(`^svc serve: [^\\n]*${about.source}[^\\n]*\\n$`)),
})

describe('a setting', () => {
  it('that is empty or blank counts as not set, whichever it is', () => {
    const manual = readFileSync(new URL('../../man/svc-serve.8.md', import.meta.url), 'utf8')
    const rows = [...manual.matchAll(/^\| ([A-Z][A-Z0-9_, ]+) \|/gm)].map(([, names]) => names!)
    const all = rows.flatMap((names) => names.split(', ')).filter((name) => !(name in serviceEnv))
    expect(all).toEqual(expect.arrayContaining(['HOST', 'SVC_DATA_DIR', 'LOG_LEVEL', 'DATABASE_POOL_SIZE']))
    const unset = readConfig(serviceEnv)
    for (const name of all)
      for (const empty of ['', ' '])
        expect([name, readConfig({ ...serviceEnv, [name]: empty })]).toEqual([name, unset])
    expect(unset.host).toBe('127.0.0.1')
    expect(unset.dataDir).toMatch(/\/data$/)
  })

  it.each([
    [{ SVC_ADMIN_EMAIL: 'garbage' }, 'SVC_ADMIN_EMAIL must be an e-mail address'],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL must be one of fatal, error'],
  ])('%o is refused with an error that names it', (env, message) => {
    expect(() => readConfig({ ...serviceEnv, ...env })).toThrow(message)
  })

  it('read from an empty file is refused', async () => {
    const file = join(await temporaryFolder(), 'secret')
    await writeFile(file, '\n')
    const env = { ...serviceEnv, METRICS_TOKEN_FILE: file }
    expect(() => readConfig(env)).toThrow(
      `METRICS_TOKEN_FILE names an empty file: ${file} must contain METRICS_TOKEN`,
    )
  })
})

describe('a secrets.json', () => {
  it.each(['null', '[]', '"x"', '{"jwt":5}', '{"jwt":""}', '{"auditSigning":null}', ''])(
    'of %s is refused and left unchanged',
    async (text) => {
      const dataDir = await temporaryFolder()
      const file = join(dataDir, 'secrets.json')
      await writeFile(file, text)
      expect(() => readConfig({ SVC_DATA_DIR: dataDir })).toThrow(`${file} cannot be read: it`)
      expect(await readFile(file, 'utf8')).toBe(text)
    },
  )
})

describe('an unusable database is one clear line and exit 1', () => {
  it('for a damaged SQLite file, with the remedy', async () => {
    const dataDir = await temporaryFolder()
    await writeFile(
      join(dataDir, 'svc.sqlite'),
      'this is not a database, and longer than its header would be',
    )
    const start = await failedStart({ dataDir })
    expect(start).toMatchObject(oneLine(/svc\.sqlite is damaged .* Restore it from a backup/))
  })

  it('for an SQLite file that cannot be opened, and a data directory that cannot be created', async () => {
    const dataDir = await temporaryFolder()
    await mkdir(join(dataDir, 'svc.sqlite'))
    await expect(serviceOn({ dataDir })).rejects.toThrow(/^Cannot open the database file \S+svc\.sqlite: /)
    const file = join(dataDir, 'file')
    await writeFile(file, '')
    expect(await failedStart({}, { args: ['--data-dir', file] })).toMatchObject(
      oneLine(/Cannot use the data directory \S+: there is a file of that name\. Choose another/),
    )
    expect(await failedStart({}, { args: ['--data-dir', join(file, 'data')] })).toMatchObject(
      oneLine(/Cannot use the data directory \S+: a part of its path is a file\. Choose another/),
    )
    const locked = await temporaryFolder()
    await mkdir(join(locked, 'svc.lock'))
    expect(await failedStart({ dataDir: locked })).toMatchObject(
      oneLine(/Cannot open \S+svc\.lock for writing\./),
    )
  })

  it.each(['no such host', '192.0.2.1'])('for HOST=%s, which is no address of this machine', async (HOST) => {
    const start = await failedStart({ dataDir: await temporaryFolder() }, { env: { ...serviceEnv, HOST } })
    expect(start).toMatchObject(oneLine(/is no address of this machine \(E[A-Z_]+\)\. Set HOST/))
  })

  it('for a DATABASE_URL that leads nowhere, without its password', async () => {
    const good = overTcp((await openMigrated('postgres')).databaseUrl!)
    const changed = (change: (url: URL) => void) => {
      const url = new URL(good)
      url.password = 'hunter2-secret'
      change(url)
      return url.href
    }
    const urls = [
      changed(() => {}),
      changed((url) => (url.pathname = '/nowhere')),
      changed((url) => (url.port = '1')),
    ]
    const env = { ...serviceEnv, DATABASE_WAIT_SECONDS: '0' }
    const starts = await Promise.all(urls.map((databaseUrl) => failedStart({ databaseUrl }, { env })))
    for (const start of starts) {
      expect(start).toMatchObject(oneLine(/./))
      expect(start.stderr).toContain('PostgreSQL at ')
      expect(start.stderr).not.toContain('hunter2-secret')
    }
  })

  it.each([
    'mysql://svc:hunter2-secret@127.0.0.1/svc',
    'postgres://svc:hunter2-secret@127.0.0.1:99999/svc',
    'postgres://svc:hunter2-secret%@127.0.0.1/svc',
    'postgres://svc:hunter2/secret@127.0.0.1/svc',
  ])('for an invalid DATABASE_URL, by name and without its text: %s', (DATABASE_URL) => {
    const failure = failureOf({ DATABASE_URL })
    expect(failure).toMatch(/^DATABASE_URL /)
    expect(failure).not.toContain('hunter2')
  })
})

function failureOf(env: Record<string, string>): string {
  try {
    readConfig({ ...testSecrets, SVC_DATA_DIR: '/nowhere', ...env })
    return ''
  } catch (error) {
    return (error as Error).message
  }
}

/** As openssl prints it: in hex where the length is 64. */
const randomText = (length: number): string =>
  length === 64 ? randomBytes(32).toString('hex') : randomBytes(36).toString('base64').slice(0, length)

describe('secrets', () => {
  const fileOf = (dataDir: string) => join(dataDir, 'secrets.json')

  it('are created once, readable by the owner only, and reused', async () => {
    const dataDir = join(await temporaryFolder(), 'new')
    const env = { SVC_ADMIN_EMAIL: adminEmail, SVC_ADMIN_PASSWORD: adminPassword }
    const first = new ServeProcess({ dataDir }, { env })
    const body = { email: adminEmail, password: adminPassword }
    const { tokens } = await clientOf(await first.listening()).call(api.auth.login, { body })
    await first.stop()
    expect((await stat(dataDir)).mode & 0o777).toBe(0o700)
    for (const name of ['secrets.json', 'svc.sqlite']) {
      expect([name, (await stat(join(dataDir, name))).mode & 0o777]).toEqual([name, 0o600])
    }
    const text = await readFile(fileOf(dataDir), 'utf8')
    expect(Object.keys(JSON.parse(text)).sort()).toEqual([
      'auditSigning',
      'encryption',
      'enrollmentPepper',
      'jwt',
      'recoveryPepper',
    ])

    const second = new ServeProcess({ dataDir }, { env })
    const client = clientOf(await second.listening(), tokens!.accessToken)
    expect((await client.call(api.auth.me)).user.email).toBe(adminEmail)
    expect(await readFile(fileOf(dataDir), 'utf8')).toBe(text)
    expect(await readdir(dataDir)).not.toContainEqual(expect.stringMatching(/^secrets\.json\./))
  })

  it('are one set for all processes that start at the same moment on a new data directory', async () => {
    const script = fileURLToPath(new URL('./secrets-process.ts', import.meta.url))
    for (let attempt = 1; attempt <= 3; attempt++) {
      const dataDir = await temporaryFolder()
      const at = String(Date.now() + 800)
      const printed = await Promise.all(
        Array.from({ length: 3 }, async () => {
          const child = spawn(process.execPath, [script, dataDir, at], {
            stdio: ['ignore', 'pipe', 'inherit'],
          })
          return (await child.stdout.setEncoding('utf8').toArray()).join('')
        }),
      )
      expect(JSON.parse(printed[0]!).jwt).toHaveLength(43)
      expect(printed).toEqual([printed[0], printed[0], printed[0]])
    }
  })

  it('from the environment are never written to disk', async () => {
    const dataDir = await temporaryFolder()
    readConfig({ ...testSecrets, SVC_DATA_DIR: dataDir })
    expect(await readdir(dataDir)).toEqual([])
    const { JWT_SECRET } = testSecrets
    readConfig({ JWT_SECRET, SVC_DATA_DIR: dataDir })
    const kept = await readFile(fileOf(dataDir), 'utf8')
    expect(kept).toContain('recoveryPepper')
    expect(kept).not.toContain(JWT_SECRET)
  })

  it('are not generated in production: each missing variable is named', async () => {
    const start = await failedStart({}, { env: { NODE_ENV: 'production' } })
    expect(start).toMatchObject(oneLine(/production/))
    const names =
      'JWT_SECRET APP_ENCRYPTION_KEY SECRET_ENCRYPTION_KEY ENROLLMENT_KEY_PEPPER MFA_RECOVERY_CODE_PEPPER AUDIT_SIGNING_KEY'
    for (const name of names.split(' ')) expect(start.stderr).toContain(name)
  })

  it.each(['JWT_SECRET', 'MFA_RECOVERY_CODE_PEPPER'])(
    'are not generated in production where only %s is missing, and nothing is written',
    async (name) => {
      const dataDir = await temporaryFolder()
      const AUDIT_SIGNING_KEY = randomBytes(32).toString('base64')
      const env = { ...testSecrets, AUDIT_SIGNING_KEY, NODE_ENV: 'production', SVC_DATA_DIR: dataDir }
      expect(() => readConfig({ ...env, [name]: undefined })).toThrow(
        `In production svc does not generate its secrets: set ${name}, `,
      )
      expect(await readdir(dataDir)).toEqual([])
    },
  )

  it('are each of their own on a new data directory, also where some are set', async () => {
    for (const name of ['JWT_SECRET', 'APP_ENCRYPTION_KEY'] as const) {
      const env = { [name]: testSecrets[name], SVC_DATA_DIR: await temporaryFolder() }
      const { secrets } = readConfig(env)
      expect(new Set(Object.values(secrets)).size).toBe(5)
      expect(readConfig(env).secrets).toEqual(secrets)
    }
  })

  const keys = [
    'JWT_SECRET',
    'APP_ENCRYPTION_KEY',
    'SECRET_ENCRYPTION_KEY',
    'ENROLLMENT_KEY_PEPPER',
    'MFA_RECOVERY_CODE_PEPPER',
    'METRICS_TOKEN',
    'AGENT_ENROLLMENT_SECRET',
  ]
  const weak = ['a', 'a'.repeat(64), 'changeme'.repeat(8), 'a secret, of more than 32 characters']

  it.each(keys)(
    'stop the start in production when %s is weak, with one sentence that says how to make one',
    async (name) => {
      const file = join(await temporaryFolder(), name)
      for (const value of weak) {
        await writeFile(file, `${value}\n`)
        for (const given of [{ [name]: value }, { [name]: '', [`${name}_FILE`]: file }]) {
          const failure = failureOf({ ...given, NODE_ENV: 'production' })
          expect(failure).toMatch(
            new RegExp(`^${name} must be 32 random bytes .*: openssl rand -base64 32 prints`),
          )
          if (value.length > 1) expect(failure).not.toContain(value)
          expect(failureOf(given), 'while developing').toBe('')
        }
      }
      for (const good of [64, 43, 44, 48].map((length) => randomText(length)))
        expect(failureOf({ [name]: good, NODE_ENV: 'production' })).toBe('')
    },
  )

  it('that are weak are all named at once, and only a warning outside production', async () => {
    const given = { JWT_SECRET: 'a', ENROLLMENT_KEY_PEPPER: 'b' }
    expect(failureOf({ ...given, NODE_ENV: 'production' })).toMatch(
      /^JWT_SECRET, ENROLLMENT_KEY_PEPPER must be .* each/,
    )
    const zeros = { AUDIT_SIGNING_KEY: Buffer.alloc(32).toString('base64') }
    expect(failureOf({ ...zeros, NODE_ENV: 'production' })).toMatch(
      /^AUDIT_SIGNING_KEY must be 32 random bytes/,
    )
    const folder = await temporaryFolder()
    const service = new ServeProcess(
      { dataDir: folder },
      { env: { ...serviceEnv, ...given, LOG_LEVEL: 'warn' } },
    )
    await service.listening()
    await service.stop()
    expect(service.stderr).toContain('JWT_SECRET, ENROLLMENT_KEY_PEPPER must be 32 random bytes each')
  })

  it('that are previous may be weak', () => {
    const previous = {
      APP_ENCRYPTION_KEY_PREVIOUS: 'a weak one',
      AUDIT_SIGNING_KEY_PREVIOUS: Buffer.alloc(32).toString('base64'),
    }
    expect(failureOf({ ...previous, NODE_ENV: 'production' })).toBe('')
  })

  it('are read from the files that *_FILE variables name', async () => {
    const { dataDir, databaseUrl } = await openMigrated('postgres')
    const all = {
      ...serviceEnv,
      AUDIT_SIGNING_KEY: randomBytes(32).toString('base64'),
      DATABASE_URL: databaseUrl!,
    }
    const env: Record<string, string> = { NODE_ENV: 'production' }
    for (const [name, value] of Object.entries(all)) {
      const file = join(dataDir, name)
      await writeFile(file, `${value}\n`)
      if (name === 'SVC_ADMIN_EMAIL') env[name] = value
      else env[`${name}_FILE`] = file
    }
    const service = new ServeProcess({ dataDir }, { env })
    const client = clientOf(await service.listening())
    await client.call(api.auth.login, { body: { email: adminEmail, password: adminPassword } })
    expect(await readdir(dataDir)).not.toContain('secrets.json')
    expect(await readdir(dataDir)).not.toContain('svc.sqlite')
    expect(failureOf({ JWT_SECRET: '', JWT_SECRET_FILE: '/nowhere/jwt' })).toMatch(
      /^JWT_SECRET_FILE .*\/nowhere\/jwt/,
    )
  })

  it('that an older file lacks are added to it, the same for all processes', async () => {
    const dataDir = await temporaryFolder()
    const { secrets } = readConfig({ SVC_DATA_DIR: dataDir })
    const { auditSigning, ...older } = secrets
    await writeFile(fileOf(dataDir), JSON.stringify(older))
    expect(readConfig({ SVC_DATA_DIR: dataDir }).secrets).toEqual(secrets)
    expect(JSON.parse(await readFile(fileOf(dataDir), 'utf8'))).toEqual(secrets)
    expect(Buffer.from(auditSigning, 'base64')).toHaveLength(32)
  })

  it('derive one audit signing key for all processes that share them, until one is set', async () => {
    const config = async (env: Record<string, string>) =>
      readConfig({ ...testSecrets, ...env, SVC_DATA_DIR: await temporaryFolder() }).signing
    const [one, other] = [await config({}), await config({})]
    expect(one).toEqual(other)
    const AUDIT_SIGNING_KEY = Buffer.alloc(32, 'k').toString('base64')
    const given = await config({ AUDIT_SIGNING_KEY })
    expect(given).toEqual({ current: Buffer.alloc(32, 'k'), previous: one.current, isPreviousAssumed: true })
    const AUDIT_SIGNING_KEY_PREVIOUS = Buffer.alloc(32, 'p').toString('base64')
    const told = await config({ AUDIT_SIGNING_KEY, AUDIT_SIGNING_KEY_PREVIOUS })
    expect(told).toEqual({ ...given, previous: Buffer.alloc(32, 'p'), isPreviousAssumed: false })
    for (const name of ['AUDIT_SIGNING_KEY', 'AUDIT_SIGNING_KEY_PREVIOUS']) {
      const failure = failureOf({ [name]: 'too short to be a key' })
      expect(failure).toContain(`${name} must be 32 bytes in base64`)
      expect(failure).not.toContain('too short')
    }
  })

  it('in a damaged file are one clear error line that shows none of them', async () => {
    const dataDir = await temporaryFolder()
    await writeFile(fileOf(dataDir), '{"jwt":"a-half-written-sec')
    const failure = failureOf({ SVC_DATA_DIR: dataDir })
    expect(failure).toMatch(/secrets\.json cannot be read/)
    expect(failure).not.toContain('half-written')
  })
})

describe('a secret that another one serves as', () => {
  const { ENROLLMENT_KEY_PEPPER: _pepper, AUDIT_SIGNING_KEY: _signing, ...lacking } = serviceEnv
  const complete = {
    ...serviceEnv,
    AUDIT_SIGNING_KEY: randomBytes(32).toString('base64'),
    NODE_ENV: 'production',
  }
  const startWith = async (place: Place, env: Record<string, string>) => {
    const service = new ServeProcess(place, { env: { ...env, LOG_LEVEL: 'warn' } })
    await service.listening()
    await service.stop()
    return [...service.stderr.matchAll(/"msg":"(\w+) is not set: ([^.]+)\. ([^"]+)"/g)].map((found) =>
      found.slice(1),
    )
  }

  const kinds = ['sqlite', 'postgres'] as const
  it.each(kinds.filter((kind) => takesTurn(kind, 0)))(
    'stops the start in production on a new database, on %s',
    async (kind) => {
      const place = await openMigrated(kind)
      const start = await failedStart(place, { env: { ...lacking, NODE_ENV: 'production' } })
      expect(start).toMatchObject(
        oneLine(
          /A new database .* set ENROLLMENT_KEY_PEPPER and AUDIT_SIGNING_KEY \(openssl rand -base64 32/,
        ),
      )
      const { AUDIT_SIGNING_KEY: _, ...unsigned } = complete
      expect(await failedStart(place, { env: unsigned })).toMatchObject(
        oneLine(/A new database .* set AUDIT_SIGNING_KEY \(/),
      )
      // The refused start has left no trace of its keys.
      expect(await startWith(place, complete)).toEqual([])
      expect(await startWith(place, complete)).toEqual([])
    },
  )

  it.each(kinds.filter((kind) => takesTurn(kind, 1)))(
    'is a warning at each start on a database in use, with the way out, on %s',
    async (kind) => {
      const place = await openMigrated(kind)
      const pepperOf = (other: string) => [
        'ENROLLMENT_KEY_PEPPER',
        `${other} serves as it`,
        expect.stringContaining(
          `set ENROLLMENT_KEY_PEPPER_PREVIOUS to the present value of ${other}, and ENROLLMENT_KEY_PEPPER to a new one`,
        ),
      ]
      const signing = [
        'AUDIT_SIGNING_KEY',
        'it is derived from APP_ENCRYPTION_KEY',
        expect.stringContaining('set AUDIT_SIGNING_KEY to a new one'),
      ]
      const warned = [pepperOf('APP_ENCRYPTION_KEY'), signing]
      expect(await startWith(place, lacking)).toEqual(warned)
      const production = { ...lacking, NODE_ENV: 'production' }
      expect(await startWith(place, production)).toEqual(warned)
      expect(await startWith(place, production)).toEqual(warned)
      const out = {
        ...complete,
        ENROLLMENT_KEY_PEPPER_PREVIOUS: testSecrets.APP_ENCRYPTION_KEY,
      }
      expect(await startWith(place, out)).toEqual([])
    },
  )

  it('is named also where the others are in a file that lacks it', async () => {
    const dataDir = await temporaryFolder()
    const { jwt: _jwt, enrollmentPepper: _pepper, ...older } = readConfig({ SVC_DATA_DIR: dataDir }).secrets
    await writeFile(join(dataDir, 'secrets.json'), JSON.stringify(older))
    const env = { SVC_DATA_DIR: dataDir, JWT_SECRET: testSecrets.JWT_SECRET }
    const { secrets, fallbacks } = readConfig(env)
    expect(secrets.enrollmentPepper).toBe(testSecrets.JWT_SECRET)
    expect(fallbacks).toEqual([{ name: 'ENROLLMENT_KEY_PEPPER', from: 'JWT_SECRET' }])
  })
})

onEveryEmptyDatabase((_, open) => {
  it('AUTO_MIGRATE=false refuses to start while migrations are pending, and names the command', async () => {
    const database = await open()
    const starting = serviceOn(database, { env: { AUTO_MIGRATE: 'false' } })
    await expect(starting).rejects.toThrow(/0001_foundation.* Run: svc db migrate/)
  })
})

onEveryDatabase((_, open) => {
  it('AUTO_MIGRATE=false starts on a database that is up to date', async () => {
    const service = await serviceOn(await open(), { env: { AUTO_MIGRATE: 'false' } })
    expect((await service.client().call(api.service.health)).status).toBe('ok')
  })

  it.each(['true', 'false'])(
    'a changed migration stops the start and is named (AUTO_MIGRATE=%s)',
    async (auto) => {
      const database = await open()
      await database.storage.write((tx) =>
        (tx as unknown as Kysely<{ svc_migrations: { checksum: string } }>)
          .updateTable('svc_migrations')
          .set({ checksum: 'edited' })
          .execute(),
      )
      const starting = serviceOn(database, { env: { AUTO_MIGRATE: auto } })
      await expect(starting).rejects.toThrow(/0001_foundation\b.* changed .*/)
    },
  )

  it('the first password is in a file without a terminal, at the first start only', async () => {
    const database = await open()
    const first = new ServeProcess(database, { env: { ...testSecrets, LOG_LEVEL: 'debug' } })
    const url = await first.listening()
    await until(() => first.stderr.includes('Data: '))
    const password = readFileSync(join(database.dataDir, 'first-password'), 'utf8').trim()
    expect(password.length).toBeGreaterThanOrEqual(16)
    await clientOf(url).call(api.auth.login, { body: { email: 'admin@localhost', password } })
    await first.stop()
    expect(first.stdout + first.stderr).not.toContain(password)
    rmSync(join(database.dataDir, 'first-password'))

    const second = new ServeProcess(database, { env: { ...testSecrets, LOG_LEVEL: 'debug' } })
    await second.listening()
    await second.stop()
    expect(second.stderr).not.toMatch(/password/i)
    expect(existsSync(join(database.dataDir, 'first-password'))).toBe(false)
  })
})

describe('two services on one SQLite directory', () => {
  it('the second is refused in one line, and starts once the first has ended or was killed', async () => {
    const dataDir = await temporaryFolder()
    const first = new ServeProcess({ dataDir })
    await first.listening()
    expect(await failedStart({ dataDir })).toMatchObject(oneLine(/Another svc serve uses .* --data-dir\./))
    first.kill('SIGKILL')
    await first.ended
    const second = new ServeProcess({ dataDir })
    await second.listening()
    await second.stop()
  })
})

describe('a Postgres that is not up yet', () => {
  it('is waited for, with a log line', async () => {
    const { databaseUrl } = await openMigrated('postgres')
    const { port, hostname } = overTcp(databaseUrl!)
    const server = createServer((client) => {
      const database = connect(Number(port), hostname)
      client.pipe(database).pipe(client)
      for (const socket of [client, database]) socket.on('error', () => {})
    })
    const listen = async (on: number) => {
      await new Promise<void>((resolve) => server.listen(on, '127.0.0.1', resolve))
      return (server.address() as AddressInfo).port
    }
    const free = await listen(0)
    await new Promise((resolve) => server.close(resolve))
    const late = overTcp(databaseUrl!, free)
    const env = { ...serviceEnv, DATABASE_WAIT_SECONDS: '30' }
    const service = new ServeProcess({ dataDir: await temporaryFolder(), databaseUrl: late.href }, { env })
    await until(() => service.stderr.includes('waiting for the database'), 10_000)
    await listen(free)
    onTestFinished(() => void server.close())
    await service.listening()
    await service.stop()
  })

  it('is no longer waited for after a signal, also as PID 1 of a container', async () => {
    const databaseUrl = 'postgres://svc:x@127.0.0.1:1/svc'
    for (const [signal, code] of [
      ['SIGTERM', 143],
      ['SIGINT', 130],
    ] as const) {
      const env = { ...serviceEnv, DATABASE_WAIT_SECONDS: '30' }
      const service = new ServeProcess({ dataDir: await temporaryFolder(), databaseUrl }, { env })
      await until(() => service.stderr.includes('waiting for the database'), 10_000)
      service.kill(signal)
      expect(await service.ended).toEqual({ code, signal: null })
    }
  })
})

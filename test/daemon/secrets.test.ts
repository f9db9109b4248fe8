import { hash, randomBytes } from 'node:crypto'
import { readFile, rename, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { examine } from '../../daemon/doctor/checks.ts'
import { lockSecretsFile } from '../../daemon/secrets/file.ts'
import { listSecrets, resealValues, retireSecret, rotateSecret } from '../../daemon/secrets/rotation.ts'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { encryptedColumns } from '../../src/core/encrypted-columns.ts'
import { addSeconds } from '../../src/core/time.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { blockWrites } from '../../src/storage/copy/moved.ts'
import { countEncryptedWithOtherKeys } from '../../src/storage/encrypted-values.ts'
import { Home } from '../cli/run.ts'
import { type Open, onEveryDatabase, openMigrated } from '../databases.ts'
import { machine } from '../devices/device-fixture.ts'
import { noLimits, serviceOn, startService, testSecrets } from '../harness.ts'
import { buildWorld } from '../world.ts'

/** No secret is in the environment: all are in secrets.json. */
const generated = Object.fromEntries(Object.keys(testSecrets).map((name) => [name, '']))
const signingKey = 'ZGF0YSBvZiB0aGUgc2lnbmluZyBrZXksIDMyIGJ5dGU='

/** 32 random bytes, as nobody else has them. */
const fresh = () => randomBytes(32).toString('base64')

/** A service with rows of every kind, whose secrets are in secrets.json. */
async function begin(open: Open) {
  const database = await open()
  const place = { dataDir: database.dataDir, databaseUrl: database.databaseUrl }
  const file = join(place.dataDir, 'secrets.json')
  const secrets = {
    jwt: testSecrets.JWT_SECRET,
    encryption: testSecrets.APP_ENCRYPTION_KEY,
    enrollmentPepper: testSecrets.ENROLLMENT_KEY_PEPPER,
    recoveryPepper: testSecrets.MFA_RECOVERY_CODE_PEPPER,
    auditSigning: signingKey,
  }
  await writeFile(file, JSON.stringify(secrets), { mode: 0o600 })
  const env = { ...generated, SVC_DATA_DIR: place.dataDir, DATABASE_URL: place.databaseUrl ?? '' }
  const start = () => serviceOn(place, { env: generated })
  const service = await start()
  const world = await buildWorld(service)
  const stored = async () => JSON.parse(await readFile(file, 'utf8')) as Record<string, string>
  const list = async (now = new Date().toISOString()) => {
    const { secrets: all } = await listSecrets({}, now, env)
    return all.filter(({ state }) => state === 'previous').map(({ name, neededBy }) => [name, neededBy])
  }
  const retire = (name: Parameters<typeof rotateSecret>[1], now = new Date().toISOString(), force = false) =>
    retireSecret({}, name, { force, now, env })
  return { service, ...world, place, file, env, start, stored, list, retire, storage: database.storage }
}

onEveryDatabase((_kind, open) => {
  it('APP_ENCRYPTION_KEY: everything that the former key has encrypted is encrypted anew, and it retires', async () => {
    const { service, env, start, stored, list, retire, storage, file, orgs, tokens } = await begin(open)
    const before = await stored()
    const former = createCipher([before.encryption!])
    const fill = createCipher(['no key that anybody has'])
    const all = await countEncryptedWithOtherKeys(storage, fill)
    expect(all).toBeGreaterThan(5)
    expect((await rotateSecret({}, 'APP_ENCRYPTION_KEY', { env, dryRun: true })).id).toBeNull()
    expect(await stored()).toEqual(before)
    await rotateSecret({}, 'APP_ENCRYPTION_KEY', { env })
    expect(await stored()).toMatchObject({
      ...before,
      encryption: expect.any(String),
      encryptionPrevious: before.encryption,
    })
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    // The service that runs knows only the former key.
    await expect(resealValues({}, () => {}, env)).rejects.toThrow(
      /has not taken the present APP_ENCRYPTION_KEY/,
    )
    for (const force of [false, true]) {
      const early = retire('APP_ENCRYPTION_KEY', undefined, force)
      await expect(early).rejects.toThrow(
        /needed by the service, until it has taken the new one, process \d+ on \S+ \(started \S+\), which does not know the new one/,
      )
    }
    await expect(rotateSecret({}, 'APP_ENCRYPTION_KEY', { env })).rejects.toThrow(/Retire it first/)

    await service.close()
    const second = await start()
    expect(await list()).toEqual([['APP_ENCRYPTION_KEY', `${all} encrypted values`]])
    await expect(retire('APP_ENCRYPTION_KEY')).rejects.toThrow(/encrypted values\. Run: svc secrets reseal/)
    const seen: number[] = []
    expect(await resealValues({}, (count) => seen.push(count), env)).toEqual({
      resealed: all,
      unreadable: 0,
      locked: 0,
    })
    expect(seen.at(-1)).toBe(all)
    expect(await countEncryptedWithOtherKeys(storage, createCipher([(await stored()).encryption!]))).toBe(0)
    expect(await countEncryptedWithOtherKeys(storage, former)).toBe(all)
    expect(await retire('APP_ENCRYPTION_KEY')).toMatchObject({ removed: true, neededBy: null })
    expect(await stored()).not.toHaveProperty('encryptionPrevious')
    await second.close()

    const third = await start()
    const webhook = await third
      .client(tokens.bakery)
      .call(api.webhooks.show, { params: { id: orgs.bakery.webhookId } })
    expect(webhook.url).toMatch(/^https?:/)
    await third.close()
    const found = await examine({}, { offline: true, env: { ...noLimits, ...env } })
    expect(found.findings.find(({ check }) => check === 'encrypted values')).toMatchObject({ state: 'ok' })
  })

  it('a reseal that is stopped goes on, and leaves what no key opens', async () => {
    const { service, env, start, stored, storage, orgs } = await begin(open)
    const foreign = createCipher(['a key that is lost'])
    await storage.write((tx) =>
      tx
        .updateTable('webhooks')
        .set({ secret: foreign.encrypt('s', `webhooks.secret.${orgs.bakery.webhookId}`) })
        .where('id', '=', orgs.bakery.webhookId)
        .execute(),
    )
    // More than one batch.
    const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
    const rows = Array.from({ length: 120 }, (_, i) => ({
      token_hash: `hash-${i}`,
      content: cipher.encrypt('{}', `registrations.content.hash-${i}`),
      expires_at: '9999-01-01T00:00:00.000Z',
    }))
    await storage.write((tx) => tx.insertInto('registrations').values(rows).execute())
    await rotateSecret({}, 'APP_ENCRYPTION_KEY', { env })
    await service.close()
    await start()
    const stop = resealValues({}, (count) => expect(count).toBeLessThan(60), env)
    await expect(stop).rejects.toThrow()
    const { resealed, unreadable } = await resealValues({}, () => {}, env)
    expect(resealed).toBeGreaterThan(0)
    expect(unreadable).toBe(1)
    expect(await countEncryptedWithOtherKeys(storage, createCipher([(await stored()).encryption!]))).toBe(1)
  })

  it('JWT_SECRET: tokens from before are accepted, and it retires when they have expired', async () => {
    const { service, env, start, list, retire, tokens, orgs } = await begin(open)
    await rotateSecret({}, 'JWT_SECRET', { env })
    await service.close()
    const { client } = await start()
    const show = () =>
      client(tokens.bakery).call(api.webhooks.show, { params: { id: orgs.bakery.webhookId } })
    expect(await show()).toMatchObject({ id: orgs.bakery.webhookId })
    expect(await list()).toEqual([['JWT_SECRET', expect.stringMatching(/^tokens until /)]])
    await expect(retire('JWT_SECRET')).rejects.toThrow(/needed by tokens until/)
    const later = addSeconds(new Date().toISOString(), 1300)
    expect(await list(later)).toEqual([['JWT_SECRET', null]])
    expect(await retire('JWT_SECRET', later)).toMatchObject({ removed: true })
  })

  it('the peppers: keys and codes from before are counted, and retire with force alone', async () => {
    const { service, env, start, list, retire, tokens, storage } = await begin(open)
    const body = { name: 'before' }
    const { key } = await service.client(tokens.bakery).call(api.enrollmentKeys.create, { body })
    const { user_id: userId } = (await storage.read
      .selectFrom('sessions')
      .select('user_id')
      .executeTakeFirst())!
    await storage.write(async (tx) => {
      await tx.deleteFrom('recovery_codes').execute()
      const codes = [0, 1].map((n) => ({
        id: `01900000-0000-7000-8000-00000000000${n}`,
        user_id: userId,
        hash: `h${n}`,
        used_at: null,
      }))
      await tx.insertInto('recovery_codes').values(codes).execute()
    })
    await rotateSecret({}, 'ENROLLMENT_KEY_PEPPER', { env })
    await rotateSecret({}, 'MFA_RECOVERY_CODE_PEPPER', { env })
    await service.close()
    const second = await start()
    const enrolled = await second
      .client()
      .call(api.agents.enroll, { body: { enrollmentKey: key, hostname: 'till', ...machine } })
    expect(enrolled.deviceId).toBeDefined()
    expect(await list()).toEqual([
      ['ENROLLMENT_KEY_PEPPER', expect.stringMatching(/^\d+ enrollment keys? until \d{4}-\S+Z$/)],
      [
        'MFA_RECOVERY_CODE_PEPPER',
        expect.stringMatching(/^1 account with older recovery codes, rate limits until /),
      ],
    ])
    await expect(retire('ENROLLMENT_KEY_PEPPER')).rejects.toThrow(/still needed by \d+ enrollment key/)
    const forced = await retire('MFA_RECOVERY_CODE_PEPPER', undefined, true)
    expect(forced).toMatchObject({ removed: true, neededBy: expect.stringMatching(/^1 account/) })
    expect((await list(addSeconds(new Date().toISOString(), 40_000_000))).at(0)).toEqual([
      'ENROLLMENT_KEY_PEPPER',
      null,
    ])
  })

  it('AUDIT_SIGNING_KEY: the former public key leads to the new one, also once it is retired', async () => {
    const { service, env, start, list, retire, tokens } = await begin(open)
    const keys = (of: typeof service) => of.client(tokens.system).call(api.auditCheckpoints.key)
    const before = await keys(service)
    await rotateSecret({}, 'AUDIT_SIGNING_KEY', { env })
    await expect(retire('AUDIT_SIGNING_KEY')).rejects.toThrow(/until it has taken/)
    await service.close()
    const second = await start()
    expect(await list()).toEqual([['AUDIT_SIGNING_KEY', null]])
    expect(await retire('AUDIT_SIGNING_KEY')).toMatchObject({ removed: true })
    await second.close()
    const after = await keys(await start())
    expect(after.current).not.toEqual(before.current)
    expect(after.former).toEqual([before.current])
  })
})

onEveryDatabase((_kind, open) => {
  it('the list is compared with what the running service has', async () => {
    const { service, env } = await begin(open)
    const now = new Date().toISOString()
    const own = await listSecrets({}, now, env)
    const idOf = (name: string, { secrets }: typeof own) => secrets.find((one) => one.name === name)?.id
    expect(own.processes).toEqual([
      { host: expect.any(String), pid: process.pid, startedAt: expect.any(String), has: [], lacks: [] },
    ])
    const other = await listSecrets({}, now, { ...env, JWT_SECRET: fresh(), METRICS_TOKEN: fresh() })
    expect(other.processes).toMatchObject([
      {
        has: [{ name: 'JWT_SECRET', id: idOf('JWT_SECRET', own) }],
        lacks: [
          { name: 'JWT_SECRET', id: idOf('JWT_SECRET', other) },
          { name: 'METRICS_TOKEN', id: idOf('METRICS_TOKEN', other) },
        ],
      },
    ])
    await service.close()
    expect((await listSecrets({}, now, env)).processes).toEqual([])
  })
})

onEveryDatabase((_kind, open) => {
  it('a former secret has the time since which it is one, in the list and when it retires', async () => {
    const { service, env, start, storage, retire } = await begin(open)
    await rotateSecret({}, 'JWT_SECRET', { env })
    const formerIn = async () => {
      const { secrets } = await listSecrets({}, new Date().toISOString(), env)
      return secrets.filter((one) => one.name === 'JWT_SECRET').map((one) => [one.state, one.formerSince])
    }
    // The service has not taken the new one.
    expect(await formerIn()).toEqual([
      ['current', null],
      ['previous', null],
    ])
    await service.close()
    await start()
    const { since } = await storage.read
      .selectFrom('key_prints')
      .select('since')
      .where('name', '=', 'JWT_SECRET')
      .executeTakeFirstOrThrow()
    expect(await formerIn()).toEqual([
      ['current', null],
      ['previous', since],
    ])
    await expect(retire('JWT_SECRET')).rejects.toThrow(
      `The former JWT_SECRET, replaced on ${since}, is still needed by tokens until `,
    )
    const later = addSeconds(new Date().toISOString(), 1300)
    expect(await retire('JWT_SECRET', later)).toEqual({ removed: true, neededBy: null, formerSince: since })
  })

  it('a database that was moved is not worked on: every command says where it is now', async () => {
    const { service, env, storage, stored, retire } = await begin(open)
    await service.close()
    const before = await stored()
    const move = { target: 'PostgreSQL at db.example.com, database svc', at: '2026-03-01T12:00:00.000Z' }
    await storage.write((tx) => blockWrites(tx as AnyDb, storage.dialect, move, () => false))
    const now = new Date().toISOString()
    const all = [
      () => listSecrets({}, now, env),
      () => rotateSecret({}, 'JWT_SECRET', { env }),
      () => resealValues({}, () => {}, env),
      () => retire('JWT_SECRET'),
    ]
    for (const run of all)
      await expect(run()).rejects.toThrow(
        /^This database was moved to PostgreSQL at db\.example\.com, database svc on 2026-03-01T12:00:00\.000Z, and the service works there: name that one/,
      )
    expect(await stored()).toEqual(before)
  })
})

it('the first METRICS_TOKEN has no former one, and svc secrets rotate says so', async () => {
  const { service, env, file, stored } = await begin(() => openMigrated('sqlite'))
  await service.close()
  const home = new Home({ ...env, METRICS_TOKEN: '' })
  const rotate = (...args: string[]) => home.run(['secrets', 'rotate', 'METRICS_TOKEN', ...args])
  expect((await rotate('--dry-run')).stdout).toBe(
    `METRICS_TOKEN would be new in ${file}: it is the first one\n`,
  )
  const takes = 'A running service takes it within seconds.\n'
  expect((await rotate()).stdout).toBe(`METRICS_TOKEN is new in ${file}: it is the first one. ${takes}`)
  const first = (await stored()).metricsToken
  expect((await rotate()).stdout).toBe(
    `METRICS_TOKEN is new in ${file}, and the former one still works. ${takes}`,
  )
  expect((await stored()).metricsTokenPrevious).toBe(first)
  home.remove()
})

it('svc secrets list says whose secrets it shows, and how those of the running service differ', async () => {
  const { service, env, file } = await begin(() => openMigrated('sqlite'))
  const home = new Home({ ...env })
  const list = async (more = {}, args: string[] = []) => home.run(['secrets', 'list', ...args], { env: more })
  const view = `These are the secrets that this command reads, from its environment and ${file}\n`
  const same = await list()
  expect(same.stderr).toMatch(/^.*\nThe running service has the same: process \d+ on \S+\n$/)
  expect(same.stderr.startsWith(view)).toBe(true)
  const other = await list({ JWT_SECRET: fresh() })
  expect(other.stderr).toMatch(
    /\nThe running service differs: process \d+ on \S+ \(started \S+\) has JWT_SECRET [0-9a-f]{8} besides, and lacks JWT_SECRET [0-9a-f]{8}\nsvc-admin secrets list reads /,
  )
  const { stdout, stderr } = await list({}, ['--json'])
  expect(JSON.parse(stdout).processes).toMatchObject([{ pid: process.pid, has: [], lacks: [] }])
  expect(stderr).toBe('')
  await service.close()
  expect((await list()).stderr).toBe(
    `${view}No svc serve runs on this database, so that nothing says which secrets it has\n`,
  )
  home.remove()
})

it('what is in the environment is changed there: the refusal has the steps', async () => {
  const service = await startService(() => openMigrated('sqlite'))
  const env = { ...testSecrets, SVC_DATA_DIR: service.dataDir }
  await service.close()
  await expect(rotateSecret({}, 'JWT_SECRET', { env })).rejects.toThrow(
    /Set JWT_SECRET_PREVIOUS to its present value/,
  )
  const rotated = {
    ...env,
    JWT_SECRET: 'AAjq8b9DsX+YFc4PacPescFk0DSwo7kDQduSA9o90wI=',
    JWT_SECRET_PREVIOUS: env.JWT_SECRET,
  }
  await (await serviceOn(service, { env: rotated })).close()
  const now = addSeconds(new Date().toISOString(), 1300)
  expect(await retireSecret({}, 'JWT_SECRET', { force: false, now, env: rotated })).toMatchObject({
    removed: false,
    neededBy: null,
  })
  await expect(retireSecret({}, 'APP_ENCRYPTION_KEY', { force: false, now, env: rotated })).rejects.toThrow(
    /no former/,
  )
  const text = JSON.stringify(await listSecrets({}, now, rotated))
  for (const secret of Object.values(testSecrets)) expect(text).not.toContain(secret)
})

it('a link from the former public key that was not signed keeps it', async () => {
  const { service, env, start, retire, storage } = await begin(() => openMigrated('sqlite'))
  await rotateSecret({}, 'AUDIT_SIGNING_KEY', { env })
  await service.close()
  await (await start()).close()
  // As after a crash between two steps of the start.
  await storage.write((tx) => tx.updateTable('audit_keys').set({ succession: null }).execute())
  await expect(retire('AUDIT_SIGNING_KEY')).rejects.toThrow(/the link from its public key to the new one/)
  await (await start()).close()
  expect(await retire('AUDIT_SIGNING_KEY')).toMatchObject({ removed: true, neededBy: null })
})

onEveryDatabase((_, open) => {
  /** An installation from before the pepper was a secret of its own: APP_ENCRYPTION_KEY serves as it. */
  async function beginShared() {
    const database = await open()
    const shared = testSecrets.APP_ENCRYPTION_KEY
    const serveWith = (env: Record<string, string>) => serviceOn(database, { env })
    const service = await serveWith({ ENROLLMENT_KEY_PEPPER: '' })
    const { tokens, orgs } = await buildWorld(service)
    const newKey = async ({ client }: typeof service) => {
      const body = { orgId: orgs.bakery.id, name: 'one', maxUsage: 100 }
      return (await client(tokens.bakery).call(api.enrollmentKeys.create, { body })).key
    }
    let machines = 0
    const enroll = ({ client }: typeof service, enrollmentKey: string) => {
      const body = { ...machine, enrollmentKey, hostname: `till-${machines++}` }
      return client().call(api.agents.enroll, { body })
    }
    const key = await newKey(service)
    await enroll(service, key)
    await service.close()
    return { database, shared, serveWith, newKey, enroll, key, tokens }
  }

  it('an enrollment key outlives a change of the key that serves as the pepper', async () => {
    const { database, shared, serveWith, newKey, enroll, key } = await beginShared()
    const changed = {
      APP_ENCRYPTION_KEY: fresh(),
      APP_ENCRYPTION_KEY_PREVIOUS: shared,
      ENROLLMENT_KEY_PEPPER: '',
    }
    const service = await serveWith(changed)
    expect(await enroll(service, key)).toMatchObject({ deviceId: expect.any(String) })
    expect(await enroll(service, await newKey(service))).toMatchObject({ deviceId: expect.any(String) })
    await service.close()
    const env = { ...testSecrets, ...changed, SVC_DATA_DIR: database.dataDir }
    const place = { ...env, DATABASE_URL: database.databaseUrl ?? '' }
    await resealValues({}, () => {}, place)
    const now = new Date().toISOString()
    const retired = retireSecret({}, 'APP_ENCRYPTION_KEY', { force: false, now, env: place })
    await expect(retired).rejects.toThrow(/still needed by \d+ enrollment keys? until \S+Z\./)
  })

  it('an enrollment key outlives the way to a pepper of its own, and a change of the other key after it', async () => {
    const { database, shared, serveWith, newKey, enroll, key, tokens } = await beginShared()
    const own = {
      ENROLLMENT_KEY_PEPPER: fresh(),
      ENROLLMENT_KEY_PEPPER_PREVIOUS: shared,
      AUDIT_SIGNING_KEY: fresh(),
    }
    const service = await serveWith(own)
    expect(await enroll(service, key)).toMatchObject({ deviceId: expect.any(String) })
    const later = await newKey(service)
    const { key_hash } = await database.storage.read
      .selectFrom('enrollment_keys')
      .select('key_hash')
      .orderBy('id', 'desc')
      .executeTakeFirstOrThrow()
    expect(key_hash).toBe(hash('sha256', `${own.ENROLLMENT_KEY_PEPPER}:${later}`, 'hex'))
    const signers = await service.client(tokens.system).call(api.auditCheckpoints.key)
    expect(signers.former).toHaveLength(1)
    await service.close()

    const changed = { ...own, APP_ENCRYPTION_KEY: fresh(), APP_ENCRYPTION_KEY_PREVIOUS: shared }
    const next = await serveWith(changed)
    for (const one of [key, later])
      expect(await enroll(next, one)).toMatchObject({ deviceId: expect.any(String) })
    // The key of the audit log stays what it is.
    expect(await next.client(tokens.system).call(api.auditCheckpoints.key)).toEqual(signers)
    await next.close()
    const env = { ...testSecrets, ...changed, SVC_DATA_DIR: database.dataDir }
    const place = { ...env, DATABASE_URL: database.databaseUrl ?? '' }
    const now = new Date().toISOString()
    const { secrets: needs } = await listSecrets({}, now, place)
    expect(needs.find((one) => one.name === 'ENROLLMENT_KEY_PEPPER' && one.neededBy)).toMatchObject({
      neededBy: expect.stringMatching(/^\d+ enrollment keys? until \d{4}-\S+Z$/),
    })
    await resealValues({}, () => {}, place)
    // The former pepper is set by itself, so that this key is needed no more.
    const retired = await retireSecret({}, 'APP_ENCRYPTION_KEY', { force: false, now, env: place })
    expect(retired).toMatchObject({ removed: false, neededBy: null })
  })
})

it('a secret that another one serves as is not rotated by itself: the refusal has the way out', async () => {
  const { dataDir } = await openMigrated('sqlite')
  const env = { ...testSecrets, ENROLLMENT_KEY_PEPPER: '', SVC_DATA_DIR: dataDir }
  await expect(rotateSecret({}, 'ENROLLMENT_KEY_PEPPER', { env })).rejects.toThrow(
    /APP_ENCRYPTION_KEY serves as it.* set ENROLLMENT_KEY_PEPPER_PREVIOUS to the present value of APP_ENCRYPTION_KEY/,
  )
  await expect(rotateSecret({}, 'AUDIT_SIGNING_KEY', { env })).rejects.toThrow(
    /is derived from APP_ENCRYPTION_KEY\..* set AUDIT_SIGNING_KEY to a new one/,
  )
})

it('a key that is the pepper too is needed by enrollment keys', async () => {
  const database = await openMigrated('sqlite')
  const same = { ENROLLMENT_KEY_PEPPER: testSecrets.APP_ENCRYPTION_KEY }
  const first = await serviceOn(database, { env: same })
  const { tokens } = await buildWorld(first)
  await first.client(tokens.bakery).call(api.enrollmentKeys.create, { body: { name: 'before' } })
  await first.close()
  const rotated = {
    APP_ENCRYPTION_KEY: 'AAjq8b9DsX+YFc4PacPescFk0DSwo7kDQduSA9o90wI=',
    APP_ENCRYPTION_KEY_PREVIOUS: testSecrets.APP_ENCRYPTION_KEY,
    ENROLLMENT_KEY_PEPPER: '',
  }
  await (await serviceOn(database, { env: rotated })).close()
  const env = { ...testSecrets, ...rotated, SVC_DATA_DIR: database.dataDir }
  await resealValues({}, () => {}, env)
  const now = new Date().toISOString()
  const retired = retireSecret({}, 'APP_ENCRYPTION_KEY', { force: false, now, env })
  await expect(retired).rejects.toThrow(/needed by \d+ enrollment keys? until \S+Z\./)
})

it('one command at a time changes the file, and none changes a link', async () => {
  const { env, file, stored } = await begin(() => openMigrated('sqlite'))
  const before = await stored()
  await lockSecretsFile(file, async () => {
    await expect(rotateSecret({}, 'JWT_SECRET', { env })).rejects.toThrow(/Another command is changing/)
  })
  await rename(file, `${file}.elsewhere`)
  await symlink(`${file}.elsewhere`, file)
  await expect(rotateSecret({}, 'JWT_SECRET', { env })).rejects.toThrow(/is a link/)
  expect(await stored()).toEqual(before)
})

it('lists each encrypted column once', () => {
  const names = encryptedColumns.map(({ table, column }) => `${table}.${column}`)
  expect(new Set(names).size).toBe(names.length)
})

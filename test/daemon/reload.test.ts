import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { listSecrets, resealValues, retireSecret, rotateSecret } from '../../daemon/secrets/rotation.ts'
import { api } from '../../src/api.ts'
import { secretNames } from '../../src/core/secret-names.ts'
import { addSeconds } from '../../src/core/time.ts'
import { type Open, onEveryDatabase, openMigrated, temporaryFolder } from '../databases.ts'
import { adminEmail, adminPassword, clientOf, serviceOn, testSecrets } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { ServeProcess, until } from './process.ts'
import { machine, send } from './request.ts'

const fresh = () => randomBytes(32).toString('base64')
const later = () => addSeconds(new Date().toISOString(), 1300)
const generated = Object.fromEntries(Object.keys(testSecrets).map((name) => [name, '']))
const admin = { SVC_ADMIN_EMAIL: adminEmail, SVC_ADMIN_PASSWORD: adminPassword }

/** A database with tenants, whose secrets are in secrets.json. */
async function begin(open: Open) {
  const database = await open()
  const { dataDir, databaseUrl, storage } = database
  const file = join(dataDir, 'secrets.json')
  const secrets = {
    jwt: testSecrets.JWT_SECRET,
    encryption: testSecrets.APP_ENCRYPTION_KEY,
    enrollmentPepper: testSecrets.ENROLLMENT_KEY_PEPPER,
    recoveryPepper: testSecrets.MFA_RECOVERY_CODE_PEPPER,
    auditSigning: fresh(),
    metricsToken: fresh(),
  }
  await writeFile(file, JSON.stringify(secrets), { mode: 0o600 })
  const first = await serviceOn(database, { env: generated })
  const { tokens } = await buildWorld(first)
  await first.close()
  const env = { SVC_DATA_DIR: dataDir, DATABASE_URL: databaseUrl ?? '' }
  return {
    place: { dataDir, databaseUrl },
    file,
    secrets,
    env,
    storage,
    tokens,
    start: async (more: Record<string, string> = {}) => {
      const process = new ServeProcess({ dataDir, databaseUrl }, { env: { ...admin, ...more } })
      return { process, url: await process.listening() }
    },
    stored: async () => JSON.parse(await readFile(file, 'utf8')) as Record<string, string>,
    /** By name: the state, and how many processes make new values with it. */
    users: async () =>
      (await listSecrets({}, later(), env)).secrets.map(
        ({ name, state, usedBy }) => `${name} ${state} ${usedBy.length}`,
      ),
    retire: (name: (typeof secretNames)[number], now = later()) =>
      retireSecret({}, name, { force: false, now, env }),
  }
}

/** Signs in, enrolls, and reads a sealed value, again and again, on each of these in turn. */
function load(urls: readonly string[], token: string) {
  const failures: string[] = []
  const done = { count: 0, isOver: false }
  let turn = 0
  const some = (bearer?: string) => clientOf(urls[turn++ % urls.length]!, bearer)
  const work = async (n: number) => {
    const body = { email: adminEmail, password: adminPassword }
    const { tokens } = await some().call(api.auth.login, { body })
    await some(tokens!.accessToken).call(api.auth.me)
    const named = { name: `key ${n}`, maxUsage: 1 }
    const { key } = await some(token).call(api.enrollmentKeys.create, { body: named })
    await some().call(api.agents.enroll, { body: machine(key, `machine-${n}`) })
    const hook = {
      name: `hook${n}`,
      url: 'https://93.184.215.14/x',
      secret: 's',
      events: ['patch.installed' as const],
    }
    const { id } = await some(token).call(api.webhooks.create, { body: hook })
    const { unreadable } = await some(token).call(api.webhooks.show, { params: { id } })
    if (unreadable.length > 0) throw new Error(`${unreadable} of hook ${n} did not open`)
    await some(token).call(api.webhooks.remove, { params: { id } })
  }
  const working = (async () => {
    while (!done.isOver) {
      await work(done.count).catch((error: Error) => failures.push(error.message))
      done.count += 1
    }
  })()
  return {
    failures,
    more: () => {
      const reached = done.count + 3
      return until(() => done.count >= reached, 20_000)
    },
    end: async () => {
      done.isOver = true
      await working
    },
  }
}

const scrape = (url: string, token: string) =>
  fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
const metric = async (url: string, token: string, name: string): Promise<number> => {
  const reply = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(await reply.text())?.[1])
}

onEveryDatabase((kind, open) => {
  it('a running service takes a change of every secret with SIGHUP, and no request fails', async () => {
    const { env, secrets, tokens, start, users, retire, stored } = await begin(open)
    const { process, url } = await start()
    const working = load([url], tokens.bakery)
    await working.more()
    for (const name of secretNames) await rotateSecret({}, name, { env })
    process.kill('SIGHUP')
    const all = secretNames.flatMap((name) => [`${name} current 1`, `${name} previous 0`])
    await expect.poll(users, { timeout: 20_000 }).toEqual(all)
    await working.more()
    const { metricsToken: token } = await stored()
    for (const one of [secrets.metricsToken, token!]) expect((await scrape(url, one)).status).toBe(200)
    expect((await scrape(url, fresh())).status).toBe(401)
    const inUse = await (
      await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
    ).text()
    const ids = Object.fromEntries(
      (await listSecrets({}, later(), env)).secrets.map((one) => [`${one.name} ${one.state}`, one.id]),
    )
    for (const name of secretNames)
      expect(inUse).toContain(`pid="${process.pid}",secret="${name}",id="${ids[`${name} current`]}"} 1`)
    await working.end()
    expect(working.failures).toEqual([])
    // Sealed before the change.
    await resealValues({}, () => {}, env)
    for (const name of ['JWT_SECRET', 'APP_ENCRYPTION_KEY', 'AUDIT_SIGNING_KEY', 'METRICS_TOKEN'] as const)
      expect(await retire(name)).toMatchObject({ removed: true })
    process.kill('SIGHUP')
    await expect
      .poll(async () => (await scrape(url, secrets.metricsToken)).status, { timeout: 20_000 })
      .toBe(401)
    expect((await scrape(url, token!)).status).toBe(200)
    // Signed with the retired secret.
    expect((await send(url, 'GET', '/api/v1/auth/me', { token: tokens.bakery })).status).toBe(401)
    expect(process.stderr).not.toContain('"stack"')
    expect(await process.stop()).toEqual({ code: 0, signal: null })
  })

  it('a faulty file changes nothing, is logged in one sentence and counted; a kill in between loses nothing', async () => {
    const { env, file, secrets, tokens, start, stored, users, retire, storage } = await begin(open)
    const { process, url } = await start()
    const me = (at: string) => send(at, 'GET', '/api/v1/auth/me', { token: tokens.bakery })
    const failed = () => metric(url, secrets.metricsToken, 'svc_reload_failures_total')
    const good = await metric(url, secrets.metricsToken, 'svc_reload_last_success_timestamp_seconds')
    const whole = await stored()
    const faults: [object | string, RegExp][] = [
      ['{"jwt": "cut off', /secrets\.json cannot be read: it is damaged/],
      [{ ...whole, jwt: undefined }, /secrets\.json lacks JWT_SECRET/],
      // Not the former one beside it.
      [
        { ...whole, jwt: fresh(), metricsToken: fresh() },
        /other keys .*: JWT_SECRET\. .*JWT_SECRET_PREVIOUS/,
      ],
      [{ ...whole, auditSigning: 'short' }, /AUDIT_SIGNING_KEY must be 32 bytes/],
    ]
    for (const [n, [content, reason]] of faults.entries()) {
      await writeFile(`${file}.next`, typeof content === 'string' ? content : JSON.stringify(content))
      await rename(`${file}.next`, file)
      process.kill('SIGHUP')
      await expect.poll(failed, { timeout: 20_000 }).toBe(n + 1)
      await until(() => process.stderr.split('could not be reloaded').length === n + 2)
      const [line] = process.stderr
        .split('\n')
        .filter((one) => one.includes('could not be reloaded'))
        .slice(-1)
      expect(JSON.parse(line!).reason).toMatch(reason)
      expect(line).not.toContain(whole.encryption)
      expect((await me(url)).status).toBe(200)
    }
    await writeFile(file, JSON.stringify(whole))
    process.kill('SIGHUP')
    const lastGood = () => metric(url, secrets.metricsToken, 'svc_reload_last_success_timestamp_seconds')
    await expect.poll(lastGood, { timeout: 20_000 }).toBeGreaterThan(good)

    await rotateSecret({}, 'JWT_SECRET', { env })
    process.kill('SIGHUP')
    process.kill('SIGKILL')
    await process.ended
    const again = await start()
    expect((await me(again.url)).status).toBe(200)
    // The killed process counts as alive for a minute: what it cannot open is not made.
    if ((await users()).includes('JWT_SECRET current 0')) {
      await expect(retire('JWT_SECRET')).rejects.toThrow(
        new RegExp(`still needed by the service, .*process ${process.pid} on .* does not know the new one`),
      )
      await storage.write((tx) =>
        tx.updateTable('service_processes').set({ seen_at: 0 }).where('pid', '=', process.pid).execute(),
      )
    }
    await expect.poll(users, { timeout: 20_000 }).toContain('JWT_SECRET current 1')
    expect((await me(again.url)).status).toBe(200)
    expect([kind, await again.process.stop()]).toEqual([kind, { code: 0, signal: null }])
  })
})

it('two replicas take a change by themselves; none uses a key that a frozen one does not know', async () => {
  const { env, tokens, start, users, retire, stored } = await begin(() => openMigrated('postgres'))
  const [a, b] = [await start(), await start()]
  const working = load([a.url, b.url], tokens.bakery)
  await working.more()
  for (const name of secretNames) await rotateSecret({}, name, { env })
  await expect.poll(users, { timeout: 30_000 }).toContain('JWT_SECRET current 2')
  await working.more()
  await working.end()
  expect(working.failures).toEqual([])

  await expect(rotateSecret({}, 'JWT_SECRET', { env })).rejects.toThrow(/Retire it first/)
  expect(await retire('JWT_SECRET')).toMatchObject({ removed: true })
  b.process.kill('SIGSTOP')
  const { id } = await rotateSecret({}, 'JWT_SECRET', { env })
  a.process.kill('SIGHUP')
  await until(() => a.process.stderr.includes('"waiting":["JWT_SECRET"]'), 20_000)
  const current = async () =>
    (await listSecrets({}, later(), env)).secrets.find(({ name }) => name === 'JWT_SECRET')
  expect(await current()).toMatchObject({ id, since: null, usedBy: [] })
  await expect(retire('JWT_SECRET')).rejects.toThrow(
    new RegExp(
      `process ${a.process.pid} on \\S+ \\(started \\S+\\), which still uses it, ` +
        `process ${b.process.pid} on \\S+ \\(started \\S+\\), which does not know the new one`,
    ),
  )
  const { metricsToken } = await stored()
  const text = await (
    await fetch(`${a.url}/metrics`, { headers: { authorization: `Bearer ${metricsToken}` } })
  ).text()
  expect(text).not.toContain(`secret="JWT_SECRET",id="${id}"`)
  b.process.kill('SIGCONT')
  await expect.poll(async () => (await current())?.usedBy.length, { timeout: 30_000 }).toBe(2)
  expect(await retire('JWT_SECRET')).toMatchObject({ removed: true })
})

it('files of settings and credentials of systemd: what is taken, what needs a restart, and which one counts', async () => {
  const folder = await temporaryFolder()
  const credentials = join(folder, 'credentials')
  await mkdir(credentials)
  const at = (name: string) => join(folder, name)
  const { dataDir, databaseUrl } = await openMigrated('postgres')
  const [first, second] = [fresh(), fresh()]
  for (const [name, value] of Object.entries(testSecrets))
    await writeFile(join(credentials, name), `${value}\n`)
  await writeFile(join(credentials, 'METRICS_TOKEN'), first)
  await writeFile(join(credentials, 'DATABASE_URL'), databaseUrl!)
  await writeFile(at('level'), 'info')

  const env = { SVC_DATA_DIR: dataDir, CREDENTIALS_DIRECTORY: credentials, LOG_LEVEL_FILE: at('level') }
  expect(readConfig(env)).toMatchObject({ metricsToken: first, databaseUrl, logLevel: 'info' })
  await writeFile(at('token'), second)
  expect(readConfig({ ...env, METRICS_TOKEN_FILE: at('token') }).metricsToken).toBe(second)
  const direct = { ...env, METRICS_TOKEN_FILE: at('token'), METRICS_TOKEN: 'the variable itself' }
  expect(readConfig(direct).metricsToken).toBe('the variable itself')
  await writeFile(join(credentials, 'TWILIO_AUTH_TOKEN'), ' \n')
  expect(() => readConfig(env)).toThrow(
    `The credential TWILIO_AUTH_TOKEN names an empty file: ${join(credentials, 'TWILIO_AUTH_TOKEN')} must contain TWILIO_AUTH_TOKEN`,
  )
  await writeFile(join(credentials, 'TWILIO_AUTH_TOKEN'), 'x')
  expect(() => readConfig(env)).toThrow(/also set TWILIO_ACCOUNT_SID/)
  await rename(join(credentials, 'TWILIO_AUTH_TOKEN'), at('unused'))

  const service = new ServeProcess({ dataDir }, { env: { ...admin, ...env } })
  const url = await service.listening()
  expect((await scrape(url, first)).status).toBe(200)
  const requests = () => service.stderr.split('"msg":"request"').length
  await writeFile(join(credentials, 'METRICS_TOKEN'), second)
  await writeFile(join(credentials, 'DATABASE_URL'), `${databaseUrl}?application_name=other`)
  await writeFile(at('level'), 'warn')
  // Nobody tells the process.
  await expect.poll(async () => (await scrape(url, second)).status, { timeout: 20_000 }).toBe(200)
  expect((await scrape(url, first)).status).toBe(401)
  await until(() => service.stderr.includes('"restart":["DATABASE_URL"]'))
  expect(service.stderr).not.toContain('application_name')
  await expect
    .poll(
      async () => {
        const before = requests()
        await send(url, 'GET', '/health/live')
        await new Promise((resolve) => setTimeout(resolve, 700))
        return requests() - before
      },
      { timeout: 20_000 },
    )
    .toBe(0)
  expect(await service.stop()).toEqual({ code: 0, signal: null })
})

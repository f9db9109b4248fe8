import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { generateSync } from 'otplib'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import type { Client } from '../../src/core/client.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import type { MailMessage } from '../../src/messages/ports.ts'
import { queueMail } from '../../src/messages/queue.ts'
import { passwordReset } from '../../src/messages/templates.ts'
import { consumeSignIn, insertSignIn } from '../../src/sso/sign-in/store.ts'
import { openMigrated } from '../databases.ts'
import {
  adminEmail,
  adminPassword,
  clientOf,
  noLimits,
  type ServiceOptions,
  serviceOn,
  startService,
  testSecrets,
} from '../harness.ts'
import { addProvider, buildWorld } from '../world.ts'
import { ServeProcess, until } from './process.ts'
import { machine, readChain, send } from './request.ts'

const fresh = () => randomBytes(32).toString('base64')
const now = () => systemClock()
const busy = { code: 'unavailable', status: 503 }

/** A replica that sends nothing, and records what it would have sent. */
function replica(env: Record<string, string> = {}) {
  const delivered: string[] = []
  const mailedTo: string[] = []
  const options: ServiceOptions = {
    env,
    outside: {
      outbound: {
        send: async ({ url }) => {
          delivered.push(url)
          return { status: 200, headers: {}, body: Buffer.from(''), milliseconds: 1, isWhole: true }
        },
        locateHost: async () => ({ network: 'public' }),
        close: async () => {},
      },
      mailer: { real: true, send: async ({ to }: MailMessage) => void mailedTo.push(to) },
    },
  }
  return { options, delivered, mailedTo }
}

async function startFirst(env: { first: Record<string, string> }) {
  const database = await openMigrated('postgres')
  onTestFinished(database.close)
  const first = replica(env.first)
  const service = await startService(async () => database, first.options)
  const world = await buildWorld(service)
  const start = async (env: Record<string, string>) => {
    const one = replica(env)
    // As beside replicas of a release that announces no keys: otherwise this one would wait for them.
    await service.storage.write((tx) => tx.deleteFrom('service_processes').execute())
    return { ...one, service: await serviceOn(service, one.options) }
  }
  return { world, first: { ...first, service }, start, storage: service.storage }
}

const makeHook = (client: Client, name: string, host = 'receiver.example') =>
  client.call(api.webhooks.create, {
    body: { name, url: `https://${host}/${name}`, secret: 'a secret', events: ['patch.installed'] },
  })

describe('a replica without the key that another one seals with', () => {
  const next = fresh()
  const ahead = { APP_ENCRYPTION_KEY: next, APP_ENCRYPTION_KEY_PREVIOUS: testSecrets.APP_ENCRYPTION_KEY }
  const sealer = createCipher([next, testSecrets.APP_ENCRYPTION_KEY])

  it('leaves its deliveries and mails alone, uses no attempt, and continues all other work', async () => {
    const { world, first: behind, start, storage } = await startFirst({ first: {} })
    const { tokens, orgs } = world
    const own = await makeHook(behind.service.client(tokens.garage), 'own')
    const held = await makeHook(behind.service.client(tokens.garage), 'held')
    const one = await start(ahead)
    const { id } = await makeHook(one.service.client(tokens.bakery), 'theirs')
    await one.service.close()

    // No replica that has the key is running.
    const raise = async (org: 'bakery' | 'garage') => {
      const body = { orgId: orgs[org].id, type: 'patch.installed' as const, data: {} }
      await behind.service.client(tokens.system).call(api.events.create, { body })
    }
    const mailFor = (to: string) =>
      passwordReset({ to, name: 'Somebody', url: 'https://svc.example/reset', minutes: 30 })
    for (const to of ['theirs@example.com', 'more@example.com'])
      await storage.write((tx) => queueMail(tx, sealer, mailFor(to), now(), addSeconds(now(), 3600)))
    await behind.service.client().call(api.auth.forgotPassword, { body: { email: adminEmail } })
    for (let n = 0; n < 5; n += 1) await Promise.all([raise('bakery'), raise('garage')])
    const deliveriesOf = (webhookId: string) =>
      storage.read
        .selectFrom('webhook_deliveries')
        .select(['status', 'attempt'])
        .where('webhook_id', '=', webhookId)
        .execute()
    const health = (url: string) => send<{ checks: object }>(url, 'GET', '/health/ready')
    expect(await health(behind.service.url)).toMatchObject({
      status: 200,
      body: { checks: { keys: 'changed elsewhere: APP_ENCRYPTION_KEY, AUDIT_SIGNING_KEY' } },
    })
    const all = (status: string, attempt: number) => Array.from({ length: 5 }, () => ({ status, attempt }))
    for (const hook of [own, held])
      await expect.poll(() => deliveriesOf(hook.id), { timeout: 10_000 }).toEqual(all('delivered', 1))
    await expect.poll(() => behind.mailedTo, { timeout: 10_000 }).toEqual([adminEmail])
    await sleep(2500)
    expect(await deliveriesOf(id)).toEqual(all('pending', 0))
    const waiting = await storage.read.selectFrom('mails').select('attempts').execute()
    expect(waiting).toEqual([{ attempts: 0 }, { attempts: 0 }])

    // A webhook that it has cached is changed by a replica with the newer key.
    const two = await start(ahead)
    await expect.poll(() => deliveriesOf(id), { timeout: 10_000 }).toEqual(all('delivered', 1))
    await expect
      .poll(() => [...two.mailedTo].sort(), { timeout: 10_000 })
      .toEqual(['more@example.com', 'theirs@example.com'])
    await two.service
      .client(tokens.garage)
      .call(api.webhooks.update, { params: { id: held.id }, body: { name: 'changed' } })
    for (let n = 0; n < 5; n += 1) await raise('garage')
    const ten = [...all('delivered', 1), ...all('delivered', 1)]
    await expect.poll(() => deliveriesOf(held.id), { timeout: 10_000 }).toEqual(ten)
    expect(behind.delivered.filter((url) => url.endsWith('/theirs'))).toEqual([])
  })

  it('attempts itself what no other replica has taken within an hour', async () => {
    const { world, first: behind, start, storage } = await startFirst({ first: {} })
    const one = await start(ahead)
    const { id } = await makeHook(one.service.client(world.tokens.bakery), 'theirs')
    await one.service.close()
    const body = { orgId: world.orgs.bakery.id, type: 'patch.installed' as const, data: {} }
    await behind.service.client(world.tokens.system).call(api.events.create, { body })
    const states = () =>
      storage.read
        .selectFrom('webhook_deliveries')
        .select(['status', 'error_message'])
        .where('webhook_id', '=', id)
        .execute()
    await expect.poll(states, { timeout: 10_000 }).toMatchObject([{ status: 'pending' }])
    const age = (at = addSeconds(now(), -3601)) =>
      storage.write(async (tx) => {
        await tx.updateTable('webhook_deliveries').set({ due_at: at }).where('webhook_id', '=', id).execute()
        await tx.updateTable('webhook_queues').set({ due_at: at }).where('webhook_id', '=', id).execute()
      })
    const error_message = expect.stringContaining('Cannot be decrypted')
    // A release makes the delivery due as of then.
    await expect
      .poll(() => age().then(states), { timeout: 10_000, interval: 500 })
      .toMatchObject([{ status: 'retrying', error_message }])
  })

  it('answers 503 for its codes, sign-ins and keys, and spends none of them', async () => {
    const { world, first: behind, start, storage } = await startFirst({ first: {} })
    const one = await start(ahead)
    const here = behind.service
    const there = one.service

    const credentials = { email: adminEmail, password: adminPassword }
    const { tokens } = await there.client().call(api.auth.login, { body: credentials })
    const { secret } = await there.client(tokens!.accessToken).call(api.auth.setupMfa)
    const code = generateSync({ secret })
    const enable = (client: Client) => client.call(api.auth.enableMfa, { body: { code } })
    await expect(enable(here.client(tokens!.accessToken))).rejects.toMatchObject(busy)
    await enable(there.client(tokens!.accessToken))
    const { tempToken } = await here.client().call(api.auth.login, { body: credentials })
    // The code of this time step is used up.
    const body = { tempToken: tempToken!, code: generateSync({ secret, epoch: Date.now() / 1000 + 30 }) }
    await expect(here.client().call(api.auth.verifyMfa, { body })).rejects.toMatchObject(busy)
    expect(await there.client().call(api.auth.verifyMfa, { body })).toMatchObject({ mfaRequired: false })

    const add = ({ url }: { url: string }) =>
      send(url, 'POST', '/api/v1/orgs/sites', {
        token: world.tokens.bakery,
        body: { orgId: world.orgs.bakery.id, name: 'Annex' },
        headers: { 'idempotency-key': 'once' },
      })
    const made = await add(there)
    expect(made).toMatchObject({ status: 201 })
    const again = await add(here)
    expect(again).toMatchObject({ status: 503, headers: { 'retry-after': '2' } })
    expect((await add(there)).body).toEqual(made.body)

    const providerId = await addProvider(here, world.orgs.bakery.id)
    const signIn = {
      stateHash: 'a state',
      providerId,
      nonce: 'n',
      codeVerifier: 'verifier',
      redirectPath: '/',
      browserHash: 'b',
      challenge: null,
      providerVersion: now(),
      testId: null,
      createdAt: now(),
      expiresAt: addSeconds(now(), 600),
    }
    await storage.write((tx) => insertSignIn(tx, sealer, signIn))
    const own = createCipher([testSecrets.APP_ENCRYPTION_KEY])
    await expect(storage.write((tx) => consumeSignIn(tx, own, 'a state'))).rejects.toMatchObject(busy)
    expect(await storage.write((tx) => consumeSignIn(tx, sealer, 'a state'))).toMatchObject({
      codeVerifier: 'verifier',
    })
  })
})

describe('keys that every replica knows before one of them uses them', () => {
  const names = [...Object.keys(testSecrets), 'AUDIT_SIGNING_KEY'] as const
  const old: Record<string, string> = { ...testSecrets, AUDIT_SIGNING_KEY: fresh() }
  const next = Object.fromEntries(names.map((name) => [name, fresh()]))
  const using = (current: Record<string, string>, other: Record<string, string>) => ({
    ...current,
    ...Object.fromEntries(names.map((name) => [`${name}_PREVIOUS`, other[name]!])),
  })
  const knowing = using(old, next)
  const changed = using(next, old)

  it('work both ways: tokens, factors, codes, enrollment keys, webhooks and the audit log', async () => {
    const { world, first, start, storage } = await startFirst({ first: knowing })
    const { bakery } = world.orgs
    const b = first.service
    const one = await start(changed)
    const a = one.service
    const bothWays = [
      [a, b],
      [b, a],
    ] as const

    for (const [n, [from, to]] of bothWays.entries()) {
      const email = `person${n}@example.com`
      const session = await from.client().call(api.auth.login, {
        body: { email: adminEmail, password: adminPassword },
      })
      expect(session.mfaRequired, email).toBe(false)
      const { accessToken } = session.tokens!
      expect(await to.client(accessToken).call(api.auth.me)).toMatchObject({ user: { email: adminEmail } })
      const { secret } = await from.client(accessToken).call(api.auth.setupMfa)
      const enabled = await to
        .client(accessToken)
        .call(api.auth.enableMfa, { body: { code: generateSync({ secret }) } })
      for (const [at, code] of [
        [from, enabled.recoveryCodes[0]!],
        [to, enabled.recoveryCodes[1]!],
      ] as const) {
        const { tempToken } = await at
          .client()
          .call(api.auth.login, { body: { email: adminEmail, password: adminPassword } })
        const body = { tempToken: tempToken!, code }
        const signedIn = await at.client().call(api.auth.verifyMfa, { body })
        expect(signedIn).toMatchObject({ mfaRequired: false })
        const spent = at.client().call(api.auth.login, {
          body: { email: adminEmail, password: adminPassword },
        })
        const wrong = { tempToken: (await spent).tempToken!, code }
        await expect(at.client().call(api.auth.verifyMfa, { body: wrong })).rejects.toMatchObject({
          code: 'invalid_mfa_code',
        })
      }
      await storage.write((tx) =>
        tx
          .updateTable('users')
          .set({ mfa_method: null, totp_secret: null })
          .where('email', '=', adminEmail)
          .execute(),
      )

      const { key: enrollmentKey } = await from
        .client(world.tokens.bakery)
        .call(api.enrollmentKeys.create, { body: { name: 'machines', maxUsage: 1 } })
      const machine = { ...api.agents.enroll.example, enrollmentKey, hostname: `machine-${n}` } as never
      await to.client().call(api.agents.enroll, { body: machine })
      await expect(to.client().call(api.agents.enroll, { body: machine })).rejects.toMatchObject({
        code: 'enrollment_key_exhausted',
      })

      const hook = await makeHook(from.client(world.tokens.bakery), `hook${n}`)
      expect(
        await to.client(world.tokens.bakery).call(api.webhooks.show, { params: { id: hook.id } }),
      ).toMatchObject({ unreadable: [] })
    }
    // A replica that restarts with its old keys is no change of keys.
    const { service: c } = await start(knowing)
    const { verdict } = await readChain(c.client(world.tokens.bakery), bakery.id)
    expect(verdict).toMatchObject({ verdict: 'sound' })
    const keys = await storage.read.selectFrom('audit_keys').select('succession').execute()
    expect(keys.filter(({ succession }) => succession !== null)).toHaveLength(1)
  })

  it('rotate under load in one round of restarts, and no request fails', async () => {
    const database = await openMigrated('postgres')
    onTestFinished(database.close)
    const service = await serviceOn(database, { env: old })
    await service.storage.write((tx) =>
      tx.updateTable('users').set({ mfa_method: null }).where('email', '=', adminEmail).execute(),
    )
    const { tokens } = await buildWorld(service)
    await service.close()
    const place = { dataDir: database.dataDir, databaseUrl: database.databaseUrl }
    const begin = async (keys: Record<string, string>) => {
      const process = new ServeProcess(place, { env: { ...noLimits, ...keys } })
      return { process, url: await process.listening() }
    }
    const replicas = [await begin(old), await begin(old)]
    onTestFinished(async () => {
      for (const { process } of replicas) await process.stop()
    })
    /** As a load balancer that removes a replica before it ends. */
    const inUse = [...replicas]
    let turn = 0
    const some = (token?: string) => clientOf(inUse[turn++ % inUse.length]!.url, token)
    const work = async (n: number): Promise<void> => {
      const body = { email: adminEmail, password: adminPassword }
      const { tokens: own } = await some().call(api.auth.login, { body })
      for (let at = 0; at < 2; at += 1) await some(own!.accessToken).call(api.auth.me)
      const named = { name: `key ${n}`, maxUsage: 1 }
      const { key } = await some(tokens.bakery).call(api.enrollmentKeys.create, { body: named })
      await some().call(api.agents.enroll, { body: machine(key, `machine-${n}`) })
      const { id } = await makeHook(some(tokens.bakery), `hook${n}`, '93.184.215.14')
      for (let at = 0; at < 2; at += 1) {
        const { unreadable } = await some(tokens.bakery).call(api.webhooks.show, { params: { id } })
        if (unreadable.length > 0) throw new Error(`${unreadable} of hook ${n} did not open`)
      }
    }
    const failures: string[] = []
    let isOver = false
    let count = 0
    const working = (async () => {
      while (!isOver) {
        count += 1
        await work(count).catch((error: Error) => failures.push(error.message))
      }
    })()
    const rid = { ...next, JWT_SECRET_PREVIOUS: old.JWT_SECRET! }
    for (const keys of [changed, rid])
      for (const one of [0, 1]) {
        const before = replicas[one]!
        inUse.splice(inUse.indexOf(before), 1)
        const under = count
        await until(() => count > under, 20_000)
        await before.process.stop()
        replicas[one] = await begin(keys)
        inUse.push(replicas[one]!)
        const reached = count + 3
        await until(() => count >= reached, 20_000)
      }
    isOver = true
    await working
    expect(failures).toEqual([])
    expect(count).toBeGreaterThan(18)
  })
})

import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { generateX25519Identity, identityToRecipient } from 'age-encryption'
import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import type { Client } from '../../../src/core/client.ts'
import { addSeconds, systemClock } from '../../../src/core/time.ts'
import { identityStore } from '../../../src/device-agent/state.ts'
import { builtInRoles } from '../../../src/identity/seeds.ts'
import { addRollout } from '../../agents/rollouts/records.ts'
import { hasOpenssl, testCertificate } from '../../cli/network.ts'
import { temporaryFolder } from '../../databases.ts'
import { takesTurn } from '../../depth.ts'
import { livingAgents } from '../../device-agent/live.ts'
import { adminEmail, adminPassword, clientOf } from '../../harness.ts'
import { startMailServer } from '../../messages/mail-server.ts'
import { freePort } from '../../postgres.ts'
import { reaching, receiver } from '../../webhooks/receiver.ts'
import { handOn } from '../../webhooks/webhook-fixture.ts'
import { codeAt, enrolFactor } from '../people.ts'
import { ServeProcess, until } from '../process.ts'
import { svc } from './binary.ts'
import { emptyPlace, kinds, type Place, withStorage } from './filled.ts'

/** Its keys are those that it generated: nothing but the backup has them. */
const env = {
  SVC_ADMIN_EMAIL: adminEmail,
  SVC_ADMIN_PASSWORD: adminPassword,
  PUBLIC_URL: 'http://svc.example.com',
}
const who = { email: adminEmail, password: adminPassword }
const orgAdmin = builtInRoles.find(({ name, scope }) => name === 'Org Admin' && scope === 'organization')!.id

/** The administrator's session on a new service, with the second factor that the administrator has from now on. */
async function enrolled(url: string) {
  const { tokens } = await clientOf(url).call(api.auth.login, { body: who })
  const factor = await enrolFactor(clientOf(url, tokens!.accessToken), systemClock)
  const token = factor.tokens!.accessToken
  return { token, client: clientOf(url, token), totpSecret: factor.secret }
}

/** Signs in with password and code. A restore ends the codes up to its own time, so this is the one after. */
async function signedIn(url: string, totpSecret: string) {
  const first = await clientOf(url).call(api.auth.login, { body: who })
  expect(first).toMatchObject({ mfaRequired: true, tokens: null })
  const body = { tempToken: first.tempToken!, code: codeAt(totpSecret, systemClock, 30) }
  const { tokens } = await clientOf(url).call(api.auth.verifyMfa, { body })
  return { token: tokens!.accessToken, client: clientOf(url, tokens!.accessToken) }
}

/** What a small installation has. */
async function populate(client: Client, webhookUrl: string) {
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  const { id: orgId } = await client.call(api.orgs.create, {
    body: { partnerId, name: 'Bakery', slug: 'bakery' },
  })
  const { key } = await client.call(api.enrollmentKeys.create, { body: { orgId, name: 'till', maxUsage: 5 } })
  const { hook, raise } = handOn(client, orgId)
  // For a minute, which a backup on a busy machine may take.
  const policy = { maxRetries: 15, initialDelayMs: 4000, maxDelayMs: 4000 }
  return { orgId, key, raise, webhookId: await hook(webhookUrl, {}, policy) }
}

const ask = { type: 'collect' as const, payload: { what: ['metrics' as const] } }

/** As with a rotation that is due after a month. */
const ageToken = (place: Place, id: string) =>
  withStorage(place, ({ write }) =>
    write((tx) =>
      tx
        .updateTable('devices')
        .set({ token_issued_at: addSeconds(systemClock(), -40 * 86_400) })
        .where('id', '=', id)
        .execute(),
    ),
  )

/** Mails that wait for their next attempt are due; the service looks after its next commit. */
const hurryMails = (place: Place) =>
  withStorage(place, ({ write }) =>
    write((tx) => tx.updateTable('mails').set({ due_at: systemClock(), lease: null }).execute()),
  )

describe.skipIf(!hasOpenssl)('a service whose machine is lost', () => {
  const certificate = testCertificate()
  const [steady, rotating] = [livingAgents(), livingAgents()]

  it.each(kinds.filter((kind) => takesTurn(kind, 1)))(
    'goes on from its backup of %s, on the other database',
    { timeout: 300_000 },
    async (from) => {
      const [folder, backups] = [await temporaryFolder(), await temporaryFolder()]
      const at = (name: string) => join(folder, name)
      const identity = await generateX25519Identity()
      await writeFile(at('key.txt'), `# an identity\n${identity}\n`)
      const recipient = await identityToRecipient(identity)
      const accepted: string[] = []
      const tickets = await receiver(certificate, ({ event }) => {
        accepted.push(event.id)
        return { status: 204 }
      })
      // A port that nothing listens on until the backup is made.
      const mailPort = await freePort()
      const outside = {
        ...reaching(certificate),
        SMTP_URL: `smtp://127.0.0.1:${mailPort}`,
        SMTP_STARTTLS: 'false',
        MAIL_FROM: 'svc@example.com',
      }
      const start = (place: Place) => new ServeProcess(place, { env: { ...env, ...outside } })

      const old = await emptyPlace(from)
      const service = start(old)
      const url = await service.listening()
      const { client, token, totpSecret } = await enrolled(url)
      const { orgId, key, raise, webhookId } = await populate(client, tickets.url)
      const once = { key: async () => key, pace: { once: true } }
      const agents = [steady, rotating]
      for (const one of agents) expect((await one.live(url, once)).names).toContain('enrolled')
      const [steadyId, rotatingId] = agents.map((one) => identityStore(one.stateDir()).load()!.deviceId)
      const [forSteady, forRotating] = await Promise.all(
        [steadyId!, rotatingId!].map((id) =>
          client.call(api.deviceCommands.create, { params: { id }, body: ask }),
        ),
      )
      const rolloutId = await withStorage(old, (storage) => addRollout({ storage }, 'running'))
      const invite = (caller: Client, name: string) =>
        caller.call(api.users.invite, {
          body: { email: `${name}@example.com`, name, roleId: orgAdmin, orgId },
        })

      const before = await raise(2)
      await tickets.until(2)
      await tickets.down()
      const due = await raise(3)
      await invite(client, 'ada')
      const verify = (place: Place, to: string, session: string) =>
        svc(
          ['audit', 'verify', '--key', at('audit.pub'), '--pin', at('pins.json')],
          place,
          asUser(to, session),
        )
      const keys = await svc(['audit', 'key'], old, asUser(url, token))
      await writeFile(at('audit.pub'), keys.stdout)
      expect(await verify(old, url, token)).toMatchObject({ code: 0, stdout: expect.stringMatching(allNew) })

      let isBusy = true
      const busy = (async () => {
        for (let n = 0; isBusy && n < 2000; n++)
          await client.call(api.sites.create, { body: { orgId, name: `site ${n}` } })
      })()
      const args = ['db', 'backup', '--out', backups, '--recipient', recipient, '--with-secrets', '--json']
      const backup = await svc(args, old, {})
      isBusy = false
      await busy
      expect(backup).toMatchObject({ code: 0, stderr: '' })
      const summary = JSON.parse(backup.stdout)
      expect(await readdir(backups)).toEqual([
        expect.stringMatching(/^svc-\d{8}T\d{6}\.\d{3}Z-.*\.backup\.age$/),
      ])
      const bytes = await readFile(summary.file)
      const secrets = await readFile(join(old.dataDir, 'secrets.json'), 'utf8')
      expect(bytes.toString('latin1')).not.toContain(JSON.parse(secrets).jwt)

      // What the backup does not know: deliveries, a letter and a command that were done since, a token, entries of the audit log.
      await tickets.up()
      await until(() => accepted.length >= 5, 30_000)
      const lost = await raise(2)
      await until(() => accepted.length >= 7, 30_000)
      const mail = await startMailServer({ plain: true, port: mailPort })
      await hurryMails(old)
      await client.call(api.sites.create, { body: { orgId, name: 'a site of the lost time' } })
      await until(() => mail.received.length >= 2, 30_000)
      expect((await steady.live(url, once)).events).toContainEqual(
        expect.objectContaining({ event: 'command', id: forSteady!.id, status: 'completed' }),
      )
      await ageToken(old, rotatingId!)
      const rotated = await rotating.live(url, once)
      expect([rotated.failure, rotated.names.includes('token')]).toEqual([undefined, true])
      for (let n = 0; n < 30; n++)
        await client.call(api.sites.create, { body: { orgId, name: `late site ${n}` } })
      const ahead = await verify(old, url, token)
      expect(ahead).toMatchObject({ code: 0, stdout: expect.not.stringContaining('there was no pin before') })
      await tickets.down()
      const gone = await raise(1)
      service.kill('SIGKILL')
      await service.ended
      await rm(old.dataDir, { recursive: true })
      await tickets.up()

      const place = await emptyPlace(from === 'sqlite' ? 'postgres' : 'sqlite')
      const restore = await svc(
        ['db', 'restore', summary.file, '--identity', at('key.txt'), '--json'],
        place,
        {},
      )
      expect(restore).toMatchObject({ code: 0, stderr: '' })
      expect(JSON.parse(restore.stdout)).toMatchObject({
        sha256: summary.sha256,
        source: from,
        webhooksPaused: 1,
        keysLost: [],
        deliveriesEnded: 3,
        enrollmentKeys: 1,
        agents: 2,
        administrators: 1,
        rolloutsHalted: 1,
        commandsEnded: 2,
      })
      expect(JSON.parse(restore.stdout).sessionsEnded).toBeGreaterThan(0)
      expect(await readFile(join(place.dataDir, 'secrets.json'), 'utf8')).toBe(secrets)

      const again = await start(place).listening()
      const admin = await signedIn(again, totpSecret)
      const stale = clientOf(again, token).call(api.orgs.list, { query: {} })
      await expect(stale).rejects.toMatchObject({ status: 401 })
      const { data } = await admin.client.call(api.auditLogs.list, { query: { action: 'database.restore' } })
      expect(data).toMatchObject([
        { user: { role: 'system' }, details: { backup: { sha256: summary.sha256, madeAt: summary.madeAt } } },
      ])

      const back = [await steady.live(again, once), await rotating.live(again, once)]
      for (const { failure, names } of back) {
        expect(failure).toBeUndefined()
        expect(names).toContain('heartbeat')
        expect(names).not.toContain('command')
        expect(names).not.toContain('enrolled')
      }
      expect(back.map(({ names }) => names.includes('token'))).toEqual([false, true])
      for (const { id: commandId, deviceId: id } of [forSteady!, forRotating!]) {
        const shown = await admin.client.call(api.deviceCommands.show, { params: { id, commandId } })
        expect(shown).toMatchObject({
          status: 'failed',
          result: { error: expect.stringContaining(restoredAt) },
        })
      }
      const rollout = await admin.client.call(api.agentRollouts.show, { params: { id: rolloutId } })
      expect(rollout).toMatchObject({ status: 'halted', haltReason: expect.stringContaining(restoredAt) })

      // The pin is of a state that the backup is behind; the signed statement explains it, and nothing else does.
      const explained = await verify(place, again, admin.token)
      expect(explained.stdout).toMatch(/^(Sound: .*\n {2}restored on .* lost\n)+$/)
      expect(explained.code).toBe(0)
      await admin.client.call(api.sites.create, { body: { orgId, name: 'a site since' } })
      expect(await verify(place, again, admin.token)).toMatchObject({ code: 0 })

      const shown = await svc(['webhooks', 'show', webhookId], place, asUser(again, admin.token))
      expect(shown.stdout).toMatch(
        /Status: +paused\nStatus reason: +the database was restored at .* from a backup of /,
      )
      const hand = handOn(admin.client, orgId)
      const meanwhile = await hand.raise(2)
      expect(accepted).toHaveLength(7)
      // Events of the meantime are stored until somebody replays them; what the restore ended stays where it is.
      for (const args of [
        ['resume', webhookId],
        ['replay', webhookId, '--status', 'kept'],
      ])
        expect((await svc(['webhooks', ...args], place, asUser(again, admin.token))).code).toBe(0)
      const since = await hand.raise(2)
      await until(() => accepted.length >= 11, 30_000)
      await invite(admin.client, 'grace')
      await until(() => mail.received.length >= 3, 30_000)
      const deliveries = await hand.deliveries(webhookId)
      expect(deliveries.filter(({ status }) => ['pending', 'retrying'].includes(status))).toEqual([])
      const ended = deliveries.filter(({ status }) => status === 'failed')
      expect(ended.map(({ eventId }) => eventId)).toEqual(due)
      for (const { errorMessage } of ended) expect(errorMessage).toContain(restoredAt)
      expect([...accepted].sort()).toEqual([...before, ...due, ...lost, ...meanwhile, ...since].sort())
      expect(accepted).not.toContain(gone[0])
      const numbers = tickets.got.map(({ headers }) => headers['x-service-sequence'])
      expect(new Set(numbers).size).toBe(numbers.length)
      // The administrator was told of the second factor.
      expect(mail.received.flatMap(({ to }) => to).sort()).toEqual([
        'ada@example.com',
        adminEmail,
        'grace@example.com',
      ])
    },
  )
})

/** The beginning of why something was ended. */
const restoredAt = 'the database was restored at '
const allNew = /^(Sound: .*pinned without comparison: there was no pin before\n)+$/

const asUser = (url: string, token: string) => ({ SVC_URL: url, SVC_TOKEN: token })

describe('an encrypted backup', () => {
  it('is opened by each of its recipients, and by nobody else', async () => {
    const folder = await temporaryFolder()
    const identities = await Promise.all([1, 2, 3].map(() => generateX25519Identity()))
    const recipients = await Promise.all(identities.map((one) => identityToRecipient(one)))
    const files = identities.map((_, n) => join(folder, `${n}.txt`))
    for (const [n, file] of files.entries()) await writeFile(file, identities[n]!)
    const place = await emptyPlace('sqlite')
    const service = new ServeProcess(place, { env })
    await service.listening()
    const out = join(folder, 'of.backup')
    const to = recipients.slice(0, 2).flatMap((one) => ['--recipient', one])
    expect(await svc(['db', 'backup', '--out', out, ...to, '--with-secrets'], place, {})).toMatchObject({
      code: 0,
    })
    await service.stop()

    const refused = async (args: string[], says: RegExp) => {
      const target = await emptyPlace('sqlite')
      const { code, stderr } = await svc(['db', 'restore', out, ...args], target, {})
      expect([code, stderr]).toEqual([1, expect.stringMatching(says)])
      expect(await readdir(target.dataDir)).toEqual([])
    }
    await refused([], /is encrypted: name the file of your identity with --identity/)
    await refused(['--identity', files[2]!], /is not encrypted to an identity in/)
    await refused(['--identity', join(folder, 'none')], /Cannot read --identity .*ENOENT/)
    await refused(['--identity', 'AGE-SECRET-KEY-1QQQQ'], /^(?!.*QQQQ).*is the name of a file/)
    await refused(['--identity', out], /has a line that is no identity of age|has no identity/)
    const bytes = await readFile(out)
    for (const [name, change] of damages) {
      await writeFile(out, change(Buffer.from(bytes)))
      await refused(['--identity', files[0]!], name)
    }
    await writeFile(out, bytes)
    for (const file of files.slice(0, 2)) {
      const target = await emptyPlace('sqlite')
      expect(await svc(['db', 'restore', out, '--identity', file], target, {})).toMatchObject({ code: 0 })
    }
  })

  const flip = (at: number) => (bytes: Buffer) => {
    bytes[at < 0 ? bytes.length + at : at]! ^= 1
    return bytes
  }
  const damages: [says: RegExp, change: (bytes: Buffer) => Buffer][] = [
    [/is damaged: /, flip(-1)],
    [/is damaged: /, flip(-3000)],
    [/is damaged: |is not encrypted to/, flip(60)],
    [/is damaged: /, (bytes) => bytes.subarray(0, -100)],
    [/is damaged: /, (bytes) => bytes.subarray(0, 40)],
    [/is damaged: /, (bytes) => Buffer.concat([bytes, bytes])],
  ]

  it('is what secrets need: without a recipient they stay', async () => {
    const place = await emptyPlace('sqlite')
    const service = new ServeProcess(place, { env })
    await service.listening()
    const folder = await temporaryFolder()
    const out = ['--out', folder]
    const refused = async (args: string[], says: RegExp) => {
      const { code, stderr } = await svc(['db', 'backup', ...args], place, {})
      expect([code, stderr]).toEqual([1, expect.stringMatching(says)])
      expect(await readdir(folder)).toEqual([])
    }
    await refused([...out, '--with-secrets'], /--with-secrets needs --recipient/)
    await refused([...out, '--recipient', 'age1nobody'], /--recipient must be a public key such as age1/)
    const identity = await generateX25519Identity()
    const { stderr } = await svc(['db', 'backup', ...out, '--recipient', identity], place, {})
    expect(stderr).not.toContain(identity)
    await refused(['--out', join(folder, 'none', 'a.backup')], /--out: there is no directory/)
    await mkdir(join(folder, 'a'))
    await service.stop()
  })
})

import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { generateX25519Identity, identityToRecipient } from 'age-encryption'
import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { temporaryFolder } from '../../databases.ts'
import { adminEmail, adminPassword, clientOf } from '../../harness.ts'
import { ServeProcess } from '../process.ts'
import { machine } from '../request.ts'
import { svc } from './binary.ts'
import { emptyPlace, kinds, type Place } from './filled.ts'

/** Its keys are those that it generated: nothing but the backup has them. */
const env = {
  SVC_ADMIN_EMAIL: adminEmail,
  SVC_ADMIN_PASSWORD: adminPassword,
  ENABLE_2FA: 'false',
  OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
  PUBLIC_URL: 'http://svc.example.com',
}
const who = { email: adminEmail, password: adminPassword }
const beat = { status: 'ok' as const, agentVersion: '0.1.0' }

async function signedIn(url: string) {
  const { tokens } = await clientOf(url).call(api.auth.login, { body: who })
  return { tokens: tokens!, client: clientOf(url, tokens!.accessToken) }
}

/** What a small installation has. */
async function populate(url: string) {
  const { client, tokens } = await signedIn(url)
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  const { id: orgId } = await client.call(api.orgs.create, {
    body: { partnerId, name: 'Bakery', slug: 'bakery' },
  })
  const { key } = await client.call(api.enrollmentKeys.create, { body: { orgId, name: 'till', maxUsage: 5 } })
  const agent = await clientOf(url).call(api.agents.enroll, { body: machine(key, 'till-1') })
  const body = {
    orgId,
    name: 'Tickets',
    url: 'https://127.0.0.1:9/',
    events: ['device.updated' as const],
  }
  const { id: webhookId } = await client.call(api.webhooks.create, { body })
  return { orgId, webhookId, agent, tokens, enrollmentKey: key }
}

describe.each(kinds)('a service on %s whose machine is lost', (from) => {
  it('goes on from its backup, on the other database', { timeout: 180_000 }, async () => {
    const [identityFile, backups] = [join(await temporaryFolder(), 'key.txt'), await temporaryFolder()]
    const identity = await generateX25519Identity()
    await writeFile(identityFile, `# an identity\n${identity}\n`)
    const recipient = await identityToRecipient(identity)

    const old = await emptyPlace(from)
    const service = new ServeProcess(old, { env })
    const url = await service.listening()
    const made = await populate(url)
    const heartbeat = (at: string) =>
      clientOf(at, made.agent.authToken).call(api.agents.heartbeat, {
        params: { id: made.agent.agentId },
        body: beat,
      })
    await heartbeat(url)
    let isBusy = true
    const busy = (async () => {
      const { client } = await signedIn(url)
      for (let n = 0; isBusy && n < 2000; n++) {
        await client.call(api.sites.create, { body: { orgId: made.orgId, name: `site ${n}` } })
        await heartbeat(url)
      }
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
    service.kill('SIGKILL')
    await service.ended
    await rm(old.dataDir, { recursive: true })

    const place: Place = await emptyPlace(from === 'sqlite' ? 'postgres' : 'sqlite')
    const restore = await svc(
      ['db', 'restore', summary.file, '--identity', identityFile, '--json'],
      place,
      {},
    )
    expect(restore).toMatchObject({ code: 0, stderr: '' })
    expect(JSON.parse(restore.stdout)).toMatchObject({
      ...{ sha256: summary.sha256, source: from, webhooksPaused: 1, keysLost: [] },
      ...{ enrollmentKeys: 1, agents: 1, administrators: 1 },
    })
    expect(JSON.parse(restore.stdout).sessionsEnded).toBeGreaterThan(0)
    expect(await readFile(join(place.dataDir, 'secrets.json'), 'utf8')).toBe(secrets)

    const again = await new ServeProcess(place, { env }).listening()
    const { client, tokens } = await signedIn(again)
    await heartbeat(again)
    await clientOf(again).call(api.agents.enroll, { body: machine(made.enrollmentKey, 'till-2') })
    const late = clientOf(again, made.tokens.accessToken).call(api.orgs.list, { query: {} })
    await expect(late).rejects.toMatchObject({ status: 401 })
    const { data } = await client.call(api.auditLogs.list, { query: { action: 'database.restore' } })
    expect(data).toMatchObject([
      { user: { role: 'system' }, details: { backup: { sha256: summary.sha256, madeAt: summary.madeAt } } },
    ])
    const shown = await svc(['webhooks', 'show', made.webhookId], place, asUser(again, tokens.accessToken))
    expect(shown.stdout).toMatch(
      /Status: +paused\nStatus reason: +the database was restored at .* from a backup of /,
    )
    const verified = await svc(['audit', 'verify'], place, asUser(again, tokens.accessToken))
    expect(verified.stdout).toMatch(/^(Sound: .*\n {2}restored on .*\n)+$/)
    expect(verified.code).toBe(0)
  })
})

const asUser = (url: string, token: string) => ({ SVC_URL: url, SVC_TOKEN: token })

describe('an encrypted backup', () => {
  it('is opened by each of its recipients, and by nobody else', { timeout: 120_000 }, async () => {
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

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateSync } from 'otplib'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import type { Site } from '../../src/tenancy/contract.ts'
import { openEmpty, openMigrated, type TestDatabase, temporaryFolder } from '../databases.ts'
import { adminEmail, clientOf, serviceOn, testSecrets } from '../harness.ts'
import { ServeProcess, until } from './process.ts'
import { machine, readChain, send } from './request.ts'

describe('two processes that start at the same moment on one empty Postgres', () => {
  let database: TestDatabase
  let replicas: ServeProcess[]
  let urls: [string, string]
  let token: string
  let orgId: string
  let folders: string[]

  beforeAll(async () => {
    database = await openEmpty('postgres')
    const env = { ...testSecrets, SVC_ADMIN_EMAIL: adminEmail }
    const { databaseUrl } = database
    folders = await Promise.all([temporaryFolder(), temporaryFolder()])
    replicas = folders.map((dataDir) => new ServeProcess({ dataDir, databaseUrl }, { env }))
    urls = (await Promise.all(replicas.map((one) => one.listening()))) as [string, string]
    await until(() => replicas.every((one) => one.stderr.includes('Data: ')))
  })

  afterAll(async () => {
    const ended = await Promise.all(replicas.map((one) => one.stop()))
    await database.close()
    expect(ended).toEqual(replicas.map(() => ({ code: 0, signal: null })))
  })

  const firstPasswords = () =>
    folders
      .map((folder) => join(folder, 'first-password'))
      .filter(existsSync)
      .map((file) => readFileSync(file, 'utf8').trim())
  const db = () => database.storage.read
  const both = <T>(times: number, work: (url: string, n: number) => Promise<T>): Promise<T[]> =>
    Promise.all(Array.from({ length: times }, (_, n) => work(urls[n % 2]!, n)))

  it('migrate once and create one administrator and each built-in role once', async () => {
    expect(await db().selectFrom('users').select(['email', 'is_system']).execute()).toEqual([
      { email: adminEmail, is_system: 1 },
    ])
    const roles = await db().selectFrom('roles').select(['scope', 'name']).execute()
    expect(new Set(roles.map(({ scope, name }) => `${scope} ${name}`))).toHaveProperty('size', 8)
    expect(roles).toHaveLength(8)
    expect(firstPasswords()).toHaveLength(1)
  })

  it('each continue what the other began: sign-in, MFA, tokens', async () => {
    const [password = ''] = firstPasswords()
    const [a, b] = urls
    const login = await clientOf(b).call(api.auth.login, { body: { email: adminEmail, password } })
    const first = login.tokens!.accessToken
    const { secret } = await clientOf(a, first).call(api.auth.setupMfa)
    const body = { code: generateSync({ secret }) }
    const { tokens } = await clientOf(b, first).call(api.auth.enableMfa, { body })
    token = tokens.accessToken

    for (const url of urls) {
      expect((await clientOf(url, token).call(api.auth.me)).mfaVerified).toBe(true)
      await expect(clientOf(url, first).call(api.auth.me)).rejects.toMatchObject({ code: 'invalid_token' })
    }
    const partner = await clientOf(a, token).call(api.partners.create, {
      body: { name: 'Acme', slug: 'acme' },
    })
    const org = { partnerId: partner.id, name: 'Bakery', slug: 'bakery' }
    orgId = (await clientOf(b, token).call(api.orgs.create, { body: org })).id
  })

  it('append to one audit chain: no fork, no gap, one entry per change', async () => {
    const [made] = await Promise.all([
      both(300, (url, n) =>
        clientOf(url, token).call(api.sites.create, { body: { orgId, name: `site ${n}` } }),
      ),
      both(20, (url) => clientOf(url, token).call(api.auditLogs.list, { query: { orgId } })),
    ])
    const { verdict, entries } = await readChain(clientOf(urls[0], token), orgId)
    // Reading a chain is itself audited.
    const other = await readChain(clientOf(urls[1], token), orgId)
    expect(other.entries.slice(0, entries.length)).toEqual(entries)
    expect(other.verdict.verdict).toBe('sound')
    expect(verdict).toMatchObject({ verdict: 'sound', entries: entries.length })
    expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, n) => n + 1))
    const created = entries.filter(({ action }) => action === 'site.create').map((one) => one.resourceId)
    expect(created.sort()).toEqual(made.map(({ id }) => id).sort())
    const { verdict: system } = await readChain(clientOf(urls[0], token))
    expect(system.verdict).toBe('sound')
  })

  it('never enroll more devices with a key than it allows', async () => {
    const body = { orgId, name: 'seven', maxUsage: 7 }
    const { id, key } = await clientOf(urls[0], token).call(api.enrollmentKeys.create, { body })
    const replies = await both(40, (url, n) =>
      send(url, 'POST', '/api/v1/agents/enroll', { body: machine(key, `machine ${n}`) }),
    )
    expect(replies.filter(({ status }) => status === 201)).toHaveLength(7)
    const refused = replies.filter(({ status }) => status !== 201)
    expect(new Set(refused.map((one) => one.body.code))).toEqual(new Set(['enrollment_key_exhausted']))
    const shown = await clientOf(urls[1], token).call(api.enrollmentKeys.show, { params: { id } })
    expect(shown.usageCount).toBe(7)
    const devices = db().selectFrom('devices').select('id').where('enrollment_key_id', '=', id)
    expect((await devices.execute()).map((one) => one.id)).toContain(shown.lastDeviceId)
    expect(await devices.execute()).toHaveLength(7)
  })

  it('create one record for an Idempotency-Key that reaches both at once, with one reply', async () => {
    const sent = { token, body: { orgId, name: 'only one' }, headers: { 'idempotency-key': 'one-of-a-kind' } }
    const replies = await both(20, (url) => send<Site>(url, 'POST', '/api/v1/orgs/sites', sent))
    expect(replies.map(({ status, body }) => ({ status, body }))).toEqual(
      replies.map(() => ({ status: 201, body: replies[0]!.body })),
    )
    const rows = db().selectFrom('sites').select('id').where('name', '=', 'only one')
    expect(await rows.execute()).toEqual([{ id: replies[0]!.body.id }])
    const { entries } = await readChain(clientOf(urls[1], token), orgId)
    expect(entries.filter((one) => one.resourceName === 'only one')).toHaveLength(1)
  })

  it('both reject a session as soon as one of them signed it out', async () => {
    await clientOf(urls[0], token).call(api.auth.logout)
    const replies = await both(4, (url) => send(url, 'GET', '/api/v1/auth/me', { token }))
    expect(replies.map(({ status }) => status)).toEqual([401, 401, 401, 401])
  })
})

it.each([
  ['empty', openEmpty],
  ['migrated', openMigrated],
])('several that start at the same moment on an %s database create one administrator', async (_, open) => {
  const database = await open('postgres')
  onTestFinished(database.close)
  const env = { SVC_ADMIN_PASSWORD: '' }
  const services = await Promise.all(Array.from({ length: 4 }, () => serviceOn(database, { env })))
  const passwords = services.flatMap(({ firstAdministrator }) => firstAdministrator?.password ?? [])
  expect(passwords).toHaveLength(1)
  const body = { email: adminEmail, password: passwords[0]! }
  for (const service of services) await service.client().call(api.auth.login, { body })
  const db = database.storage.read
  expect(await db.selectFrom('users').select('email').execute()).toEqual([{ email: adminEmail }])
  expect(await db.selectFrom('roles').select('id').execute()).toHaveLength(8)
})

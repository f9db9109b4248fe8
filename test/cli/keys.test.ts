import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { FakeService, organization, page, problem, uuid } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()
const key = `svc_${'k'.repeat(32)}`
const ci = {
  id: uuid(50),
  orgId: uuid(10),
  name: 'ci',
  keyPrefix: 'svc_kkkkkkkk',
  scopes: ['devices:read'],
  expiresAt: null,
  rateLimit: 1000,
  status: 'active',
  createdBy: uuid(1),
  createdAt: '2026-01-31T12:00:00.000Z',
  lastUsedAt: null,
  usageCount: 0,
}
const minted = { ...ci, key, warning: 'Store this API key securely. It will not be shown again.' }

beforeAll(async () => {
  await service.start()
  home.signIn(service.url, {}, { org: 'blue-bakery' })
})

beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /orgs/'] = { body: { data: [organization(10, 'blue-bakery', 'Blue Bakery')] } }
  service.answers['GET /api-keys'] = page([ci])
  service.answers['POST /api-keys'] = { status: 201, body: minted }
  service.answers[`PATCH /api-keys/${ci.id}`] = { body: ci }
  service.answers[`POST /api-keys/${ci.id}/rotate`] = { body: minted }
  service.answers[`DELETE /api-keys/${ci.id}`] = {
    body: { success: true, message: 'API key revoked successfully', apiKey: ci },
  }
  service.answers['GET /devices'] = page([])
  const forUsers = problem(401, 'unauthenticated', 'Missing or invalid authorization header')
  Object.assign(service.answers, { 'GET /auth/me': forUsers, 'GET /users/me': forUsers })
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)
const withKey = (args: string[], env: Record<string, string> = {}) =>
  home.run(args, { env: { SVC_API_KEY: key, SVC_URL: service.url, ...env } })

describe('svc keys', () => {
  it('creates a key and prints only that, with scopes repeated or separated by commas', async () => {
    const scopes = ['--scope', 'devices:read,alerts:read', '--scope', 'sites:read']
    const { code, stdout, stderr } = await svc('keys', 'create', '--name', 'ci', ...scopes)
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${key}\n` })
    expect(stderr).toContain('not displayed again')
    expect(stderr).not.toContain(key)
    expect(service.calls('POST /api-keys')[0]?.body).toEqual({
      orgId: uuid(10),
      name: 'ci',
      scopes: ['devices:read', 'alerts:read', 'sites:read'],
    })
  })

  it('says which commands each scope of a new key opens, and which opens none', async () => {
    const scopes = ['--scope', 'devices:delete', '--scope', 'users:read']
    const { stdout, stderr } = await svc('keys', 'create', '--name', 'ci', ...scopes)
    expect(stdout).toBe(`${key}\n`)
    expect(stderr).toMatch(/^devices:delete opens svc devices decommission, devices delete$/m)
    expect(stderr).toMatch(/^users:read opens no command: nothing that needs it is open to API keys$/m)
    const all = await svc('keys', 'create', '--name', 'ci', '--scope', '*')
    expect(all.stderr).toMatch(/^config:read opens svc (?!.*rollback).*config plan/m)
    expect(all.stderr).toMatch(/^devices:read opens svc .*filters preview.*logs tail.*$/m)
    expect(all.stderr).not.toContain('users:')
    const dry = await svc('keys', 'create', '--name', 'ci', ...scopes, '--json')
    expect(dry.stderr).not.toContain('opens')
  })

  it('writes a new key to a private file', async () => {
    const file = `${home.path}/ci.key`
    const { code, stdout } = await svc('keys', 'create', '--name', 'ci', '--out-file', file)
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
    expect(home.read('ci.key')).toBe(`${key}\n`)
    expect(home.mode('ci.key')).toBe('600')
  })

  it('refuses an unknown scope with a suggestion', async () => {
    const result = await svc('keys', 'create', '--name', 'ci', '--scope', 'device:read', '--json')
    expect(result.code).toBe(2)
    expect(failureOf(result).hint).toContain('devices:read')
    expect(service.calls('POST /api-keys')).toEqual([])
  })

  it('--if-not-exists ignores a revoked key', async () => {
    service.answers['GET /api-keys'] = ({ path }) => page(path.includes('status=active') ? [] : [ci])
    const { stdout } = await svc('keys', 'create', '--name', 'ci', '--if-not-exists')
    expect(stdout).toBe(`${key}\n`)
  })

  it('takes durations, dates and instants for times', async () => {
    const day = 86_400_000
    const inDays = (text: unknown) => Math.round((Date.parse(String(text)) - Date.now()) / day)
    await svc('keys', 'create', '--name', 'ci', '--expires-at', '30d')
    const created = service.calls('POST /api-keys')[0]!.body as { expiresAt: string }
    expect(inDays(created.expiresAt)).toBe(30)
    await svc('keys', 'rotate', 'ci', '--expires-at', '2099-12-31', '--overlap-seconds', '12h')
    await svc('keys', 'rotate', 'ci', '--expires-at', 'null')
    expect(service.calls(`POST /api-keys/${ci.id}/rotate`).map(({ body }) => body)).toEqual([
      { overlapSeconds: 43_200, expiresAt: '2099-12-31' },
      { expiresAt: null },
    ])
    service.seen.length = 0
    await svc('keys', '--expiring-within', '30d')
    const query = new URLSearchParams(service.calls('GET /api-keys')[0]?.path.split('?')[1])
    expect(inDays(query.get('expiresBefore'))).toBe(30)
    const refused = await svc('keys', 'create', '--name', 'ci', '--expires-at', 'soon', '--json')
    expect([refused.code, failureOf(refused).message]).toEqual([2, '--expires-at takes a time, not "soon"'])
  })

  it('lists when keys expire', async () => {
    service.answers['GET /api-keys'] = page([{ ...ci, expiresAt: '2026-02-28T12:00:00.000Z' }])
    expect((await svc('keys')).stdout).toMatch(/ EXPIRES AT .*\n.*2026-02-28T12:00:00.000Z/)
  })

  it('updates, rotates and revokes a key by name', async () => {
    expect((await svc('keys', 'update', 'ci', '--scope', 'alerts:read', '--rate-limit', '5')).code).toBe(0)
    expect(service.calls(`PATCH /api-keys/${ci.id}`)[0]?.body).toEqual({
      scopes: ['alerts:read'],
      rateLimit: 5,
    })
    const rotated = await svc('keys', 'rotate', 'ci', '--overlap-seconds', '60')
    expect(rotated.stdout).toBe(`${key}\n`)
    expect(service.calls(`POST /api-keys/${ci.id}/rotate`)[0]?.body).toEqual({ overlapSeconds: 60 })
    expect((await svc('keys', 'revoke', 'ci')).code).toBe(2)
    expect(service.calls(`DELETE /api-keys/${ci.id}`)).toEqual([])
    const revoked = await svc('keys', 'revoke', 'ci', '--yes')
    expect(revoked).toMatchObject({ code: 0, stdout: 'API key revoked successfully\n' })
  })
})

describe('SVC_API_KEY', () => {
  it('is sent instead of the session, without the default organization of the user', async () => {
    expect((await withKey(['devices', 'list'])).code).toBe(0)
    const [sent] = service.calls('GET /devices')
    expect(sent?.headers).toMatchObject({ 'x-api-key': key })
    expect(sent?.headers.authorization).toBeUndefined()
    expect(sent?.path).not.toContain('orgId')
    expect(service.calls('GET /orgs/')).toEqual([])
  })

  it('is who whoami and auth status show', async () => {
    const caller = { kind: 'api_key', id: ci.id, name: 'ci', email: null, run: null, scope: 'organization' }
    const body = { ...caller, partnerId: null, orgId: ci.orgId, permissions: ['devices:read'] }
    service.answers['GET /auth/caller'] = { body }
    const who = await withKey(['whoami', '--json'])
    expect([who.code, JSON.parse(who.stdout)]).toEqual([0, body])
    const status = JSON.parse((await withKey(['auth', 'status', '--json'])).stdout)
    expect(status).toMatchObject({ apiKey: { id: ci.id, name: 'ci' }, credential: 'SVC_API_KEY' })
    expect(service.calls('GET /auth/me')).toEqual([])
  })

  it('is overridden by a token', async () => {
    await withKey(['devices', 'list'], { SVC_TOKEN: 'a-token' })
    const [sent] = service.calls('GET /devices')
    expect(sent?.headers.authorization).toBe('Bearer a-token')
    expect(sent?.headers['x-api-key']).toBeUndefined()
  })

  it('at a route for users gives an error with a hint', async () => {
    const result = await withKey(['profile', '--json'])
    expect(result).toMatchObject({ code: 4, stdout: '' })
    expect(failureOf(result)).toMatchObject({
      code: 'unauthenticated',
      message: 'This requires a signed-in user, not an API key',
      hint: expect.stringContaining('env -u SVC_API_KEY'),
    })
  })

  it('that is refused gives an error that names its source, and never shows it', async () => {
    service.answers['GET /devices'] = problem(401, 'api_key_revoked', 'API key is revoked')
    const result = await withKey(['devices', 'list', '--json'], { SVC_DEBUG: '1' })
    expect(result.code).toBe(4)
    expect(failureOf(result)).toMatchObject({
      code: 'api_key_revoked',
      hint: expect.stringContaining('SVC_API_KEY'),
    })
    expect(result.stdout + result.stderr).not.toContain(key)
  })

  it('is explained without being shown', async () => {
    const explain = async (env: Record<string, string> = {}) =>
      JSON.parse((await withKey(['config', 'explain', 'api-key', '--json'], env)).stdout) as object
    expect(await explain()).toMatchObject({ value: '********', from: 'env', source: 'SVC_API_KEY' })
    expect(await explain({ SVC_TOKEN: 'a-token' })).toMatchObject({ value: null })
  })

  it('does not prevent a user from signing out', async () => {
    home.signIn(service.url)
    service.answers['POST /auth/logout'] = { body: { success: true } }
    const { code } = await withKey(['logout'])
    expect(code).toBe(0)
    expect(service.calls('POST /auth/logout')[0]?.headers.authorization).toBe('Bearer access-1')
  })
})

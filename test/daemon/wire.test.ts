import { connect } from 'node:net'
import { beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { version } from '../../src/version.ts'
import { openMigrated } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { administer } from '../postgres-databases.ts'
import { systemToken } from '../world.ts'
import { until } from './process.ts'
import { send } from './request.ts'

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/

describe('every failure has the same shape', () => {
  let service: TestService
  let url: string
  let token: string

  beforeAll(async () => {
    const database = await openMigrated('sqlite')
    service = await serviceOn(database)
    url = service.url
    token = await systemToken(service)
    return async () => {
      await service.close()
      await database.close()
    }
  })

  const post = (body: unknown, headers = {}) => ({ body, headers })
  it.each([
    ['an unknown route', 'GET', '/nowhere', {}, 404, 'not_found'],
    ['an unknown route of the API', 'POST', '/api/v1/nowhere', post({}), 404, 'not_found'],
    ['a path that is not UTF-8', 'GET', '/api/v1/%E0%A4%A', {}, 400, 'invalid_request'],
    ['an id that is far too long', 'GET', `/api/v1/orgs/sites/${'a'.repeat(300)}`, {}, 404, 'not_found'],
    ['no credentials', 'GET', '/api/v1/orgs/sites', {}, 401, 'unauthenticated'],
    ['a malformed token', 'GET', '/api/v1/orgs/sites', { token: 'abc' }, 401, 'invalid_token'],
    ['malformed JSON', 'POST', '/api/v1/auth/login', post('{"email":'), 400, 'malformed_json'],
    ['a prototype key', 'POST', '/api/v1/auth/login', post('{"__proto__":{}}'), 400, 'malformed_json'],
    ['a body that is a list', 'POST', '/api/v1/auth/login', post([]), 400, 'invalid_request'],
    ['no body', 'POST', '/api/v1/auth/login', {}, 400, 'invalid_request'],
    [
      'a form',
      'POST',
      '/api/v1/auth/login',
      post('a=b', { 'content-type': 'text/plain' }),
      415,
      'unsupported_media_type',
    ],
    [
      'a body over 1 MiB',
      'POST',
      '/api/v1/auth/login',
      post(`"${'a'.repeat(2 ** 20)}"`),
      413,
      'payload_too_large',
    ],
    ['a method the path does not have', 'DELETE', '/api/v1/auth/login', {}, 405, 'method_not_allowed'],
  ] as const)('%s', async (_, method, path, parts, status, code) => {
    const { headers, ...reply } = await send(url, method, path, parts)
    expect(reply).toMatchObject({
      status,
      body: { code, error: expect.any(String), requestId: expect.stringMatching(uuid) },
    })
    expect(headers['x-request-id']).toBe(reply.body.requestId)
    expect(headers['content-type']).toBe('application/json; charset=utf-8')
    const known = ['error', 'code', 'requestId', 'details']
    expect(Object.keys(reply.body).filter((key) => !known.includes(key))).toEqual([])
  })

  it('all faults of a request are reported at once, each with its path', async () => {
    const body = { name: '', timezone: 'Mars/Olympus', colour: 'red', settings: 7 }
    const { status, body: reply } = await send(url, 'POST', '/api/v1/orgs/sites', { token, body })
    expect({ status, code: reply.code }).toEqual({ status: 400, code: 'invalid_request' })
    const paths = (reply.details as { path: string }[]).map(({ path }) => path).sort()
    expect(paths).toEqual(['body.colour', 'body.name', 'body.orgId', 'body.settings', 'body.timezone'])
    const unknown = await send(url, 'GET', '/api/v1/orgs/sites?colour=red', { token })
    expect(unknown.body.details).toEqual([{ path: 'query.colour', message: 'is not a known field' }])
  })

  it('a refused method lists the allowed ones; OPTIONS allows nothing to other origins', async () => {
    const headers = { origin: 'https://evil.example', 'access-control-request-method': 'POST' }
    const reply = await send(url, 'OPTIONS', '/api/v1/orgs/sites', { headers })
    expect({ status: reply.status, allow: reply.headers.allow }).toEqual({ status: 405, allow: 'GET, POST' })
    const allowing = [
      ...Object.keys(reply.headers),
      ...Object.keys((await send(url, 'GET', '/health', { headers })).headers),
    ]
    expect(allowing.filter((name) => name.startsWith('access-control-'))).toEqual([])
  })

  it('a reply to HEAD has no body, whatever its status', async () => {
    const alive = await send(url, 'HEAD', '/health')
    expect(alive).toMatchObject({
      status: 200,
      body: '',
      headers: { 'content-type': expect.stringContaining('json') },
    })
    expect(await send(url, 'HEAD', '/nowhere')).toMatchObject({ status: 404, body: '' })
  })

  it('input that is not HTTP gets 400 and the connection closes; the service continues', async () => {
    const { port } = new URL(url)
    const socket = connect(Number(port), '127.0.0.1')
    socket.end('this is not http\r\n\r\n')
    const answer = (await socket.setEncoding('utf8').toArray()).join('')
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
    expect((await send(url, 'GET', '/health')).status).toBe(200)
  })

  it('an X-Request-Id is kept when it is a plain token and replaced otherwise', async () => {
    const idOf = async (given: string) =>
      (await send(url, 'GET', '/nowhere', { headers: { 'x-request-id': given } })).body.requestId
    for (const good of ['abc', 'A-1.b_2:3', 'x'.repeat(128)]) expect(await idOf(good)).toBe(good)
    for (const bad of ['a b', '', 'x'.repeat(129), 'a"b', '{"a":1}', 'ü', 'a, b']) {
      expect(await idOf(bad)).toMatch(uuid)
    }
    const twice = await send(url, 'GET', '/nowhere')
    expect(twice.body.requestId).not.toBe((await send(url, 'GET', '/nowhere')).body.requestId)
  })

  it.each(['/health', '/api/v1/health', '/nowhere', '/api/v1/openapi.json'])(
    'security headers let a browser only read %s',
    async (path) => {
      const { headers } = await send(url, 'GET', path)
      expect(headers).toMatchObject({
        'x-content-type-options': 'nosniff',
        'x-frame-options': expect.stringMatching(/^(DENY|SAMEORIGIN)$/),
        'content-security-policy': expect.stringContaining("default-src 'none'"),
        'strict-transport-security': expect.stringMatching(/max-age=\d{8}/),
        'referrer-policy': expect.any(String),
      })
      // Headers that only pages need are omitted from data.
      expect('origin-agent-cluster' in headers).toBe(path !== '/api/v1/health')
      expect(headers).not.toHaveProperty('x-powered-by')
      expect(headers).not.toHaveProperty('server')
    },
  )

  it('health reports version and uptime at the root and below the API', async () => {
    for (const path of ['/health', '/api/v1/health']) {
      const { status, body } = await send(url, 'GET', path)
      expect({ status, body }).toEqual({
        status: 200,
        body: { status: 'ok', version, uptime: expect.any(Number), clientAddress: '127.0.0.1' },
      })
    }
    expect((await send(url, 'GET', '/health/live')).body).toEqual({ status: 'ok' })
    const ready = await send(url, 'GET', '/health/ready')
    expect(ready).toMatchObject({ status: 200, body: { status: 'ready', checks: { database: 'ok' } } })
  })
})

it('an unreachable database is 503 for everything but liveness, until it is back', async () => {
  const { databaseUrl, ...database } = await openMigrated('postgres')
  const service = await serviceOn({ ...database, databaseUrl })
  const token = await systemToken(service)
  const name = new URL(databaseUrl!).pathname.slice(1)
  const ready = async () => (await send(service.url, 'GET', '/health/ready')).status === 200
  const rename = (from: string, to: string) =>
    administer(async (client) => {
      // The service would reconnect before the database is renamed.
      await client.query(`alter database ${from} allow_connections false`)
      await until(async () => {
        await client.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [
          from,
        ])
        return client.query(`alter database ${from} rename to ${to}`).then(
          () => true,
          () => false,
        )
      })
      await client.query(`alter database ${to} allow_connections true`)
    })

  await rename(name, `${name}_away`)
  await until(async () => !(await ready()))
  expect(await send(service.url, 'GET', '/health/ready')).toMatchObject({
    status: 503,
    body: { status: 'not_ready', checks: { database: 'error: unreachable' } },
  })
  expect((await send(service.url, 'GET', '/health/live')).status).toBe(200)
  expect((await send(service.url, 'GET', '/health')).status).toBe(200)
  const attempts = [
    send(service.url, 'GET', '/api/v1/orgs/sites', { token }),
    send(service.url, 'POST', '/api/v1/orgs/partners', { token, body: { name: 'Acme', slug: 'acme' } }),
    send(service.url, 'POST', '/api/v1/auth/login', {
      body: { email: 'a@example.com', password: 'wrong password' },
    }),
  ]
  for (const { status, body } of await Promise.all(attempts)) {
    expect({ status, body }).toMatchObject({
      status: 503,
      body: { code: 'unavailable', error: 'Service temporarily unavailable' },
    })
  }

  await rename(`${name}_away`, name)
  await until(ready)
  expect((await service.client(token).call(api.partners.list)).data).toEqual([])
  await administer((client) => client.query(`drop database ${name} with (force)`))
  await until(async () => !(await ready()))
  await service.close()
  await database.close()
})

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { systemToken } from '../world.ts'
import { faultOf } from './refusal.ts'
import { type Answer, bytesOf, Line, sendBytes } from './wire.ts'

const entries = entriesOf(api)
const paths = [...new Set(entries.map(({ entry }) => entry.path))]
const someId = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'
const pathTo = (path: string): string => `/api/v1${path.replace(/:\w+/g, someId)}`
const bare = (path: string): string => path.replace(/\/$/, '')

let service: TestService
let line: Line
let token: string

beforeAll(async () => {
  service = await startService(() => openMigrated('sqlite'))
  token = await systemToken(service)
  line = new Line(service.url)
})
afterAll(async () => {
  await line.close()
  await service.close()
})

/** A literal path may also match an entry with a parameter, for which it is not a valid ID. */
const fits = (pattern: string, path: string): boolean =>
  new RegExp(`^${pattern.replace(/:\w+/g, '[^/]+')}$`).test(path)

describe('an unexpected request', () => {
  it.each(paths)('to %s finds only the methods of the path', async (path) => {
    const known = entries
      .filter(({ entry }) => bare(entry.path) === bare(path))
      .map(({ entry }) => entry.method)
    const others = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND']
    for (const method of others.filter((one) => !known.includes(one as never))) {
      // A path with a parameter may match another entry with a literal path.
      const answer = await line.send({ method, path: pathTo(path), token })
      expect([method, faultOf(answer)]).toEqual([method, undefined])
      const reached = entries.some(({ entry }) => entry.method === method && fits(entry.path, path))
      expect(reached ? [400, 404] : [404, 405]).toContain(answer.status)
    }
    const head = await line.send({ method: 'HEAD', path: pathTo(path), token })
    // Only for files: there is none for a machine of that name.
    const isFile = entries.some(({ entry }) => entry.bytes && fits(entry.path, path))
    expect([head.status, head.text]).toEqual([
      expect.toSatisfy((status) => (isFile ? status === 400 : status === 404 || status === 405)),
      '',
    ])
  })

  it.each([
    '/',
    '/api',
    '/api/',
    '/api/v1',
    '/api/v1/',
    '/api/v2/devices',
    '/API/V1/DEVICES',
    '//api/v1/devices',
    '/api/v1//devices',
    '/api/v1/devices/x/y',
    '/api/v1/devices/../users',
    '/api/v1/%2e%2e/health',
    '/.env',
    '/api/v1/%',
    '/api/v1/%ZZ',
    '/api/v1/%FF',
    '/api/v1/%00',
    '/api/v1/devices%2f',
    '/health/',
    '/health/x',
    '/api/v1/__proto__',
    '/api/v1/constructor',
    '/wp-admin',
    `/${'x'.repeat(8000)}`,
    '/api/v1/devices;x',
    '/?',
    '/#',
  ])('to %s is refused, or is an alias of a route', async (path) => {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const answer = await line.send({ method, path, token })
      if (answer.status !== 200) expect([method, faultOf(answer)]).toEqual([method, undefined])
      else expect(bare(path)).toBe('/health')
    }
  })
})

describe('an invalid header', () => {
  const ask = (headers: Record<string, string>): Promise<Answer> =>
    line.send({ method: 'GET', path: '/api/v1/devices', headers })

  it.each([
    '',
    'Bearer',
    'Bearer ',
    'Bearer x',
    `Bearer ${'x'.repeat(8000)}`,
    'Basic YTpi',
    'Bearer a b',
    'bearer null',
    'Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.',
    'Bearer eyJhbGciOiJub25lIn0.e30.',
    'Bearer ..',
    'Bearer \u00ff',
    `Bearer svc_${'a'.repeat(64)}`,
    'Bearer {"a":1}',
    ', Bearer x',
  ])('authorization: %s', async (authorization) => {
    const answer = await ask({ authorization })
    expect([faultOf(answer), answer.status]).toEqual([undefined, 401])
  })

  it.each(['GET', 'POST', 'DELETE'])('section of more than 16 KiB on a %s is refused', async (method) => {
    const bytes = bytesOf({ method, path: '/api/v1/devices', headers: { 'x-long': 'x'.repeat(20_000) } }, 0)
    const answer = await sendBytes(service.url, bytes)
    expect([faultOf(answer), answer.status]).toEqual([undefined, 431])
  })

  it('section with too many headers is refused', async () => {
    const many = Object.fromEntries(Array.from({ length: 1500 }, (_, i) => [`x-${i}`, '1']))
    const bytes = bytesOf({ method: 'GET', path: '/api/v1/devices', headers: many }, 0)
    expect(faultOf(await sendBytes(service.url, bytes))).toBe(undefined)
  })

  it.each([
    ['not HTTP at all', 'hello\r\n\r\n'],
    ['an unknown method', 'FETCH /health HTTP/1.1\r\nhost: a\r\n\r\n'],
    ['a path with a space', 'GET /health x HTTP/1.1\r\nhost: a\r\n\r\n'],
    [
      'two lengths',
      'POST /api/v1/auth/login HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}',
    ],
    [
      'a length and chunks, as in request smuggling',
      'POST /api/v1/auth/login HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['a negative length', 'POST /api/v1/auth/login HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n'],
    ['a header line without a colon', 'GET /health HTTP/1.1\r\nhost: a\r\nnonsense\r\n\r\n'],
    ['a NUL in a header', 'GET /health HTTP/1.1\r\nhost: a\r\nx: a\u0000b\r\n\r\n'],
  ])('or request line: %s', async (_, bytes) => {
    const answer = await sendBytes(service.url, bytes)
    expect(faultOf(answer)).toBe(undefined)
    expect((await line.send({ method: 'GET', path: '/health' })).status).toBe(200)
  })

  it.each(['', ' ', 'x'.repeat(256), 'x'.repeat(4000)])('Idempotency-Key %j is refused', async (key) => {
    const body = JSON.stringify({ name: 'A', slug: `a-${key.length}` })
    const headers = { 'idempotency-key': key }
    const answer = await line.send({ method: 'POST', path: '/api/v1/orgs/partners', token, body, headers })
    expect([faultOf(answer, { path: 'headers.idempotency-key' }), answer.status]).toEqual([undefined, 400])
  })

  it.each([
    ['cookie', '__proto__=1; =; ;;; a=%ZZ'],
    ['cookie', 'service_refresh_token=%00; service_csrf_token=x'],
    ['x-forwarded-for', "1.2.3.4, ::1, ' or 1=1"],
    ['accept', 'nonsense/,;q=x'],
    ['x-request-id', '<script>alert(1)</script>'],
    ['user-agent', '\u00ff'.repeat(5000)],
    ['range', 'bytes=5-1'],
    ['if-none-match', 'W/"'],
    ['content-type', 'application/json; charset=\u00ff'],
  ])('%s: %s changes nothing', async (name, value) => {
    const answer = await line.send({
      method: 'GET',
      path: '/api/v1/devices',
      token,
      headers: { [name]: value },
    })
    expect(answer.status).toBe(200)
    expect(answer.headers['x-request-id']).toMatch(/^[\w.:-]{1,128}$/)
  })
})

describe('the check of refusals', () => {
  const headers = { 'x-request-id': '1' }
  const body = { error: 'No', code: 'not_found', requestId: '1' }
  const answer = (status: number, said: unknown): Answer => ({
    status,
    headers,
    text: typeof said === 'string' ? said : JSON.stringify(said),
  })
  const bad = { ...body, code: 'invalid_request' }

  it.each([
    ['a success', answer(200, body)],
    ['a failure of the service', answer(500, { ...body, code: 'internal' })],
    ['an HTML page', answer(404, '<html>')],
    ['another status', answer(403, body)],
    ['an unregistered code', answer(404, { ...body, code: 'nope' })],
    ['another request id', answer(404, { ...body, requestId: '2' })],
    ['an empty message', answer(404, { ...body, error: '' })],
    ['additional fields', answer(404, { ...body, stack: 'x' })],
    ['a stack', answer(404, { ...body, error: 'No\n    at run (file.js:1)' })],
    ['SQL', answer(404, { ...body, error: 'select * from users' })],
    ['no details', answer(400, bad)],
    ['details without a path', answer(400, { ...bad, details: [{ message: 'is wrong' }] })],
    [
      'details with another path',
      answer(400, { ...bad, details: [{ path: 'body.b', message: 'is wrong' }] }),
    ],
  ])('finds %s', (_, wrong) => {
    expect(faultOf(wrong, { path: 'body.a' })).toEqual(expect.any(String))
  })

  it('accepts correct refusals', () => {
    expect(faultOf(answer(404, body))).toBe(undefined)
    const details = [{ path: 'body.a.0', message: 'is wrong' }]
    expect(faultOf(answer(400, { ...bad, details }), { path: 'body.a' })).toBe(undefined)
  })
})

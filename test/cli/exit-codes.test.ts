import { createServer } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, afterRateLimit, FakeService, organization, problem, uuid } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)

describe('an error of the service', () => {
  it.each<[string, number, Answer]>([
    ['invalid_request', 2, problem(400, 'invalid_request', 'bad')],
    ['unauthenticated', 4, problem(401, 'unauthenticated', 'Sign-in required')],
    ['forbidden', 5, problem(403, 'forbidden', 'Permission denied')],
    ['mfa_enrollment_required', 5, problem(428, 'mfa_enrollment_required', 'MFA enrollment required')],
    ['not_found', 3, problem(404, 'not_found', 'Not found')],
    ['conflict', 6, problem(409, 'conflict', 'Conflict')],
    ['rate_limited', 7, problem(429, 'rate_limited', 'Slow down', { retryAfter: 600 })],
    ['internal', 1, problem(500, 'internal', 'Internal Server Error')],
    ['a_code_of_the_future', 5, problem(403, 'a_code_of_the_future', 'No')],
  ])('%s exits with %i, with one line of JSON on standard error', async (code, exit, answer) => {
    service.answers['GET /orgs/'] = answer
    // Without a refresh token a 401 is final.
    home.signIn(service.url, { refreshToken: undefined })
    const result = await svc('orgs', '--json')
    expect(result).toMatchObject({ code: exit, stdout: '' })
    expect(result.stderr.trimEnd().split('\n')).toHaveLength(1)
    const { error } = answer.body as { error: string }
    expect(failureOf(result)).toMatchObject({
      code,
      message: error,
      status: answer.status,
      requestId: 'req-1',
    })
  })

  it('unavailable exits with 8, after retries', async () => {
    service.seen.length = 0
    service.answers['GET /orgs/'] = problem(503, 'unavailable', 'Service temporarily unavailable')
    expect((await svc('orgs', '--json')).code).toBe(8)
    expect(service.calls('GET /orgs/')).toHaveLength(3)
  })

  it('that is temporary goes unnoticed', async () => {
    let tries = 0
    service.answers['GET /orgs/'] = () => {
      tries += 1
      return tries < 3 ? problem(503, 'unavailable', 'Not yet') : { body: { data: [] } }
    }
    expect((await svc('orgs', '--json')).code).toBe(0)
  })

  it('for a rate limit is waited for, whatever the request does, and the wait is said', async () => {
    service.answers['POST /orgs/sites'] = afterRateLimit(() => ({ status: 201, body: { ok: true } }), 3)
    const { code, stdout, stderr } = await svc('api', 'POST', '/orgs/sites', '-d', '{}')
    expect([code, JSON.parse(stdout)]).toEqual([0, { ok: true }])
    expect(stderr).toBe('Rate limited: continuing in 0 s\n'.repeat(3))
  })

  it('for a rate limit is waited for as long as --timeout says', async () => {
    service.seen.length = 0
    service.answers['GET /orgs/'] = problem(429, 'rate_limited', 'Slow down', { retryAfter: 3 })
    expect((await svc('orgs', '--timeout', '2s')).code).toBe(7)
    expect(service.calls('GET /orgs/')).toHaveLength(1)
    service.answers['GET /orgs/'] = afterRateLimit(() => ({ body: { data: [] } }))
    expect((await svc('orgs', '--timeout', '2s')).code).toBe(0)
  })

  it.each([
    [
      'mfa_required without a factor',
      problem(403, 'mfa_required', 'MFA required', { enrollUrl: '/x' }),
      'svc mfa setup, then svc mfa enable',
    ],
    ['mfa_required with a factor', problem(403, 'mfa_required', 'MFA required'), 'svc login --otp CODE'],
    [
      'mfa_enrollment_required',
      problem(428, 'mfa_enrollment_required', 'MFA'),
      'svc mfa setup, then svc mfa enable',
    ],
    ['invalid_token', problem(401, 'invalid_token', 'Invalid or expired token'), 'svc login'],
    ['rate_limited', problem(429, 'rate_limited', 'Slow', { retryAfter: 777 }), 'try again in 777 s'],
  ])('%s has a hint', async (_, answer, hint) => {
    service.answers['GET /orgs/'] = answer
    expect(failureOf(await svc('orgs', '--json')).hint).toContain(hint)
  })

  it('names the flag instead of the field in text output', async () => {
    const details = [
      { path: 'body.maxUsage', message: 'must be at least 1' },
      { path: 'body.orgId', message: 'must be a UUID' },
    ]
    service.answers['POST /enrollment-keys'] = problem(400, 'invalid_request', 'body.maxUsage: …', {
      details,
      moreDetails: 7,
    })
    const { code, stderr } = await svc('enroll', 'create', '--name', 'x', '--max-usage', '0')
    expect(code).toBe(2)
    expect(stderr).toContain(
      'Error: --max-usage: must be at least 1\n  --org: must be a UUID\n  and 7 more\n',
    )
    expect(stderr).toContain('Request: req-1')
  })

  it('is reported as unreachable when the response is not from this service', async () => {
    service.answers['GET /orgs/'] = { headers: { 'content-type': 'text/html' }, body: '<html>Login</html>' }
    const result = await svc('orgs', '--json')
    expect(result.code).toBe(8)
    expect(failureOf(result).message).toContain('not from this service')
  })
})

it('a redirect of the service is reported instead of followed', async () => {
  service.answers['GET /orgs/'] = { status: 301, headers: { location: 'https://svc.test/' }, body: '' }
  home.signIn(service.url)
  const result = await svc('orgs', '--json')
  expect(result.code).toBe(8)
  expect(failureOf(result).message).toContain('it redirects to https://svc.test/; use that address')
})

describe('a missing response', () => {
  it('from a refused connection exits with 8, and the error names the address', async () => {
    home.signIn('http://127.0.0.1:1')
    const result = await svc('orgs', '--json')
    expect(result).toMatchObject({ code: 8, stdout: '' })
    expect(failureOf(result).message).toBe('Cannot reach http://127.0.0.1:1: connection refused')
  })

  it('through a proxy gives an error that names the proxy without its password', async () => {
    home.signIn('http://svc.test')
    const result = await home.run(['orgs', '--json'], { env: { HTTP_PROXY: 'http://user:pass@127.0.0.1:1' } })
    expect(result.code).toBe(8)
    expect(failureOf(result).message).toContain('through the proxy http://127.0.0.1:1')
    expect(result.stderr).not.toContain('pass')
  })

  it('exits with 124 after the timeout', async () => {
    const mute = createServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => mute.once('listening', resolve))
    home.signIn(`http://127.0.0.1:${(mute.address() as { port: number }).port}`)
    const result = await svc('orgs', '--json', '--timeout', '300ms')
    expect(result.code).toBe(124)
    expect(failureOf(result).hint).toContain('--timeout')
    mute.close()
  })

  it('is interrupted by Ctrl-C with exit code 130', async () => {
    const never = new FakeService({ 'GET /orgs/': () => new Promise<Answer>(() => {}) })
    await never.start()
    home.signIn(never.url)
    const waiting = home.run(['orgs', '--all'], {
      env: { SVC_DEBUG: '1', NODE_DEBUG: 'http' },
      signalAfter: { text: 'HTTP', signal: 'SIGINT' },
    })
    expect((await waiting).code).toBe(130)
    await never.stop()
  })
})

describe('a wrong command line exits with 2 and a suggestion', () => {
  it.each<[string, string[], string]>([
    ['unknown command', ['orgz'], 'did you mean svc orgs?'],
    ['unknown subcommand', ['enroll', 'crate'], 'did you mean svc enroll create?'],
    [
      'subcommand unlike any',
      ['orgs', 'zzzzzz'],
      'svc orgs has: create, delete, import, list, order, show, update',
    ],
    ['unknown flag', ['orgs', '--jsn'], 'did you mean --json?'],
    [
      'unknown choice',
      ['orgs', 'create', '--name', 'a', '--slug', 'a', '--type', 'custmer'],
      'did you mean customer?',
    ],
    ['missing argument', ['orgs', 'show'], 'svc orgs show --help'],
    ['flag without value', ['orgs', '--columns'], 'svc orgs --help'],
    ['value of a flag', ['serve', '--port', 'abc'], 'svc serve --help'],
    ['missing flag', ['orgs', 'create', '--slug', 'a'], ''],
    ['not a number', ['orgs', '--limit', 'many'], ''],
    ['unknown context', ['orgs', '--context', 'tset'], 'did you mean test?'],
    ['not a URL', ['orgs', '--url', 'example.com'], 'such as https://svc.example.com'],
    ['not a duration', ['orgs', '--timeout', 'long'], 'seconds, or 500ms, 30s, 2m'],
  ])('%s', async (_, args, hint) => {
    home.signIn(service.url)
    const result = await svc(...args, '--json')
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(failureOf(result)).toMatchObject({ code: 'usage', status: null })
    expect(failureOf(result).hint ?? '').toContain(hint)
    expect(result.stderr).not.toMatch(/^\s+at /m)
  })
})

it.each([
  ['abc', '--port must be an integer, not abc'],
  ['70000', '--port must be an integer less than or equal to 65535, not 70000'],
])('a number that is none is said with its flag: %s', async (port, message) => {
  expect(failureOf(await svc('serve', '--port', port, '--json')).message).toBe(message)
})

it('an expected failure prints no stack trace and no configuration', async () => {
  home.signIn(service.url)
  service.answers['GET /orgs/'] = problem(403, 'forbidden', 'Permission denied')
  const { stderr } = await home.run(['orgs'], { env: { SVC_DEBUG: '1' } })
  expect(stderr).toContain('GET http://127.0.0.1')
  expect(stderr).not.toMatch(/^\s+at /m)
  expect(stderr).not.toContain('access-1')
})

it('a closed output pipe ends the command without an error', async () => {
  const rows = Array.from({ length: 3000 }, (_, i) => organization(i, `org-${i}`, `Organization ${i}`))
  service.answers['GET /orgs/'] = { body: { data: rows } }
  const { start, binary } = await import('./run.ts')
  const line = `"${process.execPath}" "${binary}" orgs -o ndjson | head -n 1`
  const result = await start('bash', ['-o', 'pipefail', '-c', line], home.env, home.path)
  expect(result).toMatchObject({ code: 0, stderr: '' })
  expect(JSON.parse(result.stdout)).toMatchObject({ id: uuid(0) })
})

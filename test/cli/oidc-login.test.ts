import { createServer, type IncomingMessage, type Server } from 'node:http'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { enrollmentKey, FakeService, page, problem, uuid } from './fake-service.ts'
import { listening } from './network.ts'
import { failureOf, Home } from './run.ts'

let home: Home
let service: FakeService

const given = {
  accessToken: 'workload-1',
  expiresInSeconds: 600,
  permissions: ['organizations:write'],
  orgId: uuid(10),
  policy: { id: uuid(80), name: 'Releases' },
}

beforeEach(async () => {
  home = new Home({ SVC_CREDENTIAL_STORE: 'file', CI: 'true' })
  service = await new FakeService({
    'POST /auth/federated': { body: given },
    'POST /enrollment-keys': {
      status: 201,
      body: { ...enrollmentKey(1, uuid(10), 'till'), key: 'f'.repeat(64) },
    },
    'GET /enrollment-keys': page([]),
  }).start()
  home.env.SVC_URL = service.url
})

afterEach(async () => {
  await service.stop()
  home.remove()
})

const login = (system: string, ...more: string[]) => home.run(['login', '--oidc', system, ...more])
const sent = () => service.calls('POST /auth/federated').map(({ body }) => body)

/** Expects that the next command uses the stored session. */
async function expectKeyCreated(): Promise<void> {
  const { code, stdout } = await home.run(['enroll', 'create', '--name', 'till'])
  expect([code, stdout]).toEqual([0, `${'f'.repeat(64)}\n`])
  const [call] = service.calls('POST /enrollment-keys')
  expect(call?.headers.authorization).toBe('Bearer workload-1')
  expect(call?.body).toMatchObject({ orgId: uuid(10), name: 'till' })
}

/** A fake token endpoint of GitHub Actions. */
async function actions(answer: () => { status?: number; body: string }) {
  const asked: IncomingMessage[] = []
  const server: Server = createServer((request, reply) => {
    asked.push(request)
    const { status = 200, body } = answer()
    reply.writeHead(status, { 'content-type': 'application/json' }).end(body)
  })
  const port = await listening(server)
  home.env.ACTIONS_ID_TOKEN_REQUEST_URL = `http://127.0.0.1:${port}/idtoken/1?api-version=2.0`
  home.env.ACTIONS_ID_TOKEN_REQUEST_TOKEN = 'runner'
  return { asked, close: () => server.close() }
}

describe('a GitHub Actions job', () => {
  it('requests a token for this service, signs in with it and creates a key', async () => {
    const github = await actions(() => ({ body: '{"count":1,"value":"a.b.c"}' }))
    const { code, stdout, stderr } = await login('github', '--org', uuid(10))
    expect([code, stdout]).toEqual([0, ''])
    expect(stderr).toContain(`by the trust policy Releases, organization scope of ${uuid(10)}`)
    expect(stderr).toContain('It may do organizations:write for 10 minutes')
    expect(stderr).toContain('mode 0600')
    const [request] = github.asked
    const audience = encodeURIComponent(service.url)
    expect(request?.url).toBe(`/idtoken/1?api-version=2.0&audience=${audience}`)
    expect(request?.headers.authorization).toBe('Bearer runner')
    expect(sent()).toEqual([{ token: 'a.b.c', orgId: uuid(10) }])
    await expectKeyCreated()
    github.close()
  })

  it('can request another audience, and name its policy', async () => {
    const github = await actions(() => ({ body: '{"value":"a.b.c"}' }))
    const { stdout } = await login('github', '--audience', 'svc', '--policy', uuid(80), '--json')
    expect(JSON.parse(stdout)).toMatchObject({
      url: service.url,
      orgId: uuid(10),
      policy: given.policy,
      permissions: given.permissions,
      store: 'file',
      until: expect.stringMatching(/Z$/),
    })
    expect(stdout).not.toContain('workload-1')
    expect(github.asked[0]?.url).toContain('audience=svc')
    expect(sent()).toEqual([{ token: 'a.b.c', policyId: uuid(80) }])
    github.close()
  })

  it('is told which permission is missing', async () => {
    const without = await login('github', '--json')
    expect([without.code, failureOf(without).hint]).toEqual([2, 'the job needs permissions: id-token: write'])
    const github = await actions(() => ({ status: 403, body: '{}' }))
    const refused = await login('github', '--json')
    expect([refused.code, failureOf(refused).message]).toEqual([
      1,
      'GitHub returned no token: it answered 403',
    ])
    expect(sent()).toEqual([])
    github.close()
  })
})

describe('a job of another system', () => {
  it('signs in with the token in a variable', async () => {
    home.env.SVC_OIDC_TOKEN = 'a.b.c'
    home.env.OTHER = 'd.e.f\n'
    expect((await login('gitlab')).code).toBe(0)
    await expectKeyCreated()
    expect((await login('env', '--oidc-env', 'OTHER')).code).toBe(0)
    expect(sent()).toEqual([{ token: 'a.b.c' }, { token: 'd.e.f' }])
    const missing = await login('gitlab', '--oidc-env', 'NONE', '--json')
    expect([missing.code, failureOf(missing)]).toEqual([
      2,
      expect.objectContaining({ message: 'NONE is not set', hint: expect.stringContaining('id_tokens:') }),
    ])
  })

  it('signs in with the token in a file, or on standard input', async () => {
    expect((await login('file', '--oidc-file', home.write('token', 'a.b.c\n'))).code).toBe(0)
    await expectKeyCreated()
    const args = ['login', '--oidc', 'file', '--oidc-file', '-']
    expect((await home.run(args, { input: 'd.e.f\n' })).code).toBe(0)
    expect(sent()).toEqual([{ token: 'a.b.c' }, { token: 'd.e.f' }])
  })

  it.each([
    [['file'], 'Missing --oidc-file'],
    [['gitlab', '--audience', 'svc'], '--audience is for --oidc github'],
    [['github', '--oidc-file', 'x'], '--oidc-file is for --oidc file'],
    [['gitlab', '--org', 'blue-bakery'], '--org takes an id here, not "blue-bakery"'],
    [['env', '--policy', 'Releases'], '--policy takes an id here, not "Releases"'],
  ])('is told what is wrong with %j', async (args, message) => {
    home.env.SVC_OIDC_TOKEN = 'a.b.c'
    const result = await home.run(['login', '--oidc', ...args, '--json'])
    expect([result.code, failureOf(result).message]).toEqual([2, message])
    expect(service.seen).toEqual([])
  })

  it('uses the organization of SVC_ORG', async () => {
    home.env.SVC_OIDC_TOKEN = 'a.b.c'
    home.env.SVC_ORG = uuid(10)
    await login('gitlab')
    expect(sent()).toEqual([{ token: 'a.b.c', orgId: uuid(10) }])
  })

  it.each([
    ['replayed', 'each token signs in once'],
    ['ambiguous', '--org ID'],
    ['no_policy', 'svc trust test POLICY --id-token -'],
    [undefined, 'svc trust lists trusted issuers'],
  ])('that is refused (%s) gets a hint', async (reason, hint) => {
    home.env.SVC_OIDC_TOKEN = 'a.b.c'
    const details = reason === undefined ? {} : { details: { reason } }
    const refusal = problem(401, 'federated_token_refused', 'The token was not accepted', details)
    service.answers['POST /auth/federated'] = refusal
    const result = await login('gitlab', '--json')
    expect([result.code, failureOf(result).code]).toEqual([4, 'federated_token_refused'])
    expect(failureOf(result).hint).toContain(hint)
  })

  it('does not use up its token if the session could not be stored', async () => {
    home.env.SVC_OIDC_TOKEN = 'a.b.c'
    const env = { SVC_CREDENTIAL_STORE: undefined }
    const result = await home.run(['login', '--oidc', 'gitlab', '--json'], { env })
    expect([result.code, failureOf(result).code]).toEqual([1, 'session_not_kept'])
    expect(sent()).toEqual([])
  })
})

describe('the session of a job', () => {
  const expire = () => {
    const [name] = Object.keys(home.json<{ contexts: object }>('config/config.json').contexts)
    const path = `config/sessions/${name}.json`
    home.write(path, JSON.stringify({ ...home.json(path), expiresAt: Date.now() - 1 }))
  }

  it('is not renewed when it expires; the error says how to sign in again', async () => {
    await login('file', '--oidc-file', home.write('token', 'a.b.c'), '--org', uuid(10))
    const again = `svc login --oidc file --oidc-file ${home.path}/token --org ${uuid(10)}`
    service.answers['GET /enrollment-keys'] = problem(401, 'invalid_token', 'Invalid or expired token')
    const refused = await home.run(['enroll', '--json'])
    expect([refused.code, failureOf(refused)]).toEqual([
      4,
      expect.objectContaining({ code: 'invalid_token', hint: again }),
    ])
    expire()
    service.seen.length = 0
    const over = await home.run(['enroll', '--json'])
    expect([over.code, failureOf(over).hint]).toEqual([4, again])
    expect(service.seen).toEqual([])
  })

  it('is shown by auth status, and removed by logout', async () => {
    home.env.SVC_OIDC_TOKEN = 'a.b.c'
    await login('gitlab')
    const shown = JSON.parse((await home.run(['auth', 'status', '--json'])).stdout)
    expect(shown).toMatchObject({
      url: service.url,
      policy: given.policy,
      orgId: uuid(10),
      renewedAutomatically: false,
      credential: expect.stringContaining('mode 0600'),
    })
    const out = await home.run(['logout', '--json'])
    expect(JSON.parse(out.stdout)).toMatchObject({ signedOut: true, revoked: false, removed: true })
    expect(service.calls('POST /auth/logout')).toEqual([])
    expect((await home.run(['auth', 'status'])).code).toBe(4)
  })
})

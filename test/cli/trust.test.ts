import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { FakeService, organization, page, problem, uuid } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()
const bakery = organization(10, 'blue-bakery', 'Blue Bakery')
const releases = {
  id: uuid(80),
  orgId: uuid(10),
  name: 'Releases',
  issuer: 'https://gitlab.com',
  audience: 'svc',
  claims: { project_id: '20' },
  permissions: ['organizations:write'],
  maxUsage: 1,
  maxTtlMinutes: 60,
  status: 'active',
  lastUsedAt: null,
}
const checks = [
  { check: 'issuer', ok: true, message: 'It is of https://gitlab.com' },
  { check: 'claims.ref', ok: false, message: 'ref is missing, and has to be "main"' },
]

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /orgs/'] = { body: { data: [bakery] } }
  service.answers['GET /trust/policies'] = page([releases])
  service.answers['POST /trust/policies'] = { status: 201, body: { data: releases } }
  service.answers[`PATCH /trust/policies/${uuid(80)}`] = { body: { data: releases } }
  service.answers[`POST /trust/policies/${uuid(80)}/test`] = {
    body: { accepted: false, checks, claims: { iss: 'https://gitlab.com' } },
  }
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)
const create = [
  'trust',
  'create',
  '--org',
  'blue-bakery',
  '--name',
  'Releases',
  '--issuer',
  'https://gitlab.com',
]

describe('svc trust', () => {
  it('creates a policy from flags, with one flag per claim', async () => {
    const claims = ['--claim', 'project_id=20', '--claim', 'sub=project_path:a/b:ref_type:branch:ref:a=b']
    const { code, stdout } = await svc(...create, ...claims, '--permission', 'sites:read,sites:write', '-q')
    expect([code, stdout]).toEqual([0, `${uuid(80)}\n`])
    expect(service.calls('POST /trust/policies')[0]?.body).toEqual({
      orgId: uuid(10),
      name: 'Releases',
      issuer: 'https://gitlab.com',
      claims: { project_id: '20', sub: 'project_path:a/b:ref_type:branch:ref:a=b' },
      permissions: ['sites:read', 'sites:write'],
    })
  })

  it.each([
    [['--claim', 'project_id'], '--claim takes name=value, not "project_id"'],
    [['--claim', '=20'], '--claim takes name=value, not "=20"'],
    [['--claim', 'a=1', '--claim', 'a=2'], '--claim a is given twice'],
    [[], 'Missing --claim'],
  ])('refuses %j', async (claims, message) => {
    const result = await svc(...create, ...claims, '--permission', 'sites:read', '--json')
    expect([result.code, failureOf(result).message]).toEqual([2, message])
  })

  it('names the flag that was wrong', async () => {
    const details = [{ path: 'body.claims', message: 'must hold project_id or namespace_id: names …' }]
    service.answers['POST /trust/policies'] = problem(400, 'invalid_request', 'wrong', { details })
    const { code, stderr } = await svc(...create, '--claim', 'a=b', '--permission', 'sites:read')
    expect([code, stderr]).toEqual([2, expect.stringContaining('--claim: must hold project_id')])
  })

  it('prints warnings of the service, and deactivates a policy', async () => {
    const warning = 'Every branch and every pull request of the repository is trusted'
    service.answers['POST /trust/policies'] = { status: 201, body: { data: releases, warning } }
    const made = await svc(...create, '--claim', 'project_id=20', '--permission', 'sites:read')
    expect(made.stderr).toContain(`Warning: ${warning}`)
    expect(made.stderr).toContain('sites:read opens no command of its own: svc config plan and apply use it')
    const inquiring = await svc(...create, '--claim', 'project_id=20', '--permission', 'audit:export')
    expect(inquiring.stderr).toContain(
      'audit:export opens no command: nothing that needs it is open to CI jobs',
    )
    const enrolling = await svc(...create, '--claim', 'project_id=20', '--permission', 'organizations:write')
    expect(enrolling.stderr).toMatch(/^organizations:write opens svc .*enroll create/m)
    expect(enrolling.stderr).not.toContain('opens no command')
    expect((await svc('trust', 'update', 'Releases', '--status', 'inactive')).code).toBe(0)
    expect(service.calls(`PATCH /trust/policies/${uuid(80)}`)[0]?.body).toEqual({ status: 'inactive' })
  })

  it('shows claims as the issuer writes their names', async () => {
    service.answers[`GET /trust/policies/${uuid(80)}`] = {
      body: { data: { ...releases, claims: { project_id: '20', 'https://a.example/teamId': 'x' } } },
    }
    const { stdout } = await svc('trust', 'show', 'Releases')
    expect(stdout).toMatch(/^ {2}project_id: +20$/m)
    expect(stdout).toMatch(/^ {2}https:\/\/a\.example\/teamId: x$/m)
  })

  it('tests a token from a file or standard input, never from the command line', async () => {
    const args = ['trust', 'test', 'Releases', '--id-token']
    const { code, stdout } = await home.run([...args, '-'], { input: 'a.b.c\n' })
    expect([code, stdout]).toEqual([
      1,
      'ok      issuer      It is of https://gitlab.com\nfailed  claims.ref  ref is missing, and has to be "main"\nNo job signs in with it\n',
    ])
    await svc(...args, `@${home.write('token.txt', 'a.b.c')}`, '--json')
    const sent = service.calls(`POST /trust/policies/${uuid(80)}/test`).map(({ body }) => body)
    expect(sent).toEqual(Array(2).fill({ token: 'a.b.c' }))
    const shown = await svc(...args, 'a.b.c')
    expect([shown.code, shown.stderr]).toEqual([
      2,
      expect.stringContaining('takes no value on the command line'),
    ])
    expect((await svc('trust', 'test', 'Releases')).code).toBe(2)
  })
})

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { enrollmentKey, FakeService, organization, page, problem, uuid } from './fake-service.ts'
import { failureOf, Home, noTerminal } from './run.ts'

const home = new Home()
const service = new FakeService()
const bakery = organization(10, 'blue-bakery', 'Blue Bakery')
const desk = enrollmentKey(30, uuid(10), 'Front desk')
const key = 'f'.repeat(64)
const newOrg = ['orgs', 'create', '--name', 'Blue Bakery', '--slug', 'blue-bakery']

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /orgs/'] = { body: { data: [bakery] } }
  service.answers['POST /orgs/organizations'] = { status: 201, body: bakery }
  service.answers['GET /enrollment-keys'] = page([desk])
  service.answers['POST /enrollment-keys'] = { status: 201, body: { ...desk, key } }
  service.answers[`DELETE /enrollment-keys/${uuid(30)}`] = {
    body: { success: true, message: 'Enrollment key deleted' },
  }
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)

describe('deleting several records', () => {
  const others = [31, 32, 33].map((n) => enrollmentKey(n, uuid(10), `Key ${n}`))
  const gone = () =>
    service.seen.filter(({ method }) => method === 'DELETE').map(({ path }) => path.split('?')[0]!.slice(-2))
  beforeEach(() => {
    service.answers['GET /enrollment-keys'] = page([desk, ...others])
    for (const n of [31, 33]) {
      service.answers[`DELETE /enrollment-keys/${uuid(n)}`] = {
        body: { success: true, message: `Deleted ${n}` },
      }
    }
    service.answers[`DELETE /enrollment-keys/${uuid(32)}`] = problem(409, 'conflict', 'It is in use')
  })

  it('takes names, and those on standard input, each once', async () => {
    const input = 'Key 33\n\nKey 31\n'
    const { code, stdout } = await home.run(['enroll', 'delete', 'Key 31', '-', '--yes'], { input })
    expect([code, stdout]).toEqual([0, 'Key 31: Deleted 31\nKey 33: Deleted 33\n'])
    expect(gone()).toEqual(['31', '33'])
    const none = await home.run(['enroll', 'delete', '-', '--yes'], { input: '\n' })
    expect([none.code, none.stderr]).toEqual([2, expect.stringContaining('names nothing to delete')])
  })

  it('goes on after one that cannot be deleted, and exits with its code, or 1 where they differ', async () => {
    const some = await svc('enroll', 'delete', 'Key 31', 'Key 32', 'Key 33', '--yes')
    expect([some.code, some.stdout]).toEqual([6, 'Key 31: Deleted 31\nKey 33: Deleted 33\n'])
    expect(some.stderr).toContain('Key 32: It is in use')
    expect(some.stderr).toContain('1 of 3 failed: Key 32')
    const mixed = await svc('enroll', 'delete', 'Key 31', 'Key 32', 'Nobody', '--yes', '--json')
    expect([
      mixed.code,
      mixed.stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).message),
    ]).toEqual([1, ['Deleted 31']])
    expect(JSON.parse(mixed.stderr).error).toMatchObject({ message: '2 of 3 failed: Key 32, Nobody' })
  })

  it('stops where the next one would fail as well', async () => {
    service.answers[`DELETE /enrollment-keys/${uuid(32)}`] = problem(401, 'unauthenticated', 'Sign in')
    service.answers['POST /auth/refresh'] = problem(401, 'unauthenticated', 'Sign in')
    const { code, stderr } = await svc('enroll', 'delete', 'Key 31', 'Key 32', 'Key 33', '--yes')
    // The session is over, and was removed.
    home.signIn(service.url)
    expect([code, gone().filter((n) => n === '33')]).toEqual([4, []])
    expect(stderr).toContain('Done before: 1 of 3')
  })

  it.skipIf(noTerminal)('adds up what they end before it asks', async () => {
    service.answers['GET /orgs/'] = {
      body: { data: [organization(10, 'a', 'A'), organization(11, 'b', 'B')] },
    }
    for (const n of [10, 11])
      service.answers[`GET /orgs/organizations/${uuid(n)}/deletion`] = {
        body: { devices: n, apiKeys: 1, enrollmentKeys: 0 },
      }
    const { stdout, code } = await home.terminal(['orgs', 'delete', 'a', 'b', 'nobody'], {
      answers: [['Delete all of them?', 'n\r']],
    })
    expect([code, gone()]).toEqual([1, []])
    expect(stdout).toContain('This ends 21 devices, 2 API keys; the audit log is kept\r\n')
  })

  it.skipIf(noTerminal)('says on a terminal how names that are typed there end', async () => {
    const { code, stdout } = await home.terminal(['enroll', 'delete', '-', '--yes'], {
      answers: [['Reading the names from standard input; end with Ctrl-D', 'Key 31\nKey 33\n\u0004']],
    })
    expect([code, gone()]).toEqual([0, ['31', '33']])
    expect(stdout).toContain('2: Key 31, Key 33')
  })

  it('asks once, and not without a person', async () => {
    const refused = await svc('enroll', 'delete', 'Key 31', 'Key 33')
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('Missing --yes')])
    expect(gone()).toEqual([])
    const asked = await home.terminal(['enroll', 'delete', 'Key 31', 'Key 33'], {
      answers: [['Delete all of them?', 'y\r']],
    })
    expect(asked.stdout).toContain('2: Key 31, Key 33')
    expect([asked.code, gone()]).toEqual([0, ['31', '33']])
    const planned = await svc('enroll', 'delete', 'Key 31', 'Key 33', '--dry-run')
    expect(planned.stdout.match(/^DELETE /gm)).toHaveLength(2)
  })
})

describe('creating a record', () => {
  it('sends the values with the types of the contract, and an Idempotency-Key', async () => {
    const { code } = await svc(
      ...newOrg,
      '--max-devices',
      '25',
      '--settings',
      '{"a": [1]}',
      '--contract-end',
      'null',
    )
    expect(code).toBe(0)
    const [sent] = service.calls('POST /orgs/organizations')
    expect(sent?.body).toEqual({
      name: 'Blue Bakery',
      slug: 'blue-bakery',
      maxDevices: 25,
      settings: { a: [1] },
      contractEnd: null,
    })
    expect(sent?.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/)
    expect(sent?.headers).toMatchObject({ authorization: 'Bearer access-1', 'x-service-client': 'cli' })
  })

  it('reads JSON from a file or standard input', async () => {
    const file = home.write('settings.json', '{"from": "file"}')
    await svc(...newOrg, '--settings', `@${file}`)
    await home.run([...newOrg, '--settings', '-'], { input: '{"from": "stdin"}' })
    const sent = service
      .calls('POST /orgs/organizations')
      .map(({ body }) => (body as { settings: unknown }).settings)
    expect(sent).toEqual([{ from: 'file' }, { from: 'stdin' }])
  })

  it('is retried after an outage with the same key, so that nothing is created twice', async () => {
    let tries = 0
    service.answers['POST /orgs/organizations'] = () => {
      tries += 1
      return tries < 2 ? problem(503, 'unavailable', 'Not yet') : { status: 201, body: bakery }
    }
    expect((await svc(...newOrg)).code).toBe(0)
    const keys = service.calls('POST /orgs/organizations').map(({ headers }) => headers['idempotency-key'])
    expect(keys).toHaveLength(2)
    expect(new Set(keys).size).toBe(1)
  })

  it('--if-not-exists prints the existing record with the slug and creates nothing', async () => {
    const { stdout, stderr, code } = await svc(...newOrg, '--if-not-exists', '-q')
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${uuid(10)}\n` })
    expect(stderr).toContain('nothing was created')
    expect(service.calls('POST /orgs/organizations')).toHaveLength(0)
  })

  it('--if-not-exists looks within the same parent only', async () => {
    const elsewhere = ['--partner', uuid(901), '--if-not-exists']
    expect((await svc(...newOrg, ...elsewhere)).code).toBe(0)
    expect(service.calls('POST /orgs/organizations')).toHaveLength(1)
  })

  it('--if-not-exists also works if someone else creates the record in between', async () => {
    let lists = 0
    service.answers['GET /orgs/'] = () => {
      lists += 1
      return { body: { data: lists === 1 ? [] : [bakery] } }
    }
    service.answers['POST /orgs/organizations'] = problem(409, 'slug_taken', 'Taken')
    expect(await svc(...newOrg, '--if-not-exists', '-q')).toMatchObject({ code: 0, stdout: `${uuid(10)}\n` })
  })
})

describe('--dry-run', () => {
  it('prints the request and sends nothing', async () => {
    const { stdout, stderr, code } = await svc(...newOrg, '--dry-run')
    expect(code).toBe(0)
    expect(stdout).toBe(
      `POST ${service.url}/api/v1/orgs/organizations\n{\n  "name": "Blue Bakery",\n  "slug": "blue-bakery"\n}\n`,
    )
    expect(stderr).toContain('nothing was sent')
    expect(service.seen).toHaveLength(0)
  })

  it('with --json prints an object', async () => {
    const { stdout } = await svc('enroll', 'delete', uuid(30), '--dry-run', '--json')
    const url = `${service.url}/api/v1/enrollment-keys/${uuid(30)}`
    expect(JSON.parse(stdout)).toEqual({ dryRun: true, request: { method: 'DELETE', url } })
    expect(service.seen).toHaveLength(0)
  })

  it('only reads when a name has to be looked up', async () => {
    const { stdout } = await svc('enroll', 'delete', 'Front desk', '--dry-run')
    expect(stdout).toContain(`DELETE ${service.url}/api/v1/enrollment-keys/${uuid(30)}`)
    expect(service.seen.every(({ method }) => method === 'GET')).toBe(true)
  })

  it('of a raw call sends nothing either', async () => {
    const { stdout } = await svc('api', 'POST', '/orgs/organizations', '-d', '{"a":1}', '--dry-run')
    expect(stdout).toContain('"a": 1')
    expect(service.seen).toHaveLength(0)
  })
})

describe('deleting a record', () => {
  it('without --yes and without a terminal is refused, and nothing is sent', async () => {
    const result = await svc('enroll', 'delete', uuid(30), '--json')
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(failureOf(result).message).toBe('Missing --yes')
    expect(service.seen).toHaveLength(0)
  })

  it('names the context and the URL first', async () => {
    const { stderr, stdout, code } = await svc('enroll', 'delete', 'Front desk', '--yes')
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'Enrollment key deleted\n' })
    expect(stderr).toBe(`Context test, ${service.url}\n`)
  })

  it.skipIf(noTerminal)('says what ends with it before it asks, and in a dry run', async () => {
    service.answers['GET /orgs/partners'] = page([{ id: uuid(900), slug: 'acme', name: 'Acme' }])
    const effect = { organizations: 12, devices: 3400, apiKeys: 2, enrollmentKeys: 1 }
    service.answers[`GET /orgs/partners/${uuid(900)}/deletion`] = { body: effect }
    const said =
      'This ends 12 organizations, 3 400 devices, 2 API keys, 1 enrollment key; the audit log is kept'
    const asked = await home.terminal(['partners', 'delete', 'acme'], {
      answers: [['Type acme', '\u0003']],
      columns: 120,
    })
    expect(asked.stdout).toContain(`${said}\r\n`)
    expect(asked.code).toBe(130)
    const dry = await svc('partners', 'delete', 'acme', '--dry-run')
    expect(dry).toMatchObject({
      code: 0,
      stdout: `DELETE ${service.url}/api/v1/orgs/partners/${uuid(900)}\n`,
      stderr: `Dry run: nothing was sent\n${said}\n`,
    })
    const json = JSON.parse((await svc('partners', 'delete', 'acme', '--dry-run', '--json')).stdout)
    expect(json).toMatchObject({ dryRun: true, effect })
    const all = { members: 1, sites: 2, webhooks: 1, ssoProviders: 1, trustPolicies: 3 }
    service.answers[`GET /orgs/partners/${uuid(900)}/deletion`] = { body: all }
    expect((await svc('partners', 'delete', 'acme', '--dry-run')).stderr).toContain(
      'This ends 1 membership, 2 sites, 1 webhook, 1 SSO provider, 3 trust policies; the audit log is kept\n',
    )
    const other = await svc('enroll', 'delete', uuid(30), '--dry-run')
    expect(other.stderr).toBe('Dry run: nothing was sent\nDelete an enrollment key for good\n')
    expect(service.seen.every(({ method }) => method === 'GET')).toBe(true)
  })

  it.each([
    ['webhooks', `/webhooks/${uuid(40)}`, { deliveryStats: { total: 3400 } }, '3 400 deliveries'],
    ['groups', `/device-groups/${uuid(40)}`, { deviceCount: 1 }, '1 membership of a device'],
    ['sso', `/sso/providers/${uuid(40)}/identities`, page([], { total: 12 }).body, '12 linked identities'],
  ])('says what ends with one of %s, where the service knows it', async (topic, path, body, ends) => {
    const command = [topic, 'delete', uuid(40)]
    service.answers[`GET ${path}`] = { body }
    const said = `This ends ${ends}; the audit log is kept`
    expect((await svc(...command, '--dry-run')).stderr).toBe(`Dry run: nothing was sent\n${said}\n`)
    if (!noTerminal) {
      const asked = await home.terminal(command, { answers: [[`Type ${uuid(40)}`, '\u0003']] })
      expect([asked.code, asked.stdout]).toEqual([130, expect.stringContaining(`${said}\r\n`)])
    }
    // Whoever may delete it need not be allowed to read it.
    service.answers[`GET ${path}`] = problem(403, 'forbidden', 'Permission denied')
    const blind = await svc(...command, '--dry-run')
    expect([blind.code, blind.stderr]).toEqual([
      0,
      expect.stringMatching(/^Dry run: nothing was sent\nDelete /),
    ])
    expect(service.seen.every(({ method }) => method === 'GET')).toBe(true)
  })

  it('that is gone exits with 3, or with 0 for --ignore-not-found', async () => {
    service.answers[`DELETE /enrollment-keys/${uuid(30)}`] = problem(404, 'not_found', 'Not found')
    for (const name of [uuid(30), 'No such key']) {
      expect((await svc('enroll', 'delete', name, '--yes')).code).toBe(3)
      expect((await svc('enroll', 'delete', name, '--yes', '--ignore-not-found')).code).toBe(0)
    }
  })

  it.skipIf(noTerminal)('demands the typed name at a terminal', async () => {
    const wrong = await home.terminal(['enroll', 'delete', 'Front desk'], {
      answers: [['Type Front desk', 'Front\r']],
    })
    expect(wrong.code).toBe(1)
    expect(wrong.stdout).toContain('Nothing was deleted')
    expect(service.calls(`DELETE /enrollment-keys/${uuid(30)}`)).toHaveLength(0)
    const right = await home.terminal(['enroll', 'delete', 'Front desk'], {
      answers: [['Type Front desk', 'Front desk\r']],
    })
    expect(right.code).toBe(0)
    expect(service.calls(`DELETE /enrollment-keys/${uuid(30)}`)).toHaveLength(1)
  })
})

describe('a secret key that is shown once', () => {
  const create = ['enroll', 'create', '--org', uuid(10), '--name', 'Front desk']

  it('is the only text on standard output; everything else is on standard error', async () => {
    const { stdout, stderr } = await svc(...create)
    expect(stdout).toBe(`${key}\n`)
    expect(stderr).toContain('Front desk')
    expect(stderr).toContain('not displayed again')
    expect(stderr).not.toContain(key)
  })

  it('is a part of the object with --json', async () => {
    expect(JSON.parse((await svc(...create, '--json')).stdout)).toEqual({ ...desk, key })
  })

  it('goes to a new private file with --out-file, and nowhere else', async () => {
    const result = await svc(...create, '--out-file', 'desk.key', '--json')
    expect(home.read('desk.key')).toBe(`${key}\n`)
    expect(home.mode('desk.key')).toBe('600')
    expect(JSON.parse(result.stdout)).toEqual(desk)
    expect(result.stdout + result.stderr).not.toContain(key)
  })

  it('never overwrites a file, and is not created if it would have to', async () => {
    home.write('taken.key', 'precious')
    const { code } = await svc(...create, '--out-file', 'taken.key')
    expect(code).toBe(2)
    expect(home.read('taken.key')).toBe('precious')
    expect(service.calls('POST /enrollment-keys')).toHaveLength(0)
  })

  it('leaves no file behind when the service refuses', async () => {
    service.answers['POST /enrollment-keys'] = problem(403, 'forbidden', 'No')
    expect((await svc(...create, '--out-file', 'never.key')).code).toBe(5)
    expect(existsSync(join(home.path, 'never.key'))).toBe(false)
  })

  it.each([[['-q']], [['--columns', 'id']]])('is not created when %j would lose it', async (flags) => {
    expect((await svc(...create, ...flags)).code).toBe(2)
    expect(service.calls('POST /enrollment-keys')).toHaveLength(0)
  })
})

it('with --json a failure is the only output on standard error', async () => {
  service.answers[`DELETE /enrollment-keys/${uuid(30)}`] = problem(403, 'forbidden', 'No')
  const result = await svc('enroll', 'delete', uuid(30), '--yes', '--json')
  expect(result.stderr.trimEnd().split('\n')).toHaveLength(1)
  expect(failureOf(result).code).toBe('forbidden')
})

it('--if-not-exists prints nothing for an existing enrollment key', async () => {
  const { code, stdout, stderr } = await svc('enroll', 'create', '--name', 'Front desk', '--if-not-exists')
  expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
  expect(stderr).toContain('nothing was created')
})

it('all missing flags are named at once', async () => {
  home.signIn(service.url)
  const { code, stderr } = await svc('sites', 'create')
  expect([code, stderr]).toEqual([
    2,
    expect.stringContaining('Error: Missing --org, --name\nHint: for --org also'),
  ])
  expect((await svc('orgs', 'create')).stderr).toContain('Error: Missing --name, --slug\n')
  expect(service.seen).toHaveLength(0)
})

it('an invalid output option is refused before anything is changed', async () => {
  const { code } = await svc(...newOrg, '--columns', 'bogus')
  expect(code).toBe(2)
  expect(service.seen).toHaveLength(0)
})

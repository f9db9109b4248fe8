import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { FakeService, organization, page, problem, uuid } from './fake-service.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()
const bakery = organization(10, 'blue-bakery', 'Blue Bakery')
const okta = {
  id: uuid(70),
  orgId: uuid(10),
  name: 'Okta',
  type: 'oidc',
  status: 'inactive',
  issuer: 'https://blue-bakery.okta.com',
  hasClientSecret: true,
  attributeMapping: { email: 'email', name: 'name' },
}

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /orgs/'] = { body: { data: [bakery] } }
  service.answers['GET /sso/providers'] = page([okta])
  service.answers['POST /sso/providers'] = { status: 201, body: { data: okta } }
  service.answers[`GET /sso/providers/${uuid(70)}`] = { body: { data: okta } }
  service.answers[`PATCH /sso/providers/${uuid(70)}`] = { body: { data: okta } }
  service.answers[`POST /sso/providers/${uuid(70)}/status`] = {
    body: { data: { ...okta, status: 'active' } },
  }
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(args)

describe('svc sso', () => {
  it('warns of members for whom a provider does not vouch', async () => {
    const warning = 'One member holds permissions that whoever configured it did not'
    const reply = { data: okta, warning, membersBeyond: 1 }
    service.answers[`GET /sso/providers/${uuid(70)}`] = { body: reply }
    service.answers[`POST /sso/providers/${uuid(70)}/status`] = { body: reply }
    service.answers[`POST /sso/providers/${uuid(70)}/test`] = {
      body: { success: true, message: 'Provider configuration is valid', warning },
    }
    for (const verb of ['show', 'activate', 'test']) {
      const { stdout, stderr, code } = await svc('sso', verb, 'Okta')
      expect([verb, code, stderr]).toEqual([verb, 0, expect.stringContaining(`Warning: ${warning}`)])
      expect(stdout).not.toContain(warning)
    }
    expect(JSON.parse((await svc('sso', 'show', 'Okta', '--json')).stdout)).toMatchObject({
      membersBeyond: 1,
    })
  })

  it('prints the record as text, and the full response as JSON', async () => {
    const plain = await svc('sso', 'show', 'Okta')
    expect(plain.stdout).toMatch(/^Id: +0197c1c4-0000-7000-8000-000000000070\n/)
    expect((await svc('sso', 'show', 'Okta', '-q')).stdout).toBe(`${uuid(70)}\n`)
    const columns = ['--columns', 'name,status']
    expect((await svc('sso', 'show', 'Okta', ...columns, '--csv')).stdout).toBe(
      'name,status\nOkta,inactive\n',
    )
    expect(JSON.parse((await svc('sso', 'show', 'Okta', ...columns, '--json')).stdout)).toEqual({
      name: 'Okta',
      status: 'inactive',
    })
    expect(JSON.parse((await svc('sso', 'show', 'Okta', '--json')).stdout)).toEqual({ data: okta })
    expect((await svc('sso', 'show', 'Okta', '--jq', '.data.name')).stdout).toBe('Okta\n')
  })

  it('creates a provider from flags, with secret and certificate from files', async () => {
    const secret = home.write('secret.txt', 'hush\n')
    const certificate = home.write('idp.pem', 'PEM\n')
    const args = ['--org', 'blue-bakery', '--name', 'Okta', '--preset', 'okta', '--no-auto-provision']
    const { code, stdout } = await svc(
      'sso',
      'create',
      ...args,
      '--client-secret',
      `@${secret}`,
      '--certificate',
      certificate,
      '-q',
    )
    expect([code, stdout]).toEqual([0, `${uuid(70)}\n`])
    expect(service.calls('POST /sso/providers')[0]?.body).toEqual({
      orgId: uuid(10),
      name: 'Okta',
      preset: 'okta',
      autoProvision: false,
      clientSecret: 'hush',
      certificate: 'PEM\n',
    })
    const shown = await svc('sso', 'create', '--name', 'a', '--client-secret', 'hush')
    expect([shown.code, shown.stderr]).toEqual([
      2,
      expect.stringContaining('takes no value on the command line'),
    ])
  })

  it('creates a provider from a file, which flags override; a dry run shows no secret', async () => {
    const file = {
      name: 'a',
      type: 'oidc',
      orgId: uuid(10),
      clientSecret: 'hush',
      attributeMapping: { email: 'e' },
    }
    const path = home.write('provider.json', JSON.stringify(file))
    expect((await svc('sso', 'create', '--file', path, '--name', 'b')).code).toBe(0)
    expect(service.calls('POST /sso/providers')[0]?.body).toEqual({ ...file, name: 'b' })
    const input = JSON.stringify(file)
    const dry = await home.run(['sso', 'create', '--file', '-', '--dry-run', '--json'], { input })
    expect(dry.stdout).toContain('********')
    expect(dry.stdout).not.toContain('hush')
    const list = await home.run(['sso', 'create', '--file', '-'], { input: '[]' })
    expect([list.code, list.stderr]).toEqual([2, expect.stringContaining('--file is not a JSON object')])
  })

  it('prints warnings of the service on standard error', async () => {
    const warning = 'OIDC discovery failed for issuer "x": 404'
    service.answers['POST /sso/providers'] = { status: 201, body: { data: okta, warning } }
    const { code, stdout, stderr } = await svc('sso', 'create', '--name', 'Okta', '--type', 'oidc', '-q')
    expect([code, stdout]).toEqual([0, `${uuid(70)}\n`])
    expect(stderr).toContain(`Warning: ${warning}`)
  })

  it('finds an existing provider by name with --if-not-exists', async () => {
    const args = ['sso', 'create', '--org', 'blue-bakery', '--name', 'Okta', '--if-not-exists']
    const { stdout } = await svc(...args, '--json')
    expect(JSON.parse(stdout)).toEqual({ data: okta })
    expect((await svc(...args, '-q')).stdout).toBe(`${uuid(70)}\n`)
    expect(service.calls('POST /sso/providers')).toEqual([])
  })

  it('clears a field with null, and omits the organization in an update', async () => {
    const { code } = await home.run(
      ['sso', 'update', 'Okta', '--client-secret', 'null', '--enforce-sso', '--force'],
      {
        env: { SVC_ORG: 'blue-bakery' },
      },
    )
    expect(code).toBe(0)
    expect(service.calls(`PATCH /sso/providers/${uuid(70)}`)[0]?.body).toEqual({
      clientSecret: null,
      enforceSSO: true,
      force: true,
    })
  })

  it('activates a provider, and names missing fields', async () => {
    const { stdout } = await svc('sso', 'activate', 'Okta')
    expect(stdout).toBe('Okta is active: people of the organization sign in with it\n')
    expect(service.calls(`POST /sso/providers/${uuid(70)}/status`)[0]?.body).toEqual({ status: 'active' })
    const details = [{ path: 'provider.clientId', message: 'is missing in an active provider' }]
    const refusal = problem(400, 'invalid_request', 'provider.clientId: is missing', { details })
    service.answers[`POST /sso/providers/${uuid(70)}/status`] = refusal
    const { code, stderr } = await svc('sso', 'activate', 'Okta')
    expect([code, stderr]).toEqual([2, expect.stringContaining('provider.clientId: is missing in an active')])
  })

  it('lists the identities of a provider, and unlinks one', async () => {
    const identity = { id: uuid(71), email: 'dora@example.com', externalId: '00u1', userId: uuid(5) }
    const path = `/sso/providers/${uuid(70)}/identities`
    service.answers[`GET ${path}`] = page([identity])
    service.answers[`DELETE ${path}/${uuid(71)}`] = { body: { success: true } }
    const listed = await svc('sso', 'identities', 'Okta', '--columns', 'id,email,externalId', '--csv')
    expect(listed.stdout).toBe(`id,email,externalId\n${uuid(71)},dora@example.com,00u1\n`)
    const { code, stdout } = await svc('sso', 'unlink', 'Okta', uuid(71), '--yes')
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^Link removed: /)])
    expect(service.calls(`DELETE ${path}/${uuid(71)}`)).toHaveLength(1)
    expect((await svc('sso', 'unlink', 'Okta', uuid(71))).code).toBe(2)
  })

  it('shows the hint of a failed discovery', async () => {
    const details = { hint: 'is the issuer spelled right?' }
    service.answers[`POST /sso/providers/${uuid(70)}/test`] = problem(
      400,
      'oidc_discovery_failed',
      'OIDC discovery failed: 404',
      { details },
    )
    const failed = await svc('sso', 'test', 'Okta', '--json')
    expect([failed.code, failed.stdout]).toEqual([1, ''])
    expect(failureOf(failed)).toMatchObject({ code: 'oidc_discovery_failed', hint: details.hint })
  })
})

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { secret } from '../webhooks/signed.ts'
import { FakeService, page, uuid } from './fake-service.ts'
import { Home } from './run.ts'

const home = new Home()
const made = { id: uuid(7), orgId: uuid(1), name: 'Tickets', hasSecret: true }
const service = new FakeService({
  'GET /webhooks': page([]),
  [`PATCH /webhooks/${made.id}`]: () => ({ status: 200, body: made }),
  'POST /webhooks': ({ body }) => {
    const given = (body as { secret?: string | null }).secret
    return {
      status: 201,
      body: { ...made, hasSecret: given !== null, ...(given === undefined && { secret }) },
    }
  },
})
beforeAll(() => service.start())
afterAll(async () => {
  await service.stop()
  home.remove()
})

const update = (...args: string[]) =>
  home.run(['webhooks', 'update', made.id, ...args], { env: { SVC_URL: service.url, SVC_TOKEN: 'token' } })

const create = (...args: string[]) => {
  const to = ['--name', 'Tickets', '--to', 'https://hooks.example.com', '--event', '*']
  const env = { SVC_URL: service.url, SVC_TOKEN: 'token' }
  return home.run(['webhooks', 'create', ...to, ...args], { env })
}

describe('svc webhooks update', () => {
  it('sends headers with a value from a file, or none', async () => {
    const file = home.write('auth', 'Bearer hush\n')
    for (const said of [[`Authorization: @${file}`, 'X-Tenant: bakery'], ['none']])
      expect((await update(...said.flatMap((one) => ['--header', one]))).code).toBe(0)
    const sent = service.calls(`PATCH /webhooks/${made.id}`).map(({ body }) => body)
    expect(sent).toEqual([
      {
        headers: [
          { key: 'Authorization', value: 'Bearer hush' },
          { key: 'X-Tenant', value: 'bakery' },
        ],
      },
      { headers: [] },
    ])
    const mixed = await update('--header', 'none', '--header', 'X-Tenant: bakery')
    expect([mixed.code, mixed.stderr]).toEqual([2, expect.stringContaining("--header takes 'Name: value'")])
  })
})

describe('svc webhooks create', () => {
  it('prints a generated secret alone on standard output, or puts it into a file', async () => {
    for (const more of [[], ['--if-not-exists']]) {
      const { code, stdout, stderr } = await create(...more)
      expect([code, stdout]).toEqual([0, `${secret}\n`])
      expect(stderr).toContain('It is not displayed again')
    }
    const file = `${home.path}/kept`
    const kept = await create('--out-file', file, '--json')
    expect([kept.code, home.read('kept'), home.mode('kept')]).toEqual([0, `${secret}\n`, '600'])
    expect(kept.stdout).not.toContain(secret)
    expect(JSON.parse((await create('--json')).stdout)).toEqual({ ...made, secret })
  })

  it('prints the record where a secret is given, or refused with null', async () => {
    for (const given of [`@${home.write('given', 'mine')}`, 'null']) {
      const { code, stdout } = await create('--secret', given)
      expect(code).toBe(0)
      expect(stdout).toContain('Tickets')
      const refused = await create('--secret', given, '--out-file', `${home.path}/none`)
      expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('leave out --secret')])
    }
    expect(
      service
        .calls('POST /webhooks')
        .slice(-2)
        .map(({ body }) => body),
    ).toMatchObject([{ secret: 'mine' }, { secret: null }])
  })

  it.each([
    [['-q'], `${made.id}\n`],
    [['--columns', 'name', '--no-header', '--csv'], 'Tickets\n'],
  ])('with %j says that the secret is left out, and what replaces it', async (look, expected) => {
    const { code, stdout, stderr } = await create(...look)
    expect([code, stdout]).toEqual([0, expected])
    expect(stderr).toContain('svc webhooks rotate-secret replaces it')
    expect((await create(...look, '--secret', 'null')).stderr).toBe('')
  })
})

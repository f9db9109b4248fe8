import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { openMigrated } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { administer } from '../postgres-databases.ts'
import { buildWorld } from '../world.ts'
import { send } from './request.ts'

type Readiness = { checks: { database: string } }

/** A service that logs in to Postgres with its own role. */
async function begin() {
  const { databaseUrl, dataDir } = await openMigrated('postgres')
  const url = new URL(databaseUrl!)
  const [database, role] = [url.pathname.slice(1), `svc_${randomBytes(4).toString('hex')}`]
  await administer((client) => client.query(`create role ${role} superuser login password 'one'`))
  url.username = role
  url.password = 'one'
  const service = await serviceOn({ dataDir, databaseUrl: url.href })
  const { tokens, orgs } = await buildWorld(service)
  const statement = (text: string) => administer((client) => client.query(text))
  return {
    database,
    role,
    statement,
    endConnections: () =>
      statement(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}'`),
    add: async () => {
      const body = { orgId: orgs.bakery.id, name: randomBytes(4).toString('hex') }
      const { status, headers } = await send(service.url, 'POST', '/api/v1/orgs/sites', {
        token: tokens.bakery,
        body,
      })
      return `${status} ${headers['retry-after'] ?? ''}`.trim()
    },
    check: async () => (await send<Readiness>(service.url, 'GET', '/health/ready')).body.checks.database,
  }
}
type Fixture = Awaited<ReturnType<typeof begin>>

it.each<[string, string, (fixture: Fixture) => string, (fixture: Fixture) => string]>([
  [
    'the role may no longer log in',
    'error: denying access',
    ({ role }) => `alter role ${role} nologin`,
    ({ role }) => `alter role ${role} login`,
  ],
  [
    'the password was changed',
    'error: denying access',
    ({ role }) => `alter role ${role} password 'two'`,
    ({ role }) => `alter role ${role} password 'one'`,
  ],
  [
    'the database accepts no connections',
    'error: unreachable',
    ({ database }) => `alter database ${database} allow_connections false`,
    ({ database }) => `alter database ${database} allow_connections true`,
  ],
  [
    'the server ends its transactions by timeout',
    'error: too slow',
    ({ role }) => `alter role ${role} set transaction_timeout = '1ms'`,
    ({ role }) => `alter role ${role} reset transaction_timeout`,
  ],
])(
  'when %s, changes get 503, readiness reports why, and the service recovers',
  async (_, why, fault, mend) => {
    const fixture = await begin()
    expect(await fixture.add()).toBe('201')
    await fixture.statement(fault(fixture))
    await fixture.endConnections()
    await expect.poll(fixture.check, { timeout: 10_000 }).toBe(why)
    expect(await fixture.add()).toBe('503 5')
    await fixture.statement(mend(fixture))
    await fixture.endConnections()
    await expect.poll(fixture.check, { timeout: 10_000 }).toBe('ok')
    await expect.poll(fixture.add, { timeout: 10_000 }).toBe('201')
  },
)

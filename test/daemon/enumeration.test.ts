import * as argon2 from '@node-rs/argon2'
import type { CompiledQuery } from 'kysely'
import { beforeEach, describe, expect, it, type Mock, vi } from 'vitest'
import type * as loops from '../../daemon/loop.ts'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, startService, type TestService, testClock } from '../harness.ts'
import { unsent } from '../identity/mail.ts'
import { roleOf, systemToken } from '../world.ts'
import { addPerson, addTenant, login, password, post, sameFor } from './people.ts'
import type { Reply } from './request.ts'

/** No background loop runs: what is observed is the request itself. */
vi.mock('../../daemon/loop.ts', async (original) => ({
  ...(await original<typeof loops>()),
  loop: () => ({ wake: () => {}, stop: async () => {} }),
}))
vi.mock('@node-rs/argon2', async (original) => {
  const { hash, verify } = await original<typeof argon2>()
  return { hash: vi.fn(hash), verify: vi.fn(verify) }
})

const guarding = {
  RATE_LIMIT_WRONG_PASSWORDS_NETWORK: '5/900',
  RATE_LIMIT_WRONG_PASSWORDS_ACCOUNT: '50/3600',
}

/** What an outsider sees of a request, and what it cost. */
type Observed = { reply: ReturnType<typeof sameFor>; statements: string[]; hashed: number; verified: number }

/** Runs a request and records its SQL statements. */
async function watch({ storage }: TestService, ask: () => Promise<Reply<unknown>>): Promise<Observed> {
  const statements: string[] = []
  const written = await storage.write(async (tx) => tx.getExecutor())
  const spies = [recordedBy(storage.read.getExecutor(), 'executeQuery', statements)]
  if ('executeNow' in written) spies.push(recordedBy(written, 'executeNow', statements))
  const [hash, verify] = [argon2.hash as Mock, argon2.verify as Mock]
  hash.mockClear()
  verify.mockClear()
  try {
    const reply = sameFor(await ask())
    return { reply, statements, hashed: hash.mock.calls.length, verified: verify.mock.calls.length }
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}

/** Once a second, whatever is asked: src/storage/copy/write-gate.ts. */
const ofWriteGate = /from sqlite_schema where type = 'table' and name = |pg_try_advisory_xact_lock_shared/

/** Records what this method runs, on this executor and on all others of its class. */
function recordedBy(executor: object, name: string, statements: string[]): Mock {
  let owner = executor
  while (!Object.hasOwn(owner, name)) owner = Object.getPrototypeOf(owner)
  const methods = owner as Record<string, (query: CompiledQuery) => unknown>
  const run = methods[name]!
  return vi.spyOn(methods, name).mockImplementation(function (this: unknown, query: CompiledQuery) {
    if (!ofWriteGate.test(query.sql)) statements.push(query.sql)
    return run.call(this, query)
  })
}

inTurn((open) => {
  let service: TestService
  let clock: ReturnType<typeof testClock>
  let people: Record<string, string>

  /** One account of every kind, and an address without an account. */
  async function begin(options: { real?: boolean } = {}) {
    clock = testClock()
    service = await startService(open, {
      clock,
      // Low enough that each registration counts: a process counts again after a twentieth of the room.
      env: { ...guarding, QUOTA_PENDING_PARTNERS: '10' },
      outside: { mailer: unsent(options.real ?? false) },
    })
    const { orgId } = await addTenant(service)
    const person = (name: string, row: Record<string, string | null> = {}) => made(orgId, name, row)
    const invited = await service.client(await systemToken(service)).call(api.users.invite, {
      body: { email: 'invited@example.com', name: 'I', roleId: roleOf('Org Viewer', 'organization'), orgId },
    })
    people = {
      unknown: 'unknown@example.com',
      known: await person('known'),
      disabled: await person('disabled', { status: 'disabled' }),
      invited: invited.email,
      locked: await person('locked'),
      'without a password': await person('nopassword', { password_hash: null }),
      'with a factor': await person('factor', { mfa_method: 'totp' }),
      'without a tenant': await person('nowhere'),
      'the first administrator': adminEmail,
    }
    await service.storage.write(async (tx) => {
      const who = tx.selectFrom('users').select('id').where('email', '=', people['without a tenant']!)
      await tx.deleteFrom('organization_memberships').where('user_id', 'in', who).execute()
    })
    await Promise.all(
      Array.from({ length: 5 }, () => login(service, { email: people.locked!, password: 'no' })),
    )
    // The hash that stands in for a missing password is computed once, at the first sign-in.
    await login(service, { email: 'warm-up@example.com', password })
    return { orgId, inviteUrl: invited.inviteUrl }
  }

  async function made(orgId: string, name: string, row: Record<string, string | null>): Promise<string> {
    const email = await addPerson(service, name, { orgId }, 'Org Viewer')
    if (Object.keys(row).length > 0)
      await service.storage.write((tx) =>
        tx.updateTable('users').set(row).where('email', '=', email).execute(),
      )
    return email
  }

  /** Expects every address to be answered as the unknown one is. */
  async function expectAlike(ask: (email: string) => Promise<Reply<unknown>>, who = Object.keys(people)) {
    const all: [string, Observed][] = []
    for (const name of who) all.push([name, await watch(service, () => ask(people[name]!))])
    const [, first] = all[0]!
    expect(first.statements.length).toBeGreaterThan(0)
    for (const [name, seen] of all) expect([name, seen]).toEqual([name, first])
    return first
  }

  describe('no account is revealed', () => {
    it('by a sign-in with a wrong password', async () => {
      await begin()
      const seen = await expectAlike((email) => login(service, { email, password: 'a wrong password' }))
      expect(seen).toMatchObject({ reply: { status: 401 }, verified: 1, hashed: 0 })
    })

    it('by a sign-in with the right password that is refused', async () => {
      await begin()
      const who = ['unknown', 'disabled', 'locked', 'without a tenant', 'invited', 'without a password']
      const seen = await expectAlike((email) => login(service, { email, password }), who)
      expect(seen).toMatchObject({ reply: { status: 401 }, verified: 1, hashed: 0 })
    })

    it('by a browser sign-in, or by the spelling of the address', async () => {
      await begin()
      await expectAlike((email) =>
        login(service, { email: ` ${email.toUpperCase()}`, password: 'wrong' }, {}),
      )
    })

    it('by a request for a password reset', async () => {
      await begin()
      const seen = await expectAlike((email) => post(service, '/auth/forgot-password', undefined, { email }))
      expect(seen).toMatchObject({ reply: { status: 200 }, verified: 0, hashed: 0 })
    })

    it.each(['/auth/register', '/auth/register-partner'])('by %s', async (path) => {
      await begin({ real: true })
      const strong = 'seven purple elephants on a roof'
      const company = path.endsWith('partner') ? { companyName: 'Acme' } : {}
      const register = (secret: string) => (email: string) =>
        post(service, path, undefined, { ...company, email, name: 'Ada', password: secret })
      const seen = await expectAlike(register(strong))
      expect(seen).toMatchObject({ reply: { status: 200 }, verified: 0, hashed: 1 })
      const replies = []
      for (const email of Object.values(people)) replies.push(sameFor(await register('short')(email)))
      for (const reply of replies) expect(reply).toEqual(replies[0])
      expect(replies[0]!.status).toBe(400)
    })

    it.each(['/auth/register', '/auth/register-partner'])(
      'by the reply of %s while mail cannot be sent',
      async (path) => {
        await begin()
        const company = path.endsWith('partner') ? { companyName: 'Acme' } : {}
        const body = { ...company, name: 'Ada', password: 'seven purple elephants on a roof' }
        const replies = []
        for (const email of Object.values(people))
          replies.push(sameFor(await post(service, path, undefined, { ...body, email })))
        for (const reply of replies) expect(reply).toEqual(replies[0])
        expect(replies[0]!.status).toBe(200)
      },
    )
  })

  describe('an invalid link does not reveal', () => {
    let links: string[]

    /** Links that never existed, that expired, were replaced, or belong to a disabled user. */
    beforeEach(async () => {
      const { orgId } = await begin()
      const client = service.client(await systemToken(service))
      const roleId = roleOf('Org Viewer', 'organization')
      const invite = (name: string) =>
        client.call(api.users.invite, { body: { email: `${name}@example.com`, name, roleId, orgId } })
      const tokenIn = (url: string | undefined) => new URL(url!).searchParams.get('token')!
      const [late, twice, gone] = [await invite('late'), await invite('twice'), await invite('gone')]
      await client.call(api.users.resendInvite, { body: { userId: twice.id, orgId } })
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ status: 'disabled' }).where('id', '=', gone.id).execute(),
      )
      await service.storage.write((tx) =>
        tx.updateTable('invitations').set({ expires_at: clock() }).where('user_id', '=', late.id).execute(),
      )
      const made = [late, twice, gone].map(({ inviteUrl }) => tokenIn(inviteUrl))
      links = ['x', 'x'.repeat(43), `${made[0]!.slice(0, -1)}!`, ...made]
    })

    it.each([
      ['/auth/invite/preview', {}, 404],
      ['/auth/accept-invite', { password: 'seven purple elephants on a roof' }, 400],
      ['/auth/reset-password', { password: 'seven purple elephants on a roof' }, 400],
      ['/auth/verify-email', {}, 400],
    ])('at %s whether it was once valid', async (path, more, status) => {
      const all: Observed[] = []
      for (const token of links)
        all.push(await watch(service, () => post(service, path, undefined, { token, ...more })))
      expect(all[0]).toMatchObject({ reply: { status }, verified: 0, hashed: 0 })
      for (const seen of all) expect(seen).toEqual(all[0])
    })
  })
})

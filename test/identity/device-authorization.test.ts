import { connect } from 'node:net'
import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { organizationScope } from '../../src/core/scope.ts'
import { newUserCode } from '../../src/identity/device-authorization/rules.ts'
import { sweepDeviceAuthorizations } from '../../src/identity/device-authorization/store.ts'
import { endTenantSessions } from '../../src/identity/sessions/tenants.ts'
import { endSessions } from '../../src/identity/store.ts'
import { endUserSessions } from '../../src/identity/users/store.ts'
import type { Db } from '../../src/storage/open.ts'
import { audited } from '../daemon/people.ts'
import { inTurn } from '../databases.ts'
import { startService, type TestService, testClock } from '../harness.ts'
import { addOrgUser, addProvider, buildWorld, tokenFor, type World } from '../world.ts'

const client = 'svc on web-1'

inTurn((open) => {
  let service: TestService
  let world: World
  const clock = testClock(new Date().toISOString())

  beforeEach(async () => {
    service = await startService(open, {
      clock,
      env: { RATE_LIMIT_DEVICE_CODE: '20/300', RATE_LIMIT_DEVICE_POLL: '20/60' },
    })
    world = await buildWorld(service)
  })

  const start = () => service.client().call(api.auth.startDeviceAuthorization, { body: { client } })
  const poll = (deviceCode: string) =>
    service.client().call(api.auth.pollDeviceAuthorization, { body: { deviceCode } })
  const decide = (token: string, userCode: string, decision: 'approve' | 'deny' = 'approve') =>
    service.client(token).call(api.auth.decideDeviceAuthorization, { body: { userCode, decision } })
  const codeOf = (call: Promise<unknown>) =>
    call.then(
      () => 'granted',
      ({ code }: { code: string }) => code,
    )
  const person = async (name: string, { mfa = true } = {}) => {
    const { id: orgId } = world.orgs.bakery
    await addOrgUser(service, name, orgId, { role: 'Org Viewer' })
    const { id } = await service.storage.read
      .selectFrom('users')
      .select('id')
      .where('email', '=', `${name}@example.com`)
      .executeTakeFirstOrThrow()
    const context = { kind: 'organization', orgId } as const
    return { id, context, token: await tokenFor(service, id, context, { mfa, now: new Date(clock()) }) }
  }

  it('signs a terminal in once, in the membership and with the factor of the session that approved it', async () => {
    const ada = await person('ada')
    const { deviceCode, userCode, verificationUrl, expiresInSeconds, intervalSeconds } = await start()
    expect({ expiresInSeconds, intervalSeconds }).toEqual({ expiresInSeconds: 600, intervalSeconds: 5 })
    expect(verificationUrl).toBe(`${service.url}/device`)
    expect(userCode).toMatch(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/)
    expect(await codeOf(poll(deviceCode))).toBe('authorization_pending')

    // However it is typed.
    const typed = ` ${userCode.toLowerCase().replace('-', ' ')} `
    const about = { body: { userCode: typed } }
    expect(await service.client(ada.token).call(api.auth.previewDeviceAuthorization, about)).toMatchObject({
      client,
      ip: '127.0.0.1',
    })
    await decide(ada.token, typed)
    // Nobody decides twice.
    expect(await codeOf(decide(ada.token, userCode, 'deny'))).toBe('invalid_user_code')

    const { tokens, user, mfaRequired } = await poll(deviceCode)
    expect({ email: user?.email, mfaRequired }).toEqual({ email: 'ada@example.com', mfaRequired: false })
    const terminal = service.client(tokens!.accessToken)
    expect(await terminal.call(api.auth.me)).toMatchObject({
      scope: 'organization',
      orgId: world.orgs.bakery.id,
      mfaVerified: true,
    })
    expect(await codeOf(poll(deviceCode))).toBe('invalid_device_code')

    // It is a session of its own.
    await service.client(ada.token).call(api.auth.logout, { body: { everywhere: false } })
    expect(await codeOf(terminal.call(api.auth.me))).toBe('granted')
    const approvals = await audited(service, 'auth.device.approve')
    expect(approvals).toMatchObject([{ user: { email: 'ada@example.com' } }])
    expect(approvals[0]?.details).toMatchObject({ client, requestedFrom: '127.0.0.1' })
  })

  it('does not make its terminal one that has just signed in', async () => {
    const ada = await person('ada')
    const { deviceCode, userCode } = await start()
    await decide(ada.token, userCode)
    const { tokens } = await poll(deviceCode)
    const terminal = service.client(tokens!.accessToken)
    expect(await codeOf(terminal.call(api.auth.newRecoveryCodes, { body: {} }))).toBe(
      'reauthentication_required',
    )
    const next = await start()
    expect(await codeOf(decide(tokens!.accessToken, next.userCode))).toBe('reauthentication_required')
  })

  it('is not approved by a session that ended while its request was under way', async () => {
    const ada = await person('ada')
    const { deviceCode, userCode } = await start()
    // Admitted with its headers; the body comes after every session of the account has ended.
    const body = JSON.stringify({ userCode, decision: 'approve' })
    const { port } = new URL(service.url)
    const socket = connect(Number(port), '127.0.0.1')
    const head = [
      'POST /api/v1/auth/device/decision HTTP/1.1',
      `host: 127.0.0.1:${port}`,
      `authorization: Bearer ${ada.token}`,
      'content-type: application/json',
      `content-length: ${body.length}`,
      'connection: close',
      '',
      '',
    ]
    socket.write(head.join('\r\n'))
    await new Promise((resolve) => setTimeout(resolve, 500))
    await service.storage.write((tx) => endSessions(tx, ada.id, clock()))
    socket.write(body)
    let reply = ''
    for await (const chunk of socket) reply += chunk
    expect(reply).toMatch(/^HTTP\/1\.1 401 /)
    expect(await codeOf(poll(deviceCode))).toBe('authorization_pending')
  })

  it('needs a recent sign-in to be approved, and none to be denied', async () => {
    const ada = await person('ada')
    const { deviceCode, userCode } = await start()
    await service.storage.write((tx) =>
      tx
        .updateTable('sessions')
        .set({ proved_at: new Date(Date.parse(clock()) - 601_000).toISOString() })
        .where('user_id', '=', ada.id)
        .execute(),
    )
    expect(await codeOf(decide(ada.token, userCode))).toBe('reauthentication_required')
    expect(await codeOf(poll(deviceCode))).toBe('authorization_pending')
    expect(await codeOf(decide(ada.token, userCode, 'deny'))).toBe('granted')
  })

  it('has no factor that the person did not prove', async () => {
    const ada = await person('ada', { mfa: false })
    const { deviceCode, userCode } = await start()
    await decide(ada.token, userCode)
    const { tokens } = await poll(deviceCode)
    expect(await service.client(tokens!.accessToken).call(api.auth.me)).toMatchObject({ mfaVerified: false })
  })

  it('is refused when it is denied, or takes too long', async () => {
    const ada = await person('ada')
    const denied = await start()
    await decide(ada.token, denied.userCode, 'deny')
    expect(await codeOf(poll(denied.deviceCode))).toBe('access_denied')

    const late = await start()
    const approved = await start()
    await decide(ada.token, approved.userCode)
    clock.forward(600)
    expect(await codeOf(poll(late.deviceCode))).toBe('invalid_device_code')
    expect(await codeOf(poll(approved.deviceCode))).toBe('invalid_device_code')
    expect(await codeOf(decide(ada.token, late.userCode))).toBe('invalid_user_code')
    clock.forward(1)
    await service.storage.write((tx) => sweepDeviceAuthorizations(tx, clock()))
    const left = service.storage.read.selectFrom('device_authorizations').select('id')
    expect(await left.execute()).toEqual([])
  })

  it('knows no code that nobody has started, and limits how many are tried', async () => {
    const ada = await person('ada')
    expect(await codeOf(poll('nothing'))).toBe('invalid_device_code')
    const { userCode, deviceCode } = await start()
    // Neither code does what the other is for.
    expect(await codeOf(poll(userCode))).toBe('invalid_device_code')
    expect(await codeOf(decide(ada.token, deviceCode.slice(0, 32)))).toBe('invalid_user_code')
    const tried: string[] = []
    for (let n = 0; n < 25; n += 1) tried.push(await codeOf(decide(ada.token, newUserCode())))
    expect(tried.filter((code) => code === 'invalid_user_code')).toHaveLength(19)
    expect(tried.at(-1)).toBe('rate_limited')
    // A terminal that asks without waiting is told to.
    const asked: string[] = []
    for (let n = 0; n < 25; n += 1) asked.push(await codeOf(poll(deviceCode)))
    expect(asked.filter((code) => code === 'authorization_pending')).toHaveLength(20)
    expect(asked.at(-1)).toBe('rate_limited')
  })

  it('is exchanged by one of many requests at once', async () => {
    const ada = await person('ada')
    const { deviceCode, userCode } = await start()
    await decide(ada.token, userCode)
    const codes = await Promise.all(Array.from({ length: 8 }, () => codeOf(poll(deviceCode))))
    expect(codes.filter((code) => code === 'granted')).toHaveLength(1)
    expect(new Set(codes)).toEqual(new Set(['granted', 'invalid_device_code']))
  })

  it('lasts no longer than the session that approved it', async () => {
    const ada = await person('ada')
    const ends = new Date(Date.parse(clock()) + 3_600_000).toISOString()
    await service.storage.write((tx) =>
      tx.updateTable('sessions').set({ expires_at: ends }).where('user_id', '=', ada.id).execute(),
    )
    const { deviceCode, userCode } = await start()
    await decide(ada.token, userCode)
    await poll(deviceCode)
    const rows = await service.storage.read
      .selectFrom('sessions')
      .select('expires_at')
      .where('user_id', '=', ada.id)
      .execute()
    expect(new Set(rows.map((one) => one.expires_at))).toEqual(new Set([ends]))
  })

  describe('that is approved is worth nothing once', () => {
    type Person = Awaited<ReturnType<typeof person>>
    const inTransaction = (work: (tx: Db, ada: Person) => Promise<unknown>) => (ada: Person) =>
      service.storage.write((tx) => work(tx, ada))
    const ways: Record<string, (ada: Person) => Promise<unknown>> = {
      'all sessions of the account have ended': inTransaction((tx, { id }) => endSessions(tx, id, clock())),
      'the account is disabled': inTransaction((tx, { id }) =>
        tx.updateTable('users').set({ status: 'disabled' }).where('id', '=', id).execute(),
      ),
      'the factor has changed': inTransaction((tx, { id }) =>
        tx.updateTable('users').set({ mfa_epoch: 77 }).where('id', '=', id).execute(),
      ),
      'the sessions in the tenant have ended': inTransaction((tx) =>
        endTenantSessions(tx, organizationScope(world.orgs.bakery.id), clock()),
      ),
      'the sessions of the member have ended': inTransaction((tx, { id, context }) =>
        endUserSessions(tx, id, context, clock()),
      ),
      'passwords are switched off': async ({ context }) => {
        await addProvider(service, context.orgId, { status: 'active', enforceSSO: true })
      },
    }
    it.each(Object.keys(ways))('%s', async (way) => {
      const ada = await person('ada')
      const { deviceCode, userCode } = await start()
      await decide(ada.token, userCode)
      await ways[way]!(ada)
      expect(await codeOf(poll(deviceCode))).toBe('invalid_device_code')
    })
  })
})

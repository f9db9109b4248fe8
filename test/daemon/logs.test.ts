import { generateSync } from 'otplib'
import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Db } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import { adminEmail, adminPassword, clientOf } from '../harness.ts'
import { ServeProcess, serviceEnv } from './process.ts'
import { machine, send } from './request.ts'

inTurn((open) => {
  it('no secret of a whole session is in the debug log or the database', async () => {
    const database = await open()
    const service = new ServeProcess(database, { env: { ...serviceEnv, LOG_LEVEL: 'debug' } })
    const url = await service.listening()
    const secrets: string[] = [...Object.values(serviceEnv).filter((value) => value !== adminEmail)]
    const remember = <T extends string>(value: T): T => {
      expect(value.length).toBeGreaterThanOrEqual(6)
      secrets.push(value)
      return value
    }

    const wrong = { email: adminEmail, password: remember('not the right password') }
    expect((await send(url, 'POST', '/api/v1/auth/login', { body: wrong })).status).toBe(401)
    const badField = { ...wrong, passwort: remember('misspelled password') }
    expect((await send(url, 'POST', '/api/v1/auth/login', { body: badField })).status).toBe(400)
    const badJson = `{"email":"x","password":"${remember('cut off passwor')}`
    expect((await send(url, 'POST', '/api/v1/auth/login', { body: badJson })).status).toBe(400)

    const right = { email: adminEmail, password: adminPassword }
    const browser = await send<{ tokens: { accessToken: string } }>(url, 'POST', '/api/v1/auth/login', {
      body: right,
    })
    for (const cookie of browser.cookies) remember(cookie.split(/[=;]/)[1] ?? '')
    remember(browser.body.tokens.accessToken)
    const { tokens } = await clientOf(url).call(api.auth.login, { body: right })
    const refreshToken = remember(tokens!.refreshToken!)
    const renewed = await clientOf(url).call(api.auth.refresh, { body: { refreshToken } })
    remember(renewed.tokens.refreshToken!)
    const first = remember(renewed.tokens.accessToken)

    const setup = await clientOf(url, first).call(api.auth.setupMfa)
    for (const value of [setup.otpAuthUrl, setup.qrCodeDataUrl, ...setup.recoveryCodes]) remember(value)
    const code = remember(generateSync({ secret: remember(setup.secret) }))
    const enabled = await clientOf(url, first).call(api.auth.enableMfa, { body: { code } })
    const token = remember(enabled.tokens.accessToken)
    const challenge = await clientOf(url).call(api.auth.login, { body: right })
    const replayed = { tempToken: remember(challenge.tempToken!), code }
    expect((await send(url, 'POST', '/api/v1/auth/mfa/verify', { body: replayed })).status).toBe(401)
    const recovery = { tempToken: replayed.tempToken, code: setup.recoveryCodes[0]! }
    await clientOf(url).call(api.auth.verifyMfa, { body: recovery })

    const admin = clientOf(url, token)
    const { id: partnerId } = await admin.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
    const { id: orgId } = await admin.call(api.orgs.create, {
      body: { partnerId, name: 'Bakery', slug: 'bakery' },
    })
    const minted = await admin.call(api.enrollmentKeys.create, { body: { orgId, name: 'reception' } })
    const rotated = await admin.call(api.enrollmentKeys.rotate, { params: { id: minted.id }, body: {} })
    const key = remember(rotated.key)
    for (const used of [remember(minted.key), key]) {
      await send(url, 'POST', '/api/v1/agents/enroll', { body: machine(used, 'pc-1') })
    }
    const { body: enrolled } = await send<{ agentId: string; authToken: string }>(
      url,
      'POST',
      '/api/v1/agents/enroll',
      {
        body: machine(
          remember((await admin.call(api.enrollmentKeys.create, { body: { orgId, name: 'two' } })).key),
          'pc-2',
        ),
      },
    )
    await send(url, 'POST', `/api/v1/agents/${enrolled.agentId}/heartbeat`, {
      token: remember(enrolled.authToken),
      body: { status: 'ok', agentVersion: '1' },
    })
    await send(url, 'GET', `/api/v1/orgs/sites?token=${remember('a-token-in-a-query')}`, { token })
    await send(url, 'GET', `/nowhere/${remember('a-token-in-a-path')}`, { token: remember('not.a.token') })

    // A server error: the statement, its values and the driver's message would reach the log here, if
    // anywhere.
    await database.storage.write((tx) =>
      tx.schema.alterTable('enrollment_keys').renameTo('elsewhere').execute(),
    )
    const broken = { token, body: machine(remember('f'.repeat(64)), 'pc-3') }
    const failed = await send(url, 'POST', '/api/v1/agents/enroll', broken)
    expect(failed).toMatchObject({ status: 500, body: { error: 'Internal Server Error', code: 'internal' } })

    await service.stop()
    const lines = service.stderr.split('\n').filter((line) => line.startsWith('{'))
    const logged = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(logged.filter(({ msg }) => msg === 'request').length).toBeGreaterThan(15)
    expect(logged.find(({ msg }) => msg === 'unhandled error')).toMatchObject({
      requestId: failed.body.requestId,
      err: { message: expect.stringMatching(/enrollment_keys/) },
    })
    const stored = await everythingIn(database.storage.read)
    expect(stored).toContain(enrolled.agentId)
    for (const secret of secrets) {
      expect(service.stderr).not.toContain(secret)
      expect(stored).not.toContain(secret)
    }
  })
})

/** All rows of all tables as text, the audit log and stored replies included. */
async function everythingIn(db: Db): Promise<string> {
  const tables = await db.introspection.getTables()
  expect(tables.length).toBeGreaterThan(20)
  const rows = await Promise.all(
    tables.map(({ name }) =>
      db
        .selectFrom(name as 'users')
        .selectAll()
        .execute(),
    ),
  )
  return JSON.stringify(rows)
}

import { beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { openMigrated } from '../databases.ts'
import { adminEmail, adminPassword, serviceOn, type TestService } from '../harness.ts'
import { fieldsOf, inputsOf } from '../laws/fields.ts'
import { systemToken } from '../world.ts'
import { send } from './request.ts'

describe('a reply for one caller', () => {
  let service: TestService
  const started = async (env: Record<string, string> = {}) => {
    const database = await openMigrated('sqlite')
    return serviceOn(database, { env })
  }
  beforeAll(async () => {
    service = await started()
    return () => service.close()
  })

  const login = ({ url }: TestService, headers: Record<string, string> = {}) =>
    send(url, 'POST', '/api/v1/auth/login', { body: { email: adminEmail, password: adminPassword }, headers })

  it('is never cached, at every endpoint that requires credentials or returns a secret', async () => {
    const known = entriesOf(api).map(({ name, entry }) => {
      const secret = [...inputsOf(entry), ...fieldsOf(entry.reply)].some((field) => field.secret)
      return { name, entry, isPrivate: entry.access.who !== 'public' || secret }
    })
    expect(known.filter(({ isPrivate }) => isPrivate).length).toBeGreaterThan(100)
    const open: string[] = []
    for (const { name, entry, isPrivate } of known) {
      const path = `/api/v1${entry.path.replace(/:\w+/g, 'x')}`
      const reply = await fetch(service.url + path, { method: entry.method, redirect: 'manual' })
      await reply.arrayBuffer()
      if (isPrivate && reply.headers.get('cache-control') !== 'no-store') open.push(name)
    }
    expect(open).toEqual([])
  })

  it('is never cached when it succeeds, by token, API key or password', async () => {
    const token = await systemToken(service)
    const client = service.client(token)
    const partner = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
    const org = await client.call(api.orgs.create, {
      body: { partnerId: partner.id, name: 'Bakery', slug: 'bakery' },
    })
    const body = { orgId: org.id, name: 'k', scopes: ['devices:read'] }
    const made = await send<{ key: string }>(service.url, 'POST', '/api/v1/api-keys', { token, body })
    const list = await send(service.url, 'GET', '/api/v1/devices', {
      headers: { 'x-api-key': made.body.key },
    })
    const all = [
      made,
      list,
      await login(service),
      await send(service.url, 'GET', '/api/v1/users/me', { token }),
    ]
    expect(all.map(({ status, headers }) => [status, headers['cache-control']])).toEqual([
      [201, 'no-store'],
      ...Array.from({ length: 3 }, () => [200, 'no-store']),
    ])
  })

  it('has Secure cookies where the service is reached by HTTPS', async () => {
    const isSecure = async (env: Record<string, string>, headers: Record<string, string> = {}) => {
      const one = await started(env)
      const { cookies } = await login(one, headers)
      await one.close()
      expect(cookies).toHaveLength(2)
      return cookies.map((line) => /; Secure(;|$)/.test(line))
    }
    const proxied = { 'x-forwarded-proto': 'https' }
    expect(await isSecure({ PUBLIC_URL: 'https://svc.example.com' })).toEqual([true, true])
    expect(await isSecure({ PUBLIC_URL: 'https://svc.example.com', TRUST_PROXY_HEADERS: 'true' })).toEqual([
      true,
      true,
    ])
    expect(await isSecure({ TRUST_PROXY_HEADERS: 'true' }, proxied)).toEqual([true, true])
    // Only a trusted proxy may say that the client used HTTPS.
    expect(await isSecure({ PUBLIC_URL: 'http://svc.example.com' }, proxied)).toEqual([false, false])
    expect(await isSecure({})).toEqual([false, false])
  })
})

import type { ServeOptions } from '../../../daemon/serve.ts'
import { api } from '../../../src/api.ts'
import type { BodyOf } from '../../../src/core/endpoint.ts'
import { newId } from '../../../src/core/new-id.ts'
import { joinOrganization } from '../../../src/identity/memberships.ts'
import { insertUser } from '../../../src/identity/store.ts'
import type { Open } from '../../databases.ts'
import { serviceOn, startService, type TestService, testClock } from '../../harness.ts'
import { buildWorld, roleOf } from '../../world.ts'
import { oidc } from '../provider-fixture.ts'
import { identityProvider } from './identity-provider.ts'

/** A browser that keeps cookies and does not follow redirects. */
export function browser() {
  const jar = new Map<string, string>()
  return {
    jar,
    async open(
      url: string,
      init: RequestInit = {},
    ): Promise<{ status: number; location: string; text: string }> {
      const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
      const reply = await fetch(url, { ...init, redirect: 'manual', headers: { cookie, ...init.headers } })
      for (const line of reply.headers.getSetCookie()) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
        if (value === '' || /Max-Age=0/i.test(line)) jar.delete(name)
        else jar.set(name, value)
      }
      return { status: reply.status, location: reply.headers.get('location') ?? '', text: await reply.text() }
    },
  }
}
export type Browser = ReturnType<typeof browser>

export const person = { sub: 'subject-1', email: 'dora@bakery.example.com', name: 'Dora Bakes' }

/** A service with the world, whose bakery signs in with a provider. */
export async function start(
  open: Open,
  env: Record<string, string> = {},
  outside: Partial<ServeOptions> = {},
) {
  const clock = testClock()
  const idp = identityProvider(clock)
  const options = {
    clock,
    outside: { outbound: idp.outbound, ...outside },
    env: { PUBLIC_URL: 'https://svc.example.com', DASHBOARD_URL: 'https://app.example.com', ...env },
  }
  const service = await startService(open, options)
  const world = await buildWorld(service)
  const { bakery, garage } = world.orgs
  const client = service.client(world.tokens.bakery)
  const system = service.client(world.tokens.system)
  type Body = Partial<BodyOf<typeof api.ssoProviders.create>>
  const provider = async (more: Body = {}) => {
    const body = { ...oidc, autoProvision: false, ...more } as never
    const { data } = await client.call(api.ssoProviders.create, { body })
    await client.call(api.ssoProviders.setStatus, { params: { id: data.id }, body: { status: 'active' } })
    return data
  }
  const setStatus = (id: string, status: 'active' | 'inactive' | 'testing') =>
    client.call(api.ssoProviders.setStatus, { params: { id }, body: { status } })
  const change = (id: string, body: BodyOf<typeof api.ssoProviders.update>) =>
    client.call(api.ssoProviders.update, { params: { id }, body })
  /** Signs in like a browser, up to the final redirect with a code or an error. */
  const signIn = async (
    who: Record<string, unknown> = person,
    on: {
      service?: TestService
      at?: TestService
      browser?: Browser
      query?: string
      answer?: Record<string, string>
    } = {},
  ) => {
    const { service: first = service, at = first, browser: by = browser(), query = '', answer } = on
    const begun = await by.open(`${first.url}/api/v1/sso/login/${bakery.id}${query}`)
    const back = new URL(await idp.authorize(begun.location, who, answer))
    return by.open(`${at.url}/api/v1/sso/callback${back.search}`)
  }
  const replica = (more: Record<string, string> = {}) =>
    serviceOn(service, { ...options, env: { ...options.env, ...more } })
  return {
    clock,
    idp,
    service,
    world,
    bakery,
    garage,
    client,
    system,
    provider,
    change,
    setStatus,
    signIn,
    replica,
  }
}

/** Adds a member of an organization. */
export async function addMember(
  service: TestService,
  orgId: string,
  email: string,
  status = 'active',
): Promise<string> {
  const [id, now] = [newId(), new Date().toISOString()]
  const roleId = roleOf('Org Admin', 'organization')
  await service.storage.write(async (tx) => {
    await insertUser(tx, { id, email, name: email, passwordHash: 'none', status }, now)
    await joinOrganization(tx, { orgId, userId: id, roleId, siteIds: null }, now)
  })
  return id
}

/** The code or the error in the redirect of a browser. */
export const codeIn = (location: string): string =>
  new URL(location, 'https://x.example').hash.replace('#ssoCode=', '')
export const errorIn = (location: string): string | null =>
  new URL(location, 'https://x.example').searchParams.get('error')

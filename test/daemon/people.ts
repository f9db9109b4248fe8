import { generateSync } from 'otplib'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { newId } from '../../src/core/new-id.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import type { SignIn } from '../../src/identity/sessions/contract.ts'
import { insertUser } from '../../src/identity/store.ts'
import { adminEmail, adminPassword, type TestService } from '../harness.ts'
import { systemToken } from '../world.ts'
import { type Reply, send } from './request.ts'

export const password = 'a password of nine words, as nobody would guess'

type Place = { partnerId: string } | { orgId: string }

/** A user who can sign in, with a role in one tenant and no MFA factor; returns the address. */
export async function addPerson(
  service: TestService,
  name: string,
  place: Place,
  role: string,
): Promise<string> {
  const kind = 'orgId' in place ? 'organization' : 'partner'
  const roleId = builtInRoles.find((one) => one.name === role && one.scope === kind)!.id
  const [id, email, now] = [newId(), `${name}@example.com`, '2026-01-01T00:00:00.000Z']
  const passwordHash = await hashPassword(password)
  await service.storage.write(async (tx) => {
    await insertUser(tx, { id, email, name, passwordHash }, now)
    if ('orgId' in place) await joinOrganization(tx, { ...place, userId: id, roleId, siteIds: null }, now)
    else await joinPartner(tx, { ...place, userId: id, roleId, orgs: 'all' }, now)
  })
  return email
}

export async function addTenant(
  service: TestService,
  settings: Record<string, unknown> = {},
): Promise<{ partnerId: string; orgId: string }> {
  const client = service.client(await systemToken(service))
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  const body = { partnerId, name: 'Bakery', slug: 'bakery', settings }
  return { partnerId, orgId: (await client.call(api.orgs.create, { body })).id }
}

export const admin = { email: adminEmail, password: adminPassword }

/** A sign-in attempt of a program. */
export const login = (
  service: TestService,
  body: { email: string; password: string } = admin,
  headers: Record<string, string> = { 'x-service-client': 'cli' },
): Promise<Reply<SignIn & { code?: string }>> =>
  send(service.url, 'POST', '/api/v1/auth/login', { body, headers })

/** Any other POST of a program. */
export const post = (service: TestService, path: string, token: string | undefined, body?: unknown) =>
  send<{ code?: string; tokens?: { accessToken: string } }>(service.url, 'POST', `/api/v1${path}`, {
    token,
    body,
    headers: { 'x-service-client': 'cli' },
  })

export async function signIn(service: TestService, who = admin) {
  const { tokens } = await service.client().call(api.auth.login, { body: who })
  return tokens as { accessToken: string; refreshToken: string }
}

/** The code an authenticator shows `offset` seconds from the clock's time. */
export const codeAt = (secret: string, clock: () => string, offset = 0): string =>
  generateSync({ secret, epoch: Math.floor(Date.parse(clock()) / 1000) + offset })

/** Enrolls an authenticator; returns its secret, the recovery codes and an MFA session. */
export async function enrolFactor(client: Client, clock: () => string) {
  const { secret, recoveryCodes } = await client.call(api.auth.setupMfa)
  const { tokens } = await client.call(api.auth.enableMfa, { body: { code: codeAt(secret, clock) } })
  return { secret, recoveryCodes, tokens }
}

/** Entries of an action in the audit log, newest first. */
export async function audited(service: TestService, action: string) {
  const client = service.client(await systemToken(service))
  return (await client.call(api.auditLogs.list, { query: { action, limit: 100 } })).data
}

/** A reply without what differs between any two requests. */
export const sameFor = ({ status, headers, cookies, body }: Reply<unknown>) => {
  const { requestId: _, ...rest } = body as { requestId?: string }
  const { date: __, 'x-request-id': ___, ...others } = headers
  return { status, cookies, body: rest, headers: others }
}

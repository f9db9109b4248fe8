import { decodeJwt } from 'jose'
import { makeCommand, toOutcome } from '../src/agents/commands/rules.ts'
import { endCommand, insertCommand } from '../src/agents/commands/store.ts'
import { api } from '../src/api.ts'
import { sealPending } from '../src/audit/outbox.ts'
import { createCipher } from '../src/core/cipher.ts'
import { newId } from '../src/core/new-id.ts'
import { joinOrganization, joinPartner } from '../src/identity/memberships.ts'
import { makeRole } from '../src/identity/roles/rules.ts'
import { insertRole } from '../src/identity/roles/store.ts'
import type { SessionContext, Tenant } from '../src/identity/rules.ts'
import { builtInRoles } from '../src/identity/seeds.ts'
import { insertSession } from '../src/identity/sessions/store.ts'
import { createAccessTokens } from '../src/identity/sessions/tokens.ts'
import { findUserByEmail, insertUser } from '../src/identity/store.ts'
import { makeProvider, type ProviderRecord } from '../src/sso/rules.ts'
import { insertProvider } from '../src/sso/store.ts'
import type { TrustPolicy } from '../src/trust/contract.ts'
import { makePolicy } from '../src/trust/rules.ts'
import { insertTrustPolicy } from '../src/trust/store.ts'
import type { NewWebhook } from '../src/webhooks/contract.ts'
import { insertRequested } from '../src/webhooks/deliveries/requested.ts'
import { makeWebhook } from '../src/webhooks/rules.ts'
import { insertWebhook } from '../src/webhooks/store.ts'
import { addRollout } from './agents/rollouts/records.ts'
import { adminEmail, type TestService, testSecrets } from './harness.ts'
import { added, holdsAny, putRows, type Rows, rowsOf } from './table-dump.ts'
import { ciIssuer } from './trust/issuer.ts'

export type Org = {
  id: string
  name: string
  siteId: string
  groupId: string
  filterId: string
  roleId: string
  scriptId: string
  alertId: string
  webhookId: string
  /** One that failed. */
  deliveryId: string
  providerId: string
  policyId: string
  /** Of no tenant; one that has come to its end. */
  rolloutId: string
  keyId: string
  apiKeyId: string
  deviceId: string
  /** One that its agent has answered. */
  commandId: string
  agentId: string
  agentToken: string
  /** A role of its own that nobody holds. */
}

/** Two partners, three organizations with a record of every kind in each, and users of every reach. */
export type World = {
  partners: { acme: string; globex: string }
  /** bakery and garage are acme's, harbor is globex's. */
  orgs: { bakery: Org; garage: Org; harbor: Org }
  /** Access tokens with a verified factor. */
  tokens: {
    system: string
    /** Partner Admin of acme with all organizations, with bakery only, and with none. */
    acme: string
    acmeBakery: string
    acmeNone: string
    globex: string
    /** Org Admin of one organization. */
    bakery: string
    garage: string
    harbor: string
    bakeryViewer: string
    bakeryAuditor: string
  }
}

/** A built-in role by its name; any other by its id. */
export const roleOf = (name: string, scope: string) =>
  builtInRoles.find((role) => role.name === name && role.scope === scope)?.id ?? name

/** A token for any user, as signing in with a factor would give (or without). */
export async function tokenFor(
  service: TestService,
  userId: string,
  context: SessionContext,
  { mfa = true, now = new Date() }: { mfa?: boolean; now?: Date } = {},
): Promise<string> {
  const row = await service.storage.read
    .selectFrom('users')
    .select(['auth_epoch', 'mfa_epoch'])
    .where('id', '=', userId)
    .executeTakeFirstOrThrow()
  const { auth_epoch: authEpoch, mfa_epoch: mfaEpoch } = row
  const sessionId = newId()
  const expiresAt = '9999-01-01T00:00:00.000Z'
  const session = { id: sessionId, userId, context, mfa, tokenHash: sessionId, expiresAt }
  await service.storage.write((tx) => insertSession(tx, session, now.toISOString()))
  const claims = { userId, sessionId, context, authEpoch, mfaEpoch, mfa }
  return createAccessTokens(testSecrets.JWT_SECRET).sign(claims, now)
}

type Signed = { sid: string; ctx: SessionContext; aep: number; mep: number; mfa: boolean }

/** The same as a token that `tokenFor` has made, as long as its session is there. */
export function newToken(token: string): Promise<string> {
  const { sub = '', sid, ctx, aep, mep, mfa } = decodeJwt<Signed>(token)
  const claims = { userId: sub, sessionId: sid, context: ctx, authEpoch: aep, mfaEpoch: mep, mfa }
  return createAccessTokens(testSecrets.JWT_SECRET).sign(claims, new Date())
}

export async function addUser(service: TestService, name: string): Promise<string> {
  const id = newId()
  const now = new Date().toISOString()
  await service.storage.write(async (tx) => {
    await insertUser(tx, { id, email: `${name}@example.com`, name, passwordHash: null }, now)
    // Enrolled, so that a Force MFA role lets them in.
    await tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', id).execute()
  })
  return id
}

export async function addPartnerUser(
  service: TestService,
  name: string,
  partnerId: string,
  orgs: 'all' | string[],
  role = 'Partner Admin',
): Promise<string> {
  const userId = await addUser(service, name)
  const membership = { partnerId, userId, roleId: roleOf(role, 'partner'), orgs }
  await service.storage.write((tx) => joinPartner(tx, membership, new Date().toISOString()))
  return tokenFor(service, userId, { kind: 'partner', partnerId })
}

export async function addOrgUser(
  service: TestService,
  name: string,
  orgId: string,
  {
    role = 'Org Admin',
    siteIds = null,
    groupIds = null,
  }: { role?: string; siteIds?: string[] | null; groupIds?: string[] | null } = {},
): Promise<string> {
  const userId = await addUser(service, name)
  const membership = { orgId, userId, roleId: roleOf(role, 'organization'), siteIds, groupIds }
  await service.storage.write((tx) => joinOrganization(tx, membership, new Date().toISOString()))
  return tokenFor(service, userId, { kind: 'organization', orgId })
}

export async function systemToken(service: TestService, options: { mfa?: boolean } = {}): Promise<string> {
  const admin = await findUserByEmail(service.storage.read, adminEmail)
  return tokenFor(service, admin!.id, { kind: 'system' }, options)
}

/** An organization with one record of every kind in it. */
export async function addOrg(
  service: TestService,
  systemToken: string,
  partnerId: string,
  slug: string,
): Promise<Org> {
  const client = service.client(systemToken)
  const { id } = await client.call(api.orgs.create, { body: { partnerId, name: slug, slug } })
  const site = await client.call(api.sites.create, { body: { orgId: id, name: `${slug} site` } })
  const body = { orgId: id, siteId: site.id, name: `${slug} key`, maxUsage: 1000 }
  const key = await client.call(api.enrollmentKeys.create, { body })
  const apiKey = await client.call(api.apiKeys.create, { body: { orgId: id, name: `${slug} api key` } })
  const enrolled = await service.client().call(api.agents.enroll, {
    body: {
      enrollmentKey: key.key,
      hostname: `${slug}-pc`,
      osType: 'linux',
      osVersion: 'Debian 12',
      architecture: 'x64',
      agentVersion: '0.1.0',
    },
  })
  const { deviceId, agentId, authToken: agentToken } = enrolled
  const commandId = await addCommand(service, id, deviceId)
  const groupId = await addGroup(service, id, `${slug} group`, [deviceId])
  const roleId = await addRole(service, id, `${slug} role`, ['devices:read'])
  const filter = await client.call(api.filters.create, {
    body: { ...api.filters.create.example, orgId: id, name: `${slug} filter` },
  })
  const script = await client.call(api.scripts.create, {
    body: { orgId: id, name: `${slug} script`, osTypes: ['linux'], language: 'bash', content: 'true\n' },
  })
  const alert = await client.call(api.alerts.create, {
    body: { orgId: id, deviceId, severity: 'high', title: `${slug} alert` },
  })
  const webhook = await addWebhook(service, id, `${slug} webhook`)
  const deliveryId = await addFailedDelivery(service, webhook, { deviceId, hostname: `${slug}-pc` })
  const providerId = await addProvider(service, id, { name: `${slug} provider` })
  const policyId = await addPolicy(service, id, { name: `${slug} policy` })
  const rolloutId = await addRollout(service)
  return {
    id,
    name: slug,
    siteId: site.id,
    groupId,
    filterId: filter.id,
    roleId,
    scriptId: script.id,
    alertId: alert.id,
    webhookId: webhook.id,
    deliveryId,
    providerId,
    policyId,
    rolloutId,
    keyId: key.id,
    apiKeyId: apiKey.id,
    deviceId,
    commandId,
    agentId,
    agentToken,
  }
}

/** A webhook that nobody has to look up the address of. */
export async function addWebhook(
  service: TestService,
  orgId: string,
  name: string,
  events: NewWebhook['events'] = ['patch.failed'],
): Promise<{ id: string; orgId: string }> {
  const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
  const wanted = { orgId, name, url: 'https://hooks.example.com/', events, headers: [] }
  const made = { id: newId(), by: newId(), now: new Date().toISOString() }
  const webhook = makeWebhook(wanted, made)
  await service.storage.write((tx) => insertWebhook(tx, cipher, webhook))
  return { id: made.id, orgId }
}

/** A delivery that nothing is going to send any more. */
async function addFailedDelivery(
  service: TestService,
  webhook: { id: string; orgId: string },
  payload: Record<string, unknown> = { patchId: 'a' },
): Promise<string> {
  const now = new Date().toISOString()
  const { id: webhookId, orgId } = webhook
  const [id, eventId] = [newId(), newId()]
  await service.storage.write(async (tx) => {
    const made = { id, webhookId, orgId, event: 'patch.failed', eventId, payload, now }
    await insertRequested(tx, made)
    const failed = { status: 'failed', attempt: 6, due_at: null, failure_class: 'refused', ended_at: now }
    await tx.updateTable('webhook_deliveries').set(failed).where('id', '=', id).execute()
    await tx.updateTable('webhook_queues').set({ due_at: null }).where('webhook_id', '=', webhookId).execute()
  })
  return id
}

/** An identity provider that nobody has to ask anything. */
export async function addProvider(
  service: TestService,
  orgId: string,
  { status = 'inactive', createdAt: now = new Date().toISOString(), ...rest }: Partial<ProviderRecord> = {},
): Promise<string> {
  const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
  const id = newId()
  const wanted = { orgId, name: 'provider', type: 'oidc' as const, clientId: 'svc', clientSecret: 'hush' }
  const provider = {
    ...makeProvider(wanted, undefined, { id, by: { id: newId(), permissions: new Set(['*:*']) }, now }),
    ...rest,
    status,
  }
  await service.storage.write((tx) => insertProvider(tx, cipher, provider))
  return id
}

/** A trust policy whose issuer nobody has to ask anything. */
async function addPolicy(
  service: TestService,
  orgId: string,
  { createdAt: now = new Date().toISOString(), ...rest }: Partial<TrustPolicy> = {},
): Promise<string> {
  const id = newId()
  const wanted = {
    orgId,
    name: 'policy',
    issuer: ciIssuer.url,
    audience: 'svc',
    claims: { sub: `job-of-${orgId}` },
    permissions: ['organizations:read', 'organizations:write'],
    maxUsage: 5,
    maxTtlMinutes: 30,
    status: 'active' as const,
  }
  const policy = { ...makePolicy(wanted, { id, by: newId(), now }), ...rest }
  await service.storage.write((tx) => insertTrustPolicy(tx, policy))
  return id
}

/** A command that the agent of a device was given, and by default has answered. */
export async function addCommand(
  service: TestService,
  orgId: string,
  deviceId: string,
  { isAnswered = true } = {},
): Promise<string> {
  const now = new Date().toISOString()
  const wanted = {
    type: 'collect' as const,
    payload: { what: ['metrics' as const] },
    targetRole: 'agent' as const,
  }
  const command = makeCommand(wanted, { id: newId(), orgId, deviceId, by: newId(), now })
  await service.storage.write(async (tx) => {
    await insertCommand(tx, { ...command, status: 'sent', sentAt: now, sentCount: 1 })
    const outcome = toOutcome({ status: 'completed', exitCode: 0, stdout: 'done' })
    if (isAnswered) await endCommand(tx, command.id, outcome, now)
  })
  return command.id
}

/** A group of devices of an organization. */
export async function addGroup(
  service: TestService,
  orgId: string,
  name: string,
  deviceIds: readonly string[],
): Promise<string> {
  const id = newId()
  const now = new Date().toISOString()
  await service.storage.write(async (tx) => {
    const group = { id, org_id: orgId, site_id: null, name, created_at: now, updated_at: now }
    await tx.insertInto('device_groups').values(group).execute()
    const rows = deviceIds.map((deviceId) => ({ group_id: id, device_id: deviceId }))
    if (rows.length > 0) await tx.insertInto('device_group_devices').values(rows).execute()
  })
  return id
}

/** A role of an organization's own, or of a partner's. */
export async function addRole(
  service: TestService,
  owner: string | { partnerId: string },
  name: string,
  permissions: readonly string[],
  parentRoleId: string | null = null,
): Promise<string> {
  const id = newId()
  const now = new Date().toISOString()
  const tenant: Tenant =
    typeof owner === 'string' ? { kind: 'organization', orgId: owner } : { kind: 'partner', ...owner }
  const role = makeRole({ name, description: null, parentRoleId, forceMfa: false }, tenant, { id, now })
  await service.storage.write((tx) => insertRole(tx, role, permissions))
  return id
}

type Recorded = { world: World; rows: Rows; at: number }

/** Worlds that were built in this process, by what they depend on. */
const recorded = new Map<string, Recorded>()

/** Longer ago, devices would seem silent and sign-ins old. */
const freshMs = 60_000

/** Through the API; for the same kind of service, soon after, by putting the same rows into its database. */
export async function buildWorld(service: TestService): Promise<World> {
  const { storage, setting } = service
  // It joins what the test has made already.
  if (!setting || (await holdsAny(storage, ['partners', 'audit_heads']))) return makeWorld(service)
  const { env, now } = setting()
  const isNow = Math.abs(Date.parse(now) - Date.now()) < freshMs
  const key = `${storage.dialect} ${env} ${isNow ? 'now' : now}`
  const known = recorded.get(key)
  if (known && performance.now() - known.at < freshMs) {
    await putRows(service, known.rows)
    return structuredClone(known.world)
  }
  const at = performance.now()
  const before = await rowsOf(storage)
  const world = await makeWorld(service)
  await sealPending(storage)
  recorded.set(key, { world: structuredClone(world), rows: added(before, await rowsOf(storage)), at })
  return world
}

async function makeWorld(service: TestService): Promise<World> {
  const system = await systemToken(service)
  const client = service.client(system)
  const partner = async (slug: string) =>
    (await client.call(api.partners.create, { body: { name: slug, slug } })).id
  const partners = { acme: await partner('acme'), globex: await partner('globex') }

  const org = (partnerId: string, slug: string) => addOrg(service, system, partnerId, slug)
  const bakery = await org(partners.acme, 'bakery')
  const garage = await org(partners.acme, 'garage')
  const harbor = await org(partners.globex, 'harbor')

  return {
    partners,
    orgs: { bakery, garage, harbor },
    tokens: {
      system,
      acme: await addPartnerUser(service, 'acme-admin', partners.acme, 'all'),
      acmeBakery: await addPartnerUser(service, 'acme-some', partners.acme, [bakery.id]),
      acmeNone: await addPartnerUser(service, 'acme-none', partners.acme, []),
      globex: await addPartnerUser(service, 'globex-admin', partners.globex, 'all'),
      bakery: await addOrgUser(service, 'bakery-admin', bakery.id),
      garage: await addOrgUser(service, 'garage-admin', garage.id),
      harbor: await addOrgUser(service, 'harbor-admin', harbor.id),
      bakeryViewer: await addOrgUser(service, 'bakery-viewer', bakery.id, { role: 'Org Viewer' }),
      bakeryAuditor: await addOrgUser(service, 'bakery-auditor', bakery.id, { role: 'Auditor' }),
    },
  }
}

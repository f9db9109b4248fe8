import { api } from '../../src/api.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import { newId } from '../../src/core/new-id.ts'
import type { Resource } from '../../src/core/schema.ts'
import { joinOrganization } from '../../src/identity/memberships.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { builtInRoles } from '../../src/identity/seeds.ts'
import { findUserByEmail } from '../../src/identity/store.ts'
import type { TestService } from '../harness.ts'
import {
  addCommand,
  addGroup,
  addPartnerUser,
  addUser,
  buildWorld,
  type Org,
  tokenFor,
  type World,
} from '../world.ts'
import { type Records, unknownRecords } from './calls.ts'

/** A caller without access to the victim's records. */
export type Stranger = {
  name: string
  token(): Promise<string | undefined>
  /** Makes the next token a new one, as the last call may have ended the session. */
  renew(): void
  own: Records
  /** Kinds of the victim's records that the stranger cannot access. */
  foreign: readonly Resource[]
  /** Texts that the stranger must never see. */
  hidden: readonly string[]
}

export type Stage = { service: TestService; world: World; victim: Records; strangers: readonly Stranger[] }

function kept(make: () => Promise<string>): Pick<Stranger, 'token' | 'renew'> {
  let known: Promise<string> | undefined
  return {
    token: () => {
      known ??= make()
      return known
    },
    renew: () => {
      known = undefined
    },
  }
}

const everyKind = Object.keys(unknownRecords()) as Resource[]
const withinTenant = everyKind.filter((kind) => kind !== 'partner')
const withinGroup: readonly Resource[] = ['device', 'device_command', 'device_group', 'agent', 'alert']
const withinSite: readonly Resource[] = ['site', 'enrollment_key', ...withinGroup]

export const userToken = async (
  service: TestService,
  name: string,
  context: SessionContext,
  options: { mfa?: boolean } = {},
): Promise<string> => tokenFor(service, await userIdOf(service, name), context, options)

export async function userIdOf(service: TestService, name: string): Promise<string> {
  return (await findUserByEmail(service.storage.read, `${name}@example.com`))!.id
}

/** The records of an organization of the world. */
export async function recordsOf(service: TestService, partner: string, org: Org): Promise<Records> {
  await sealPending(service.storage)
  const entries = service.storage.read
    .selectFrom('audit_logs')
    .select('id')
    .where('chain', '=', org.id)
    .orderBy('seq')
    .limit(1)
  return {
    partner,
    organization: org.id,
    site: org.siteId,
    enrollment_key: org.keyId,
    api_key: org.apiKeyId,
    device: org.deviceId,
    device_group: org.groupId,
    device_command: org.commandId,
    filter: org.filterId,
    role: org.roleId,
    script: org.scriptId,
    alert: org.alertId,
    webhook: org.webhookId,
    webhook_delivery: org.deliveryId,
    sso_provider: org.providerId,
    sso_identity: await identityOf(service, org),
    trust_policy: org.policyId,
    agent_rollout: org.rolloutId,
    configuration_apply: await applyOf(service, partner, org),
    agent: org.agentId,
    audit_log: (await entries.executeTakeFirstOrThrow()).id,
    user: await userIdOf(service, `${org.name}-admin`),
  }
}

/** An apply in an organization that has nothing to be undone. */
async function applyOf(service: TestService, partnerId: string, org: Org): Promise<string> {
  const known = service.storage.read.selectFrom('config_applies').select('id').where('org_id', '=', org.id)
  return (await known.executeTakeFirst())?.id ?? addApply(service, partnerId, org)
}

export async function addApply(
  { storage }: TestService,
  partner_id: string,
  { id: org_id, name }: Org,
): Promise<string> {
  const id = newId()
  const about = {
    characters: 1,
    set_name: `${name} set`,
    revision: null,
    rolls_back: null,
    applied_by: `${name}-admin`,
  }
  const applied_at = new Date().toISOString()
  await storage.write((tx) =>
    tx
      .insertInto('config_applies')
      .values({ id, partner_id, org_id, owner: org_id, applied_at, ...about })
      .execute(),
  )
  return id
}

/** The SSO identity of the administrator of an organization. */
async function identityOf(service: TestService, { name, providerId: provider_id }: Org): Promise<string> {
  const { read, write } = service.storage
  const email = `${name}-admin@example.com`
  const known = read.selectFrom('sso_identities').select('id').where('provider_id', '=', provider_id)
  const found = await known.where('email', '=', email).executeTakeFirst()
  if (found) return found.id
  const [id, now] = [newId(), new Date().toISOString()]
  const link = { id, provider_id, user_id: await userIdOf(service, `${name}-admin`), external_id: newId() }
  const said = { email, profile: '{}', access_token: null, refresh_token: null, token_expires_at: null }
  const times = { last_login_at: now, created_at: now, updated_at: now }
  await write((tx) =>
    tx
      .insertInto('sso_identities')
      .values({ ...link, ...said, ...times })
      .execute(),
  )
  return id
}

/** The world, with the bakery as the victim and everyone else as strangers. */
export async function buildStage(service: TestService): Promise<Stage> {
  const world = await buildWorld(service)
  const { partners, orgs } = world
  const { bakery, garage, harbor } = orgs
  await addPartnerUser(service, 'acme-garage', partners.acme, [garage.id])
  const elsewhere = await addNarrowedUser(service, world)

  const victim = await recordsOf(service, partners.acme, bakery)
  const sibling = await recordsOf(service, partners.acme, garage)
  const other = await recordsOf(service, partners.globex, harbor)
  const ofGroup = ['bakery-pc', 'bakery group', 'bakery alert']
  const ofSite = [...ofGroup, 'bakery site', 'bakery key']
  const ofOrg = [
    ...ofSite,
    '"bakery"',
    'bakery role',
    'bakery script',
    'bakery webhook',
    'bakery provider',
    'bakery policy',
    'bakery-admin',
    'bakery-viewer',
    'bakery-auditor',
  ]
  const hiddenOf = (kinds: readonly Resource[], names: string[]) => [
    ...kinds.map((kind) => victim[kind]),
    ...names,
  ]
  const acme: SessionContext = { kind: 'partner', partnerId: partners.acme }
  const none = unknownRecords()
  const user = (name: string, context: SessionContext) => kept(() => userToken(service, name, context))
  const fixed = (token: string | undefined) => ({ token: async () => token, renew: () => {} })
  const tenant = { foreign: withinTenant, hidden: hiddenOf(withinTenant, ofOrg) }
  const apart = { foreign: everyKind, hidden: hiddenOf(everyKind, ofOrg) }

  const strangers: Stranger[] = [
    {
      name: "another partner's administrator",
      ...user('globex-admin', { kind: 'partner', partnerId: partners.globex }),
      own: other,
      ...apart,
    },
    {
      name: "an administrator of another partner's organization",
      ...user('harbor-admin', { kind: 'organization', orgId: harbor.id }),
      own: other,
      ...apart,
    },
    {
      name: "a sibling organization's administrator",
      ...user('garage-admin', { kind: 'organization', orgId: garage.id }),
      own: sibling,
      ...tenant,
    },
    {
      name: 'a partner user without any organization',
      ...user('acme-none', acme),
      own: { ...none, partner: partners.acme },
      ...tenant,
    },
    {
      name: 'a partner user with another organization selected',
      ...user('acme-garage', acme),
      own: sibling,
      ...tenant,
    },
    {
      name: 'a user of the same organization narrowed to another site',
      ...user('bakery-narrow', { kind: 'organization', orgId: bakery.id }),
      own: { ...victim, ...elsewhere },
      foreign: withinSite,
      hidden: hiddenOf(withinSite, ofSite),
    },
    {
      name: 'a user of the same organization narrowed to another device group',
      ...user('bakery-grouped', { kind: 'organization', orgId: bakery.id }),
      own: { ...victim, ...elsewhere },
      foreign: withinGroup,
      hidden: hiddenOf(withinGroup, ofGroup),
    },
    { name: "another organization's agent", ...fixed(garage.agentToken), own: sibling, ...apart },
    { name: 'nobody', ...fixed(undefined), own: none, ...apart },
  ]
  return { service, world, victim, strangers }
}

/**
 * A second site and group of the bakery with their own records, an administrator restricted to that site,
 * and one restricted to that group. Their role omits the audit log, which covers the whole organization.
 */
async function addNarrowedUser(
  service: TestService,
  { orgs: { bakery }, tokens }: World,
): Promise<Partial<Records>> {
  const client = service.client(tokens.system)
  const site = await client.call(api.sites.create, { body: { orgId: bakery.id, name: 'Elsewhere' } })
  const key = await client.call(api.enrollmentKeys.create, {
    body: { orgId: bakery.id, siteId: site.id, name: 'Elsewhere', maxUsage: 1000 },
  })
  const machine = {
    osType: 'linux',
    osVersion: 'Debian 12',
    architecture: 'x64',
    agentVersion: '0.1.0',
  } as const
  const enrolled = await service.client().call(api.agents.enroll, {
    body: { enrollmentKey: key.key, hostname: 'elsewhere-pc', ...machine },
  })

  const alert = await client.call(api.alerts.create, {
    body: { orgId: bakery.id, deviceId: enrolled.deviceId, severity: 'low', title: 'Elsewhere' },
  })
  const groupId = await addGroup(service, bakery.id, 'Elsewhere', [enrolled.deviceId])

  const now = new Date().toISOString()
  const userId = await addUser(service, 'bakery-narrow')
  const groupedId = await addUser(service, 'bakery-grouped')
  const roleId = newId()
  const admin = builtInRoles.find(({ name }) => name === 'Org Admin')!
  const permissions = admin.permissions.filter((pair) => !pair.startsWith('audit:'))
  await service.storage.write(async (tx) => {
    const role = { name: 'Site Admin', scope: 'organization', org_id: bakery.id, is_system: 0, force_mfa: 0 }
    const rest = {
      partner_id: null,
      parent_role_id: null,
      description: null,
      created_at: now,
      updated_at: now,
    }
    await tx
      .insertInto('roles')
      .values({ id: roleId, ...role, ...rest })
      .execute()
    const pairs = permissions.map((permission) => ({ role_id: roleId, permission }))
    await tx.insertInto('role_permissions').values(pairs).execute()
    const membership = { orgId: bakery.id, roleId }
    await joinOrganization(tx, { ...membership, userId, siteIds: [site.id] }, now)
    const grouped = { userId: groupedId, siteIds: null, groupIds: [groupId] }
    await joinOrganization(tx, { ...membership, ...grouped }, now)
  })
  return {
    site: site.id,
    enrollment_key: key.id,
    device: enrolled.deviceId,
    device_group: groupId,
    device_command: await addCommand(service, bakery.id, enrolled.deviceId),
    agent: enrolled.agentId,
    alert: alert.id,
  }
}

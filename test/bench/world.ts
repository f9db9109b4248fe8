import { migrations } from '../../migrations/index.ts'
import { makeDevice, newAgentId } from '../../src/agents/rules.ts'
import { insertDevice } from '../../src/agents/store.ts'
import { agentTokenHash, newAgentToken } from '../../src/agents/tokens/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { organizationScope } from '../../src/core/scope.ts'
import { addSeconds } from '../../src/core/time.ts'
import { apiKeyHash, makeApiKey, newApiKey } from '../../src/credentials/api-keys/rules.ts'
import { insertApiKey } from '../../src/credentials/api-keys/store.ts'
import { makeEnrollmentKey } from '../../src/credentials/enrollment-keys/rules.ts'
import { insertEnrollmentKey } from '../../src/credentials/enrollment-keys/store.ts'
import { joinOrganization, joinPartner } from '../../src/identity/memberships.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { builtInRoles, seedRoles } from '../../src/identity/seeds.ts'
import { insertSession } from '../../src/identity/sessions/store.ts'
import { type AccessClaims, createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { insertUser } from '../../src/identity/store.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { type Db, openStorage } from '../../src/storage/open.ts'
import { makeOrg } from '../../src/tenancy/organizations/rules.ts'
import { makePartner } from '../../src/tenancy/partners/rules.ts'
import { makeSite } from '../../src/tenancy/sites/rules.ts'
import { insertOrg, insertPartner, insertSite, listSites } from '../../src/tenancy/store.ts'

export type Place = { dataDir: string; databaseUrl?: string }

export type World = {
  orgId: string
  /** Access tokens with a verified factor, good for a quarter of an hour. */
  tokens: { orgAdmin: string; partnerAdmin: string }
  /** Another token for the administrator of the organization. */
  renewed(): Promise<string>
  agents: { id: string; token: string }[]
  /** Someone who signs in with `password` and no factor. */
  email: string
  /** API keys of the organization, each with the highest limit there is. */
  apiKeys: string[]
}

export const password = 'correct horse battery staple'

export const secrets = {
  JWT_SECRET: '7eEAZOvME76TOrtm6JlH7pObatRC2PMRcwda1jcXXK8=',
  APP_ENCRYPTION_KEY: 'M4413wO882TBaU6Mexd91/9ysDgJ8LyKyFhYhKQ59R4=',
  ENROLLMENT_KEY_PEPPER: 'Gp/wpGx+x/Ko68nKREZT5oDjFKQbaMKbkKw9rmMdBD0=',
  MFA_RECOVERY_CODE_PEPPER: 'DP0hOFidKfxLcGO2admxzwgouK1+298ZW7YDWpYX8x4=',
  AUDIT_SIGNING_KEY: 'oWgjqvU1PzKXyb9cN6uD0mH4tA3sRe7lZ2nFi8kVxCQ=',
}

const rows = 20
/** Enough that their limits outlast the load. */
const keys = 64

/** A partner of 20 organizations, one of them with 20 sites and the machines, and an administrator of each. */
export async function buildWorld(place: Place, machines = 200): Promise<World> {
  const storage = await openStorage(place)
  try {
    await migrate(storage, migrations)
    return await storage.write(async (tx) => fill(tx, machines, new Date().toISOString()))
  } finally {
    await storage.close()
  }
}

async function fill(tx: Db, machines: number, now: string): Promise<World> {
  await seedRoles(tx, now)
  const made = () => ({ id: newId(), now })
  const partner = makePartner(
    { name: 'Acme', slug: 'acme', type: 'msp', plan: 'pro', ...noCaps, billingEmail: null },
    made(),
  )
  await insertPartner(tx, partner)
  const orgIds: string[] = []
  for (let n = 1; n <= rows; n++) {
    const org = makeOrg(
      { name: `Organization ${n}`, slug: `organization-${n}`, ...orgDefaults },
      partner.id,
      made(),
    )
    await insertOrg(tx, org)
    orgIds.push(org.id)
  }
  const orgId = orgIds[0]!
  for (let n = 1; n <= rows; n++) {
    await insertSite(tx, makeSite({ orgId, name: `Site ${n}`, ...siteDefaults }, made()))
  }
  const siteId = (await listSites(tx, organizationScope(orgId), { orgId, page: 1, limit: 1 })).data[0]!.id
  const partnerAdmin = await addUser(tx, 'partner', now)
  await joinPartner(
    tx,
    { partnerId: partner.id, userId: partnerAdmin, roleId: role('Partner Admin'), orgs: 'all' },
    now,
  )
  const orgAdmin = await addUser(tx, 'organization', now)
  await joinOrganization(tx, { orgId, userId: orgAdmin, roleId: role('Org Admin'), siteIds: null }, now)
  const ofOrg = await claimsOf(tx, orgAdmin, { kind: 'organization', orgId }, now)
  return {
    orgId,
    tokens: {
      orgAdmin: await signed(ofOrg),
      partnerAdmin: await tokenOf(tx, partnerAdmin, { kind: 'partner', partnerId: partner.id }, now),
    },
    renewed: () => signed(ofOrg),
    email: await addViewer(tx, orgId, now),
    agents: await addMachines(tx, machines, { orgId, siteId, by: orgAdmin, now }),
    apiKeys: await addKeys(tx, { orgId, by: orgAdmin, now }),
  }
}

export const noCaps = { maxOrganizations: null, maxDevices: null }
export const orgDefaults = {
  type: 'customer',
  status: 'active',
  maxDevices: 500,
  contractStart: '2026-01-01T00:00:00.000Z',
  contractEnd: null,
  settings: { region: 'eu', tier: 2 },
} as const
const siteDefaults = {
  timezone: 'Europe/Paris',
  address: { street: '12 Main Street', city: 'Paris', postalCode: '75001', country: 'FR' },
  contact: { name: 'Reception', phone: '+33 1 23 45 67 89' },
  settings: {},
}

export const role = (name: string): string => builtInRoles.find((one) => one.name === name)!.id

export async function addUser(tx: Db, name: string, now: string): Promise<string> {
  const id = newId()
  await insertUser(tx, { id, email: `${name}@example.com`, name, passwordHash: null }, now)
  // Enrolled, so that a Force MFA role lets them in.
  await tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', id).execute()
  return id
}

/** Another partner with an organization, and its machines: neighbors of those that `buildWorld` makes. */
export async function addNeighbors(tx: Db, machines: number, now: string): Promise<World['agents']> {
  const made = () => ({ id: newId(), now })
  const named = { name: 'Globex', slug: 'globex' }
  const partner = makePartner({ ...named, type: 'msp', plan: 'pro', ...noCaps, billingEmail: null }, made())
  await insertPartner(tx, partner)
  const org = makeOrg({ ...named, ...orgDefaults }, partner.id, made())
  await insertOrg(tx, org)
  const site = makeSite({ orgId: org.id, name: 'Site', ...siteDefaults }, made())
  await insertSite(tx, site)
  return addMachines(tx, machines, { orgId: org.id, siteId: site.id, by: newId(), now })
}

/** Access tokens of as many more administrators of an organization. */
export async function addAdmins(tx: Db, count: number, orgId: string, now: string): Promise<string[]> {
  const tokens: string[] = []
  for (let n = 1; n <= count; n++) {
    const userId = await addUser(tx, `admin-${n}`, now)
    await joinOrganization(tx, { orgId, userId, roleId: role('Org Admin'), siteIds: null }, now)
    tokens.push(await tokenOf(tx, userId, { kind: 'organization', orgId }, now))
  }
  return tokens
}

async function addViewer(tx: Db, orgId: string, now: string): Promise<string> {
  const id = newId()
  const email = 'viewer@example.com'
  await insertUser(tx, { id, email, name: 'Viewer', passwordHash: await hashPassword(password) }, now)
  await joinOrganization(tx, { orgId, userId: id, roleId: role('Org Viewer'), siteIds: null }, now)
  return email
}

export async function tokenOf(tx: Db, userId: string, context: SessionContext, now: string): Promise<string> {
  return signed(await claimsOf(tx, userId, context, now))
}

export async function claimsOf(
  tx: Db,
  userId: string,
  context: SessionContext,
  now: string,
): Promise<AccessClaims> {
  const id = newId()
  const session = { id, userId, context, mfa: true, tokenHash: id, expiresAt: addSeconds(now, 24 * 3600) }
  await insertSession(tx, session, now)
  return { userId, sessionId: id, context, authEpoch: 1, mfaEpoch: 1, mfa: true }
}

/** An access token, which is good for 15 minutes. */
export const signed = (claims: AccessClaims): Promise<string> =>
  createAccessTokens(secrets.JWT_SECRET).sign(claims, new Date())

async function addKeys(
  tx: Db,
  { orgId, by, now }: { orgId: string; by: string; now: string },
): Promise<string[]> {
  const minted: string[] = []
  for (let n = 1; n <= keys; n++) {
    const key = newApiKey()
    const wanted = { orgId, name: `Key ${n}`, scopes: ['devices:read'], expiresAt: null, rateLimit: 100_000 }
    await insertApiKey(tx, makeApiKey(wanted, { id: newId(), key, by, now }), apiKeyHash(key))
    minted.push(key)
  }
  return minted
}

async function addMachines(
  tx: Db,
  machines: number,
  { orgId, siteId, by, now }: { orgId: string; siteId: string; by: string; now: string },
): Promise<World['agents']> {
  const wanted = { orgId, name: 'Everyone', maxUsage: machines, expiresAt: undefined }
  const key = makeEnrollmentKey(wanted, { id: newId(), by, now, ttlMinutes: 60 })
  await insertEnrollmentKey(tx, key, 'no key has this hash')
  const agents: World['agents'] = []
  for (let n = 1; n <= machines; n++) {
    const [agentId, token] = [newAgentId(), newAgentToken()]
    const device = makeDevice(
      {
        enrollmentKey: '',
        hostname: `machine-${n}`,
        osType: 'linux',
        osVersion: 'Debian 12',
        architecture: 'x64',
        agentVersion: '0.1.0',
        deviceRole: 'workstation',
        isVirtual: false,
        virtualizationPlatform: null,
      },
      { id: newId(), agentId, orgId, siteId, possibleReplacementOf: null, ip: '127.0.0.1', now },
    )
    const origin = { enrollment_key_id: key.id, enrollment_ip: '127.0.0.1', token_issued_at: null }
    const tokens = {
      token_hash: agentTokenHash(token),
      watchdog_token_hash: agentTokenHash(newAgentToken()),
    }
    await insertDevice(tx, device, { ...tokens, ...origin })
    agents.push({ id: agentId, token })
  }
  return agents
}

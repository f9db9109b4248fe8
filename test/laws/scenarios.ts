import { generateSync } from 'otplib'
import { expect } from 'vitest'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import type { RolloutStatus } from '../../src/agents/rollouts/contract.ts'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { devicePublicKey, newDeviceKey, signProof } from '../../src/core/device-key.ts'
import { type Endpoint, entriesOf, isMutation } from '../../src/core/endpoint.ts'
import { zeroId } from '../../src/core/ids.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds, type Clock } from '../../src/core/time.ts'
import { joinOrganization } from '../../src/identity/memberships.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { saveReset } from '../../src/identity/passwords/store.ts'
import { insertRegistration } from '../../src/identity/registration/store.ts'
import type { SessionContext } from '../../src/identity/rules.ts'
import { newToken, tokenHash } from '../../src/identity/sessions/tokens.ts'
import { markEmailProved } from '../../src/identity/store.ts'
import { insertExchange } from '../../src/sso/sign-in/store.ts'
import { insertDeadLetter } from '../../src/storage/dead-letters.ts'
import { fakeReleases } from '../agents/fake-releases.ts'
import { addPlace, addRelease, addRollout } from '../agents/rollouts/records.ts'
import { signedRelease } from '../agents/signed-release.ts'
import { adminEmail, adminPassword, type TestService, testSecrets } from '../harness.ts'
import { RawAgent } from '../live/raw-agent.ts'
import { ciIssuer } from '../trust/issuer.ts'
import {
  addCommand,
  addOrg,
  addOrgUser,
  addPartnerUser,
  addProvider,
  type Org,
  roleOf,
  tokenFor,
  type World,
} from '../world.ts'
import { callOf, type Input, type Records } from './calls.ts'
import { idsOf } from './fields.ts'
import { addApply, recordsOf, userIdOf } from './fixture.ts'

export type Reply = Record<string, unknown>

/** A call that succeeds, and its expected effects. */
export type Scenario = {
  input: Input
  token?: string | undefined
  actor: {
    type: 'user' | 'agent' | 'api_key'
    id: string | ((reply: Reply) => unknown)
    email: string | null
  }
  orgId: string | null | ((reply: Reply) => unknown)
  resourceId: (reply: Reply) => unknown
}

/** The tools to build scenarios. Records that a scenario changes are created for it. */
export type ScenarioTools = {
  service: TestService
  world: World
  clock: Clock
  /** A new organization of acme, with a record of each kind and an administrator. */
  fresh(): Promise<Org>
  /** The next unused number. */
  serial(): number
}

export function scenarioTools(service: TestService, world: World, clock: Clock): ScenarioTools {
  let last = 0
  const serial = () => {
    last += 1
    return last
  }
  const fresh = async () => {
    const org = await addOrg(service, world.tokens.system, world.partners.acme, `fresh-${serial()}`)
    await addOrgUser(service, `${org.name}-admin`, org.id)
    return org
  }
  return { service, world, clock, fresh, serial }
}

/** The scenario of an entry: a custom one, or the system administrator calling it with new records. */
export async function scenarioOf(name: string, entry: Endpoint, hand: ScenarioTools): Promise<Scenario> {
  const own = scenarios[name]
  if (own) return own(hand)
  if (isMutation(entry) && entry.access.who !== 'user') throw new Error(`${name} needs a scenario of its own`)
  const { service, world, fresh, serial } = hand
  const org = await fresh()
  const records = await recordsOf(service, world.partners.acme, org)
  const input = callOf(entry, records, { all: true })
  const body = input.body as { slug?: string } | undefined
  if (body?.slug !== undefined) body.slug += `-${serial()}`
  const bound = idsOf(entry).some(({ resource }) => resource !== 'partner' && resource !== 'user')
  const { id } = input.params
  return {
    input,
    token: world.tokens.system,
    actor: { type: 'user', id: await userIdOf(service, 'admin'), email: adminEmail },
    orgId: name in orgOf ? orgOf[name]! : bound ? org.id : null,
    resourceId: (reply) => reply.id ?? id ?? (ofChain.includes(name) ? org.id : null),
  }
}

/** Their resource is the audit log of the organization. */
const ofChain = ['auditRetention.change', 'auditRetention.hold', 'auditRetention.run']

/** The chain of the audit entry if it is not that of the organization of the records. */
const orgOf: Record<string, Scenario['orgId']> = {
  'orgs.create': ({ id }) => id,
}

/** A partner used by no other scenario, and its administrator. */
async function ownPartner({ service, world, serial }: ScenarioTools) {
  const slug = `partner-${serial()}`
  const system = service.client(world.tokens.system)
  const { id } = await system.call(api.partners.create, { body: { name: slug, slug } })
  const name = `${slug}-admin`
  const token = await addPartnerUser(service, name, id, 'all')
  const own: Scenario['actor'] = {
    type: 'user',
    id: await userIdOf(service, name),
    email: `${name}@example.com`,
  }
  const admin: Scenario['actor'] = { type: 'user', id: await userIdOf(service, 'admin'), email: adminEmail }
  const about = { orgId: null, resourceId: () => id }
  return {
    id,
    byItself: { ...about, token, actor: own },
    bySystem: { ...about, token: world.tokens.system, actor: admin },
  }
}

const entryNamed = (name: string): Endpoint => entriesOf(api).find((one) => one.name === name)!.entry

const asked = (name: string, body: Record<string, unknown>, params: Record<string, unknown> = {}): Input => ({
  ...callOf(entryNamed(name), {} as Records),
  params,
  body: { ...entryNamed(name).example, ...body },
})

/** Hashed once, as hashing is slow on purpose. */
let hashed: Promise<string> | undefined

/** A user with a password and no second factor, in a new organization. */
export async function addPerson({ service, fresh, serial }: ScenarioTools) {
  const name = `person-${serial()}`
  const org = await fresh()
  await addOrgUser(service, name, org.id, { role: 'Org Viewer' })
  const id = await userIdOf(service, name)
  hashed ??= hashPassword(adminPassword)
  const passwordHash = await hashed
  await service.storage.write((tx) =>
    tx
      .updateTable('users')
      .set({ mfa_method: null, password_hash: passwordHash })
      .where('id', '=', id)
      .execute(),
  )
  const context: SessionContext = { kind: 'organization', orgId: org.id }
  const email = `${name}@example.com`
  const actor: Scenario['actor'] = { type: 'user', id, email }
  return { org, email, id, context, about: { actor, orgId: org.id, resourceId: () => id } }
}

/** The same with an authenticator, and its recovery codes. */
export async function addPersonWithFactor(hand: ScenarioTools) {
  const person = await addPerson(hand)
  const { service, clock } = hand
  const token = await tokenFor(service, person.id, person.context, { mfa: false, now: new Date(clock()) })
  const { secret, recoveryCodes } = await service.client(token).call(api.auth.setupMfa)
  const enable = () =>
    service.client(token).call(api.auth.enableMfa, { body: { code: codeAt(secret, clock()) } })
  return { ...person, token, secret, recoveryCodes, enable }
}

/** A user without a second factor who has requested a code for their phone. */
async function addPersonWithPhone(hand: ScenarioTools) {
  const person = await addPerson(hand)
  const { service, clock, serial } = hand
  const token = await tokenFor(service, person.id, person.context, { mfa: false, now: new Date(clock()) })
  const client = service.client(token)
  const phoneNumber = `+4915${String(serial()).padStart(8, '0')}`
  /** The code sent to the phone. */
  const sent = async (): Promise<string> => {
    await client.call(api.auth.verifyPhone, { body: { phoneNumber } })
    const message = (await readOutboxMessages(service.dataDir)).find(({ to }) => to === phoneNumber)
    return /\d{6}/.exec(message?.text ?? '')?.[0] ?? ''
  }
  const confirm = async () =>
    client.call(api.auth.confirmPhone, { body: { phoneNumber, code: await sent() } })
  return { ...person, token, phoneNumber, sent, confirm }
}

/** A terminal that waits to be signed in, and the token of a person who may approve it. */
async function startedByTerminal(hand: ScenarioTools) {
  const { service, clock } = hand
  const { id, context, about } = await addPerson(hand)
  const approver = await tokenFor(service, id, context, { mfa: false, now: new Date(clock()) })
  const started = await service.client().call(api.auth.startDeviceAuthorization, { body: {} })
  return { approver, ...started, about }
}

/** A registration with a new address. */
function newcomer({ serial }: ScenarioTools, name: string, body: Record<string, unknown>): Scenario {
  const email = `newcomer-${serial()}@example.com`
  return {
    input: asked(name, { ...body, email }),
    actor: { type: 'user', id: () => expect.any(String), email },
    orgId: null,
    resourceId: () => expect.any(String),
  }
}

const codeAt = (secret: string, now: string): string =>
  generateSync({ secret, epoch: Math.floor(Date.parse(now) / 1000) })

/** The fields that an identity provider needs for sign-ins. */
const complete = {
  issuer: 'https://idp.example.com',
  authorizationUrl: 'https://idp.example.com/authorize',
  tokenUrl: 'https://idp.example.com/token',
  userInfoUrl: 'https://idp.example.com/userinfo',
  jwksUrl: 'https://idp.example.com/keys',
}

const scenarios: Record<string, (hand: ScenarioTools) => Promise<Scenario>> = {
  async 'events.create'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const token = hand.world.tokens.system
    return { input: asked('events.create', { orgId: org.id }), ...about, token, resourceId: () => org.id }
  },
  async 'webhookDeliveries.retry'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const params = { id: org.webhookId, deliveryId: org.deliveryId }
    const input = asked('webhookDeliveries.retry', {}, params)
    return { input: { ...input, body: undefined }, ...about, resourceId: () => org.deliveryId }
  },
  async 'ssoTrials.begin'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const id = await addProvider(hand.service, org.id, complete)
    return { input: asked('ssoTrials.begin', {}, { id }), ...about, resourceId: () => id }
  },
  async 'ssoTrials.show'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const id = await addProvider(hand.service, org.id, complete)
    const system = hand.service.client(hand.world.tokens.system)
    const { id: testId } = await system.call(api.ssoTrials.begin, { params: { id } })
    const input = { params: { id, testId }, query: {}, body: undefined }
    return { input, ...about, resourceId: () => id }
  },
  async 'ssoIdentities.unlink'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const records = await recordsOf(hand.service, hand.world.partners.acme, org)
    const input = callOf(entryNamed('ssoIdentities.unlink'), records)
    return { input, ...about, resourceId: () => records.sso_identity }
  },
  async 'ssoSignIn.exchange'(hand) {
    const { service, clock } = hand
    const { org, id: userId, about } = await addPerson(hand)
    const providerId = await addProvider(service, org.id, { ...complete, status: 'active' })
    const [code, now] = [newToken(), clock()]
    const exchange = { codeHash: tokenHash(code), providerId, userId, mfa: false, challenge: null }
    const times = { createdAt: now, expiresAt: addSeconds(now, 60) }
    await service.storage.write((tx) => insertExchange(tx, { ...exchange, ...times }))
    return { input: asked('ssoSignIn.exchange', { code }), ...about }
  },
  'ssoProviders.create': (hand) => ofProvider(hand, 'ssoProviders.create'),
  'ssoProviders.setStatus': (hand) => ofProvider(hand, 'ssoProviders.setStatus'),
  'trustPolicies.create': (hand) => ofProvider(hand, 'trustPolicies.create'),
  // A CI job with an unused token.
  async 'trust.exchange'({ clock, fresh }) {
    const { id: orgId, policyId } = await fresh()
    const token = await ciIssuer.token({ aud: 'svc', sub: `job-of-${orgId}` }, clock())
    return {
      input: asked('trust.exchange', { token, orgId, policyId }),
      actor: { type: 'api_key', id: policyId, email: null },
      orgId,
      resourceId: () => policyId,
    }
  },
  async 'auth.login'(hand) {
    const { email, about } = await addPerson(hand)
    return { input: asked('auth.login', { email, password: adminPassword }), ...about }
  },
  async 'auth.logout'(hand) {
    const { id, context, about } = await addPerson(hand)
    const token = await tokenFor(hand.service, id, context, { now: new Date(hand.clock()) })
    return { input: { params: {}, query: {}, body: undefined }, token, ...about }
  },
  async 'auth.refresh'(hand) {
    const { email, about } = await addPerson(hand)
    const login = { body: { email, password: adminPassword } }
    const { tokens } = await hand.service.client().call(api.auth.login, login)
    return { input: asked('auth.refresh', { refreshToken: tokens?.refreshToken }), ...about }
  },
  async 'auth.setupMfa'(hand) {
    const { id, context, about } = await addPerson(hand)
    const token = await tokenFor(hand.service, id, context, { mfa: false, now: new Date(hand.clock()) })
    return { input: { params: {}, query: {}, body: undefined }, token, ...about }
  },
  async 'auth.enableMfa'(hand) {
    const { token, secret, about } = await addPersonWithFactor(hand)
    return { input: asked('auth.enableMfa', { code: codeAt(secret, hand.clock()) }), token, ...about }
  },
  async 'auth.switch'(hand) {
    const { id, context, about } = await addPerson(hand)
    const token = await tokenFor(hand.service, id, context, { mfa: false, now: new Date(hand.clock()) })
    return { input: asked('auth.switch', {}), token, ...about }
  },
  async 'auth.startDeviceAuthorization'(hand) {
    const { about } = await addPerson(hand)
    return { input: asked('auth.startDeviceAuthorization', { client: 'svc on web-1' }), ...about }
  },
  async 'auth.previewDeviceAuthorization'(hand) {
    const { approver, userCode, about } = await startedByTerminal(hand)
    return { input: asked('auth.previewDeviceAuthorization', { userCode }), token: approver, ...about }
  },
  async 'auth.decideDeviceAuthorization'(hand) {
    const { approver, userCode, about } = await startedByTerminal(hand)
    const body = { userCode, decision: 'approve' }
    return { input: asked('auth.decideDeviceAuthorization', body), token: approver, ...about }
  },
  async 'auth.pollDeviceAuthorization'(hand) {
    const { approver, userCode, deviceCode, about } = await startedByTerminal(hand)
    const approval = { body: { userCode, decision: 'approve' as const } }
    await hand.service.client(approver).call(api.auth.decideDeviceAuthorization, approval)
    return { input: asked('auth.pollDeviceAuthorization', { deviceCode }), ...about }
  },
  async 'auth.forgotPassword'(hand) {
    // An unknown address, as a known one would get a mail and an audit entry a moment later.
    const { about } = await addPerson(hand)
    return { input: asked('auth.forgotPassword', { email: `nobody-${hand.serial()}@example.com` }), ...about }
  },
  async 'auth.resetPassword'(hand) {
    const { id, about } = await addPerson(hand)
    const token = newToken()
    const expiresAt = addSeconds(hand.clock(), 60)
    await hand.service.storage.write((tx) =>
      saveReset(tx, { userId: id, tokenHash: tokenHash(token), expiresAt }),
    )
    const password = 'seven purple elephants'
    return { input: asked('auth.resetPassword', { token, password }), ...about, orgId: null }
  },
  async 'auth.changePassword'(hand) {
    const { id, context, about } = await addPerson(hand)
    const token = await tokenFor(hand.service, id, context, { mfa: false, now: new Date(hand.clock()) })
    const newPassword = 'seven purple elephants'
    const body = { currentPassword: adminPassword, newPassword }
    return { input: asked('auth.changePassword', body), token, ...about }
  },
  async 'auth.disableMfa'(hand) {
    const { enable, recoveryCodes, about } = await addPersonWithFactor(hand)
    const { tokens } = await enable()
    return {
      input: asked('auth.disableMfa', { code: recoveryCodes[0] }),
      token: tokens.accessToken,
      ...about,
    }
  },
  async 'auth.newRecoveryCodes'(hand) {
    const { enable, about } = await addPersonWithFactor(hand)
    const { tokens } = await enable()
    return { input: asked('auth.newRecoveryCodes', {}), token: tokens.accessToken, ...about }
  },
  async 'auth.verifyPhone'(hand) {
    const { token, phoneNumber, about } = await addPersonWithPhone(hand)
    return { input: asked('auth.verifyPhone', { phoneNumber }), token, ...about }
  },
  async 'auth.confirmPhone'(hand) {
    const { token, phoneNumber, sent, about } = await addPersonWithPhone(hand)
    const code = await sent()
    return { input: asked('auth.confirmPhone', { phoneNumber, code }), token, ...about }
  },
  async 'auth.enableSms'(hand) {
    const { token, confirm, about } = await addPersonWithPhone(hand)
    await confirm()
    return { input: asked('auth.enableSms', {}), token, ...about }
  },
  async 'auth.sendSms'(hand) {
    const { email, token, confirm, about } = await addPersonWithPhone(hand)
    await confirm()
    await hand.service.client(token).call(api.auth.enableSms)
    const login = { body: { email, password: adminPassword } }
    const { tempToken } = await hand.service.client().call(api.auth.login, login)
    return { input: asked('auth.sendSms', { tempToken }), ...about }
  },
  'auth.register': async (hand) => newcomer(hand, 'auth.register', {}),
  'auth.registerPartner': async (hand) =>
    newcomer(hand, 'auth.registerPartner', { companyName: `Company ${hand.serial()}` }),
  async 'auth.verifyEmail'(hand) {
    const token = newToken()
    const hash = tokenHash(token)
    const { service, clock, serial } = hand
    const wanted = {
      email: `waiting-${serial()}@example.com`,
      name: 'Waiting',
      passwordHash: 'x',
      companyName: null,
    }
    const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
    const content = cipher.encrypt(JSON.stringify(wanted), `registrations.content.${hash}`)
    await service.storage.write((tx) =>
      insertRegistration(tx, { tokenHash: hash, content, expiresAt: addSeconds(clock(), 3600) }),
    )
    return {
      ...newcomer(hand, 'auth.register', {}),
      input: asked('auth.verifyEmail', { token }),
      actor: { type: 'user', id: () => expect.any(String), email: wanted.email },
    }
  },
  async 'auth.verifyMfa'(hand) {
    const { email, enable, recoveryCodes, about } = await addPersonWithFactor(hand)
    await enable()
    const login = { body: { email, password: adminPassword } }
    const { tempToken } = await hand.service.client().call(api.auth.login, login)
    return { input: asked('auth.verifyMfa', { tempToken, code: recoveryCodes[0] }), ...about }
  },
  // Any text is a valid path, but not of a route.
  async 'permissions.explain'(hand) {
    const { id: orgId, name, roleId } = await hand.fresh()
    const userId = await userIdOf(hand.service, `${name}-admin`)
    const query = { method: 'GET', path: '/devices', userId, roleId, orgId }
    const input: Input = { params: {}, query, body: undefined }
    const actor: Scenario['actor'] = {
      type: 'user',
      id: await userIdOf(hand.service, 'admin'),
      email: adminEmail,
    }
    return { input, token: hand.world.tokens.system, actor, orgId, resourceId: () => undefined }
  },
  // A proof of an entry or of growth, not both, which setting all fields would request.
  async 'auditCheckpoints.proof'(hand) {
    const { id: orgId } = await hand.fresh()
    const actor: Scenario['actor'] = {
      type: 'user',
      id: await userIdOf(hand.service, 'admin'),
      email: adminEmail,
    }
    const input: Input = { params: {}, query: { since: '1', orgId }, body: undefined }
    return { input, token: hand.world.tokens.system, actor, orgId, resourceId: () => null }
  },
  // A role cannot be its own parent, which the generic call would request.
  async 'roles.update'(hand) {
    const { id: orgId, roleId } = await hand.fresh()
    const actor: Scenario['actor'] = {
      type: 'user',
      id: await userIdOf(hand.service, 'admin'),
      email: adminEmail,
    }
    const input = asked('roles.update', {}, { id: roleId })
    return { input, token: hand.world.tokens.system, actor, orgId, resourceId: () => roleId }
  },
  // Refused without the version of a plan; what is applied changes nothing, so that it has one entry of its own.
  async 'configuration.apply'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const query = { orgId: org.id }
    const { body } = asked('configuration.plan', {}) as { body: { document: Record<string, never[]> } }
    const { version } = await hand.service
      .client(hand.world.tokens.system)
      .call(api.configuration.plan, { query, body })
    const input = { ...asked('configuration.apply', { version }), query }
    return { input, ...about, resourceId: ({ applyId }) => applyId }
  },
  // An apply that has nothing to be undone any more, so that its rollback has one entry of its own.
  async 'configurationApplies.rollback'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const system = hand.service.client(hand.world.tokens.system)
    const query = { orgId: org.id }
    // Another one, whose values are kept.
    const document = {
      scripts: [{ name: 'kept', osTypes: ['linux'], language: 'bash', content: 'true' }],
    }
    const planned = await system.call(api.configuration.plan, { query, body: { document } })
    await system.call(api.configuration.apply, { query, body: { document, version: planned.version } })
    const id = await addApply(hand.service, hand.world.partners.acme, org)
    const { version } = await system.call(api.configurationApplies.plan, { params: { id } })
    const input = asked('configurationApplies.rollback', { version }, { id })
    return { input, ...about, resourceId: ({ applyId }) => applyId }
  },
  async 'partners.me'(hand) {
    const { byItself } = await ownPartner(hand)
    return { input: { ...asked('partners.me', {}), body: undefined }, ...byItself }
  },
  async 'partners.changeMe'(hand) {
    const { byItself } = await ownPartner(hand)
    return { input: asked('partners.changeMe', {}), ...byItself }
  },
  async 'partners.update'(hand) {
    const { id, bySystem } = await ownPartner(hand)
    return { input: asked('partners.update', {}, { id }), ...bySystem }
  },
  async 'partners.remove'(hand) {
    const { id, bySystem } = await ownPartner(hand)
    return { input: { ...asked('partners.remove', {}, { id }), body: undefined }, ...bySystem }
  },
  async 'orgs.order'(hand) {
    const { byItself } = await ownPartner(hand)
    return { input: asked('orgs.order', {}), ...byItself }
  },
  // The group of the world has a device in it.
  async 'sites.remove'(hand) {
    const { service, world, fresh } = hand
    const { id: orgId } = await fresh()
    const { bySystem } = await ownPartner(hand)
    const body = { orgId, name: 'Empty' }
    const { id } = await service.client(world.tokens.system).call(api.sites.create, { body })
    const input = { ...asked('sites.remove', {}, { id }), body: undefined }
    return { input, ...bySystem, orgId, resourceId: () => id }
  },
  async 'agents.enroll'({ service, world, fresh }) {
    const org = await fresh()
    const { key } = await service
      .client(world.tokens.system)
      .call(api.enrollmentKeys.create, { body: { orgId: org.id, name: 'for a scenario', maxUsage: 1000 } })
    return {
      input: asked('agents.enroll', { enrollmentKey: key }),
      actor: { type: 'agent', id: ({ deviceId }) => deviceId, email: null },
      orgId: org.id,
      resourceId: ({ deviceId }) => deviceId,
    }
  },
  'deadLetters.show': settingAside,
  'deadLetters.retry': settingAside,
  'deadLetters.remove': settingAside,
  async 'agentVersions.sync'(hand) {
    const { version, about } = await releasing(hand, {})
    return { input: { params: {}, query: { version }, body: undefined }, ...about }
  },
  async 'agentVersions.promote'(hand) {
    const { version, about } = await releasing(hand, { promote: 'false' })
    return { input: asked('agentVersions.promote', { version, component: 'agent' }), ...about }
  },
  async 'agentVersions.rollback'(hand) {
    const { version, about } = await releasing(hand, { promote: 'true' })
    return { input: asked('agentVersions.rollback', { version, component: 'agent' }), ...about }
  },
  async 'agentVersions.remove'(hand) {
    const { version, about } = await releasing(hand, { promote: 'false' })
    return { input: { params: { version }, query: {}, body: undefined }, ...about }
  },
  async 'agentVersions.show'(hand) {
    const { version, about } = await releasing(hand, { promote: 'true' })
    return { input: { params: { version }, query: {}, body: undefined }, ...about }
  },
  async 'agentVersions.info'(hand) {
    const { version, about } = await releasing(hand, { promote: 'true' })
    return { input: { params: { version }, query: onLinux, body: undefined }, ...about }
  },
  async 'agentVersions.latest'(hand) {
    const { about } = await releasing(hand, { promote: 'true' })
    return { input: { params: {}, query: onLinux, body: undefined }, ...about }
  },
  async 'agentDownloads.agent'(hand) {
    const { version, about } = await releasing(hand, { promote: 'true' })
    return {
      input: { params: { os: 'linux', arch: 'amd64' }, query: { version }, body: undefined },
      ...about,
    }
  },
  async 'agentDownloads.component'(hand) {
    const { version, about } = await releasing(hand, { promote: 'true' })
    const params = { component: 'agent', os: 'darwin', arch: 'arm64' }
    return { input: { params, query: { version }, body: undefined }, ...about }
  },
  'auth.previewInvite': (hand) => invited(hand, 'auth.previewInvite'),
  'auth.acceptInvite': (hand) => invited(hand, 'auth.acceptInvite'),
  'users.invite': async (hand) => {
    const { about, org } = await administering(hand)
    const email = `invited-${hand.serial()}@example.com`
    const body = {
      email,
      orgId: org.id,
      roleId: org.roleId,
      siteIds: [org.siteId],
      deviceGroupIds: [org.groupId],
    }
    return { input: asked('users.invite', body), ...about, resourceId: ({ id }) => id }
  },
  'users.resendInvite': async (hand) => {
    const { about, org, userId } = await administering(hand)
    await hand.service.storage.write((tx) =>
      tx.updateTable('users').set({ status: 'invited' }).where('id', '=', userId).execute(),
    )
    return { input: asked('users.resendInvite', { userId, orgId: org.id }), ...about }
  },
  'users.changeMe': async (hand) => {
    const { id, context, about } = await addPerson(hand)
    const token = await tokenFor(hand.service, id, context, { now: new Date(hand.clock()) })
    return { input: asked('users.changeMe', {}), token, ...about }
  },
  'users.acceptMine': async (hand) => {
    const { id, email, context, about } = await addPerson(hand)
    const token = await tokenFor(hand.service, id, context, { now: new Date(hand.clock()) })
    const { id: orgId } = await hand.fresh()
    const invited = { acceptedBy: null, invited: { name: 'Invited', email } }
    const roleId = roleOf('Org Viewer', 'organization')
    await hand.service.storage.write(async (tx) => {
      await markEmailProved(tx, id, hand.clock())
      await joinOrganization(tx, { orgId, userId: id, roleId, siteIds: null, ...invited }, hand.clock())
    })
    return { input: asked('users.acceptMine', { orgId }), token, ...about, orgId }
  },
  'users.roles': (hand) => administered(hand, 'users.roles'),
  'users.list': (hand) => administered(hand, 'users.list'),
  'users.show': (hand) => administered(hand, 'users.show'),
  'users.change': (hand) => administered(hand, 'users.change'),
  'users.remove': (hand) => administered(hand, 'users.remove'),
  'users.assignRole': (hand) => administered(hand, 'users.assignRole', ({ roleId }) => ({ roleId })),
  'users.changeAccess': (hand) =>
    administered(hand, 'users.changeAccess', ({ siteId, groupId }) => ({
      siteIds: [siteId],
      deviceGroupIds: [groupId],
    })),
  'users.resetMfa': (hand) => administered(hand, 'users.resetMfa', () => ({}), false),
  'users.signOut': (hand) => administered(hand, 'users.signOut', () => ({}), false),
  'users.unlock': (hand) => administered(hand, 'users.unlock', () => ({}), false),
  'devices.tag': async (hand) => {
    const { deviceId, about } = await ofDevice(hand)
    return { input: asked('devices.tag', { deviceIds: [deviceId] }), ...about }
  },
  'devices.restore': (hand) => decommissioned(hand, 'devices.restore'),
  'devices.remove': (hand) => decommissioned(hand, 'devices.remove'),
  'deviceGroups.create': async (hand) => {
    const { org, about } = await inFreshOrg(hand)
    const body = { orgId: org.id, siteId: org.siteId, parentId: org.groupId }
    return { input: asked('deviceGroups.create', body), ...about, resourceId: ({ id }) => id }
  },
  'deviceGroups.update': async (hand) => {
    const { org, about } = await inFreshOrg(hand)
    const input = asked('deviceGroups.update', {}, { id: org.groupId })
    return { input, ...about, resourceId: () => org.groupId }
  },
  'deviceGroups.pin': (hand) => pinned(hand),
  'deviceGroups.unpin': (hand) => pinned(hand),
  ...Object.fromEntries(
    entriesOf(api)
      .map(({ name }) => name)
      .filter((name) => /^(liveLogs|deviceLogs|logLevels)\./.test(name))
      .map((name) => [name, (hand: ScenarioTools) => asking(hand, name)]),
  ),
  async 'agentRollouts.start'(hand) {
    const { service } = hand
    const { about } = await inFreshOrg(hand)
    const version = `7.7.${hand.serial()}`
    await addRelease(service, version)
    await addRollout(service)
    const input = asked('agentRollouts.start', { version, waves: [{ percent: 100 }] })
    return { input, ...about, orgId: null, resourceId: ({ id }) => id }
  },
  'agentRollouts.halt': (hand) => movingRollout(hand, 'agentRollouts.halt', 'running'),
  'agentRollouts.resume': (hand) => movingRollout(hand, 'agentRollouts.resume', 'halted', true),
  'agentRollouts.abort': (hand) => movingRollout(hand, 'agentRollouts.abort', 'running'),
  'agentRollouts.rollBack': (hand) => movingRollout(hand, 'agentRollouts.rollBack', 'running'),
  'agentUpdates.status': (hand) => byAgent(hand, 'agentUpdates.status'),
  async 'deviceCommands.create'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const body = { type: 'set_auto_update', payload: { enabled: false } }
    const input = asked('deviceCommands.create', body, { id: org.deviceId })
    return { input, ...about, resourceId: () => org.deviceId }
  },
  async 'deviceCommands.setAutoUpdate'(hand) {
    const { org, about } = await inFreshOrg(hand)
    const input = asked('deviceCommands.setAutoUpdate', {}, { id: org.deviceId })
    return { input, ...about, resourceId: () => org.deviceId }
  },
  'agentTokens.rotate': (hand) => byAgent(hand, 'agentTokens.rotate'),
  'agentKeys.register': (hand) => byAgent(hand, 'agentKeys.register'),
  async 'agentKeys.challenge'(hand) {
    return {
      ...(await byAgent(hand, 'agentKeys.challenge')),
      token: undefined,
      input: asked('agentKeys.challenge', {}),
    }
  },
  async 'agentKeys.recover'(hand) {
    const scenario = await byAgent(hand, 'agentKeys.recover')
    const params = scenario.input.params as { id: string }
    const privateKey = newDeviceKey()
    const body = { publicKey: devicePublicKey(privateKey) }
    const own = hand.service.client(scenario.token)
    const { serviceKey } = await own.call(api.agentKeys.register, { params, body })
    const { challenge, expiresAt } = await own.call(api.agentKeys.challenge)
    // Its tokens were recovered and used a moment ago: it is the copy of a machine.
    const before = addSeconds(expiresAt, -130)
    const deviceId = String(scenario.actor.id)
    await hand.service.storage.write(async (tx) => {
      await tx
        .updateTable('agent_keys')
        .set({ proved_at: before })
        .where('device_id', '=', deviceId)
        .execute()
      const used = { token_issued_at: before, last_seen_at: before }
      await tx.updateTable('devices').set(used).where('id', '=', deviceId).execute()
    })
    const signature = signProof({ agentId: params.id, service: serviceKey, challenge }, privateKey)
    return {
      ...scenario,
      token: undefined,
      input: { ...scenario.input, body: { challenge, serviceKey, signature } },
    }
  },
  async 'agentTokens.confirm'(hand) {
    const scenario = await byAgent(hand, 'agentTokens.confirm')
    const params = scenario.input.params as { id: string }
    const own = hand.service.client(scenario.token)
    return { ...scenario, token: (await own.call(api.agentTokens.rotate, { params })).authToken }
  },
  async 'agentCommands.result'(hand) {
    const scenario = await byAgent(hand, 'agentCommands.result')
    const { id } = scenario.input.params as { id: string }
    const orgId = scenario.orgId as string
    const deviceId = String(scenario.actor.id)
    const commandId = await addCommand(hand.service, orgId, deviceId, { isAnswered: false })
    return { ...scenario, input: { ...scenario.input, params: { id, commandId } } }
  },
  'agentCommands.list': (hand) => byAgent(hand, 'agentCommands.list'),
  'agents.config': (hand) => byAgent(hand, 'agents.config'),
  'agents.heartbeat': (hand) => byAgent(hand, 'agents.heartbeat'),
  'agents.inventory': (hand) => byAgent(hand, 'agents.inventory'),
  'diagnosticLogs.submit': (hand) => byAgent(hand, 'diagnosticLogs.submit'),
  'eventLogs.submit': (hand) => byAgent(hand, 'eventLogs.submit'),
}

export const customScenarios: readonly string[] = [...Object.keys(scenarios), ...Object.keys(orgOf)]

const onLinux = { platform: 'linux', arch: 'amd64', component: 'agent' }

/** The system administrator, and a version used by no other scenario, registered if given. */
async function releasing(
  { service, world, serial }: ScenarioTools,
  registered: { promote?: 'true' | 'false' },
) {
  const files = ['svc-agent-linux-amd64', 'svc-agent-darwin-arm64']
  const { version } = fakeReleases.publish(signedRelease(`7.0.${serial()}`, { files }))
  const token = world.tokens.system
  const query = { version, ...registered }
  if (registered.promote) {
    // An active rollout would refuse the promotion: this one replaces it.
    await addRollout(service)
    await service.client(token).call(api.agentVersions.sync, { query })
  }
  const actor: Scenario['actor'] = { type: 'user', id: await userIdOf(service, 'admin'), email: adminEmail }
  return { version, about: { token, actor, orgId: null, resourceId: () => zeroId } }
}

/** A dead-lettered event that its webhook did not receive. */
async function settingAside({ service, world, clock, fresh, serial }: ScenarioTools): Promise<Scenario> {
  const { id: orgId, webhookId } = await fresh()
  const event = { id: newId(), type: 'device.offline', created_at: clock(), data: '{}' }
  const entry = JSON.stringify({ webhookId, ...event })
  // A text that does not occur elsewhere, and that is the same on both databases.
  const number = 1_000_000 + serial()
  await service.storage.write(async (tx) => {
    const id = await insertDeadLetter(tx, {
      source: 'events',
      orgId,
      entry,
      reason: 'It was refused',
      now: clock(),
    })
    await tx.updateTable('set_aside').set({ id: number }).where('id', '=', id!).execute()
  })
  const actor: Scenario['actor'] = { type: 'user', id: await userIdOf(service, 'admin'), email: adminEmail }
  const about = { token: world.tokens.system, actor, orgId: null, resourceId: () => zeroId }
  return { input: { params: { number: String(number) }, query: {}, body: undefined }, ...about }
}

/** The system administrator, and a user to administer. */
async function administering({ service, world, fresh, serial }: ScenarioTools) {
  const org = await fresh()
  const name = `managed-${serial()}`
  await addOrgUser(service, name, org.id, { role: 'Org Viewer' })
  const userId = await userIdOf(service, name)
  const actor: Scenario['actor'] = { type: 'user', id: await userIdOf(service, 'admin'), email: adminEmail }
  const about = { token: world.tokens.system, actor, orgId: org.id, resourceId: () => userId }
  return { org, userId, about }
}

async function administered(
  hand: ScenarioTools,
  name: string,
  body: (org: Org) => Record<string, unknown> = () => ({}),
  inTenant = true,
): Promise<Scenario> {
  const { org, userId, about } = await administering(hand)
  const ofUser = entryNamed(name).params !== undefined
  const input = asked(name, body(org), ofUser ? { id: userId } : {})
  const query = inTenant ? { orgId: org.id } : {}
  return { input: { ...input, query, ...(!entryNamed(name).body && { body: undefined }) }, ...about }
}

/** An invited user, with the invitation link. */
async function invited(hand: ScenarioTools, name: string): Promise<Scenario> {
  const { service, world, fresh, serial } = hand
  const org = await fresh()
  const email = `invited-${serial()}@example.com`
  const sent = await service.client(world.tokens.system).call(api.users.invite, {
    body: { email, name: 'Invited', orgId: org.id, roleId: org.roleId },
  })
  const token = new URL(sent.inviteUrl!).searchParams.get('token')
  const body = name === 'auth.acceptInvite' ? { token, password: `${adminPassword} ${email}` } : { token }
  return {
    input: { ...asked(name, {}), body },
    actor: { type: 'user', id: sent.id, email },
    orgId: org.id,
    resourceId: () => sent.id,
  }
}

/** The system administrator, and a device. */
async function ofDevice(hand: ScenarioTools) {
  const { org, about } = await inFreshOrg(hand)
  return { deviceId: org.deviceId, about: { ...about, resourceId: () => org.deviceId } }
}

/** The system administrator, and a provider or trust policy of an organization; the reply has it under `data`. */
async function ofProvider(hand: ScenarioTools, name: string): Promise<Scenario> {
  const { org, about } = await inFreshOrg(hand)
  const records = await recordsOf(hand.service, hand.world.partners.acme, org)
  const input = callOf(entryNamed(name), records, { all: true })
  return { input, ...about, resourceId: ({ data }) => (data as Reply).id }
}

async function decommissioned(hand: ScenarioTools, name: string): Promise<Scenario> {
  const { deviceId: id, about } = await ofDevice(hand)
  await hand.service.client(about.token).call(api.devices.decommission, { params: { id } })
  return { input: { ...asked(name, {}, { id }), body: undefined }, ...about }
}

/** The system administrator, in a new organization. */
async function inFreshOrg({ service, world, fresh }: ScenarioTools) {
  const org = await fresh()
  const actor: Scenario['actor'] = { type: 'user', id: await userIdOf(service, 'admin'), email: adminEmail }
  return { org, about: { token: world.tokens.system, actor, orgId: org.id } }
}

/** A dynamic group with a device that is pinned to it. */
async function pinned(hand: ScenarioTools): Promise<Scenario> {
  const { org, about } = await inFreshOrg(hand)
  const client = hand.service.client(about.token)
  const { id } = await client.call(api.deviceGroups.create, {
    body: { orgId: org.id, name: 'Found', type: 'dynamic', filterId: org.filterId },
  })
  const params = { id, deviceId: org.deviceId }
  await client.call(api.deviceGroups.pin, { params })
  return { input: { params, query: {}, body: undefined }, ...about, resourceId: () => id }
}

/** The system administrator, and a rollout in the given state. */
async function movingRollout(
  hand: ScenarioTools,
  name: string,
  status: RolloutStatus,
  isHalfDone = false,
): Promise<Scenario> {
  const { org, about } = await inFreshOrg(hand)
  const id = await addRollout(hand.service, status)
  // A wave in which no device is left would be halted by the background, at any moment.
  await addPlace(hand.service, id, org, isHalfDone ? 'updated' : 'offered')
  const input = { ...asked(name, {}, { id }), body: undefined }
  return { input, ...about, orgId: null, resourceId: () => id }
}

/** A device whose agent is connected, and has one log with one entry. */
async function asking(hand: ScenarioTools, name: string): Promise<Scenario> {
  const { org, about } = await inFreshOrg(hand)
  const records = await recordsOf(hand.service, hand.world.partners.acme, org)
  const input = callOf(entryNamed(name), records, { all: true })
  const [log, recordId] = ['System', 4711]
  if ('name' in input.params) input.params.name = log
  if ('recordId' in input.params) input.params.recordId = String(recordId)
  const event = { recordId, level: 'Info', timeCreated: '2026-03-01T12:00:00Z', source: 'a', message: 'm' }
  await RawAgent.connect(hand.service.url, org, ({ type, payload }) => {
    const none = (code: string) => ({ status: 'failed', error: '', code })
    if (type === 'event_logs_list') return { result: { logs: [{ name: log }] } }
    if (type === 'set_log_level') return { result: {} }
    if (payload.logName !== log) return none('log_not_found')
    if (type === 'event_logs_query') return { result: { events: [event], total: 1 } }
    return payload.recordId === recordId ? { result: event } : none('record_not_found')
  })
  return { input, ...about, resourceId: () => org.deviceId }
}

async function byAgent({ fresh }: ScenarioTools, name: string): Promise<Scenario> {
  const { id: orgId, agentId, agentToken: token, deviceId } = await fresh()
  const actor: Scenario['actor'] = { type: 'agent', id: deviceId, email: null }
  const input = asked(name, {}, { id: agentId })
  const whole = entryNamed(name).body ? input : { ...input, body: undefined }
  return { input: whole, token, actor, orgId, resourceId: () => deviceId }
}

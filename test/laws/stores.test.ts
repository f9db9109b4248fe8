import { describe, expect, it } from 'vitest'
import { getCommand, listCommands } from '../../src/agents/commands/store.ts'
import { changeAlert, getAlert, listAlerts } from '../../src/alerts/store.ts'
import { api } from '../../src/api.ts'
import { countArchives } from '../../src/audit/retention/archiving.ts'
import { changeHold, changePolicy, getPolicy } from '../../src/audit/retention/store.ts'
import { findHead, getEntry, listHeads } from '../../src/audit/store.ts'
import { changesOf, getApply, listApplies } from '../../src/configuration/history/store.ts'
import { findSet, listOwned, listSets } from '../../src/configuration/store.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { newId } from '../../src/core/new-id.ts'
import { organizationScope, type Scope, systemScope } from '../../src/core/scope.ts'
import {
  changeApiKey,
  getApiKey,
  replaceApiKey,
  revokeApiKey,
  revokeApiKeys,
} from '../../src/credentials/api-keys/store.ts'
import {
  expireEnrollmentKeys,
  getEnrollmentKey,
  listEnrolledDevices,
  removeEnrollmentKey,
  replaceEnrollmentKey,
} from '../../src/credentials/enrollment-keys/store.ts'
import type { ConditionGroup } from '../../src/filters/conditions/contract.ts'
import { changeFilter, listFiltersById, removeFilter } from '../../src/filters/saved/store.ts'
import { previewFilter } from '../../src/filters/store.ts'
import { listGroupsOfFilter } from '../../src/groups/dynamic.ts'
import { getDevices, listChanges, listGroupMembers } from '../../src/groups/members.ts'
import {
  changeGroup,
  countUses,
  getGroup,
  isAncestor,
  listGroupSettings,
  removeGroup,
} from '../../src/groups/store.ts'
import { countHolders, listHolders } from '../../src/identity/roles/holders.ts'
import { getRole, listVisibleRoles } from '../../src/identity/roles/store.ts'
import { endTenantSessions } from '../../src/identity/sessions/tenants.ts'
import { resolveOrgAccess, resolvePartnerAccess } from '../../src/identity/users/access.ts'
import { membersOf } from '../../src/identity/users/store.ts'
import { listLogHeads, logsAfter, newestLogs } from '../../src/logs/tails/store.ts'
import { changeScript, getScript, listWholeScripts, removeScript } from '../../src/scripts/store.ts'
import { getIdentity, listIdentities, unlinkIdentity } from '../../src/sso/identities/store.ts'
import {
  changeProvider,
  deleteIdentities,
  endProviderSessions,
  findActiveProvider,
  getProvider,
  listProviders,
  listSignedInRoles,
  lockProvider,
  removeProvider,
} from '../../src/sso/store.ts'
import { insertTrial, showTrial } from '../../src/sso/trials/store.ts'
import type { Db } from '../../src/storage/open.ts'
import {
  changeOrg,
  exchangeSlug,
  getOrg,
  listOrgsById,
  removeOrgs,
} from '../../src/tenancy/organizations/store.ts'
import { changeSite, getSite, listSitesById, removeSite } from '../../src/tenancy/sites/store.ts'
import {
  changeTrustPolicy,
  findPolicyInUse,
  findPolicyOf,
  getTrustPolicy,
  isTrusted,
  listPoliciesByKey,
  listTrustPolicies,
  listTrustPoliciesById,
  lockTrustPolicy,
  recordUse,
  removeTrustPolicy,
  revokeWorkloads,
} from '../../src/trust/store.ts'
import { findForReplay, lastSequence, resendDeliveries } from '../../src/webhooks/deliveries/requested.ts'
import {
  countDeliveries,
  getDelivery,
  listDeliveries,
  listFailedDeliveries,
  lockDelivery,
} from '../../src/webhooks/deliveries/store.ts'
import { findToRelay } from '../../src/webhooks/relay/store.ts'
import {
  changeWebhook,
  getSummary,
  getWebhook,
  listWebhooks,
  lockWebhook,
  removeWebhook,
} from '../../src/webhooks/store.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, type TestService, testSecrets } from '../harness.ts'
import { addOrgUser, roleOf } from '../world.ts'
import { buildStage, userIdOf } from './fixture.ts'
import { about, changed, dump } from './tables.ts'

/** A store function with a record of the bakery or its partner, to be called in any scope. */
type Ask = (db: Db, scope: Scope) => Promise<unknown>
/** What separates a caller from that record: a partner, an organization, a site or a device group. */
type Apart = 'partner' | 'organization' | 'site' | 'group'
type Case = [name: string, apart: readonly Apart[], ask: Ask]

const now = '2031-01-01T00:00:00.000Z'
const page = { page: 1, limit: 50 }
const everything = { after: undefined, limit: 100 }
const tenant = ['organization'] as const
const site = ['organization', 'site'] as const
const machine = ['organization', 'site', 'group'] as const
const nobody = () => null

/** The bakery with arguments for all store functions, ordered so that removals come last. */
async function prepare(service: TestService) {
  const { world, victim, strangers } = await buildStage(service)
  const { read } = service.storage
  const { bakery, garage } = world.orgs
  const client = service.client(world.tokens.system)
  const elsewhere = strangers.find(({ name }) => name.includes('narrowed to another site'))!.own
  const org = { orgId: bakery.id }

  const shelf = await client.call(api.deviceGroups.create, { body: { ...org, name: 'bakery shelf' } })
  const devices = { deviceIds: [bakery.deviceId] }
  await client.call(api.deviceGroups.add, { params: shelf, body: devices })
  const below = await client.call(api.deviceGroups.create, {
    body: { ...org, name: 'bakery drawer', parentId: shelf.id },
  })
  await client.call(api.deviceGroups.create, {
    body: { ...org, name: 'bakery filled', type: 'dynamic', filterId: bakery.filterId },
  })
  const role = roleOf('Org Viewer', 'organization')
  await addOrgUser(service, 'bakery-shelved', bakery.id, { role, groupIds: [shelf.id] })
  const conditions: ConditionGroup = {
    operator: 'AND',
    conditions: [{ field: 'status', operator: 'equals', value: 'online' }],
  }
  const filter = await client.call(api.filters.create, {
    body: { ...org, name: 'bakery spare filter', conditions },
  })
  await client.call(api.filters.create, {
    body: {
      ...org,
      name: 'bakery shelf filter',
      conditions: {
        operator: 'AND',
        conditions: [{ field: 'groupId', operator: 'equals', value: shelf.id }],
      },
    },
  })
  const spare = await client.call(api.sites.create, { body: { ...org, name: 'bakery spare site' } })
  const shared = await service.client(world.tokens.acme).call(api.roles.create, {
    body: { name: 'acme role', permissions: [{ resource: 'devices', action: 'read' }] },
  })
  const spareKey = await client.call(api.enrollmentKeys.create, {
    body: { ...org, name: 'bakery spare key' },
  })
  await client.call(api.apiKeys.create, {
    body: { ...org, name: 'bakery spare api key', scopes: ['devices:read'] },
  })
  const archive = { chain: bakery.id, first_seq: 1, last_seq: 2, object_key: 'x', bytes: 1, sha256: 'x' }
  const identity = { profile: JSON.stringify({ of: bakery.id }), last_login_at: now }
  const begun = {
    state_hash: 'x',
    provider_id: bakery.providerId,
    nonce: 'n',
    code_verifier: 'v',
    redirect_path: `/${bakery.id}`,
    created_at: now,
    expires_at: now,
  }
  const ending = {
    code_hash: 'x',
    provider_id: bakery.providerId,
    user_id: await userIdOf(service, 'bakery-admin'),
    mfa: 0,
    challenge: bakery.id,
    created_at: now,
    expires_at: now,
  }
  const testId = newId()
  const trial = { id: testId, provider_id: bakery.providerId, token_hash: 'x', redirect_path: '/' }
  await service.storage.write(async (tx) => {
    await tx
      .insertInto('audit_archives')
      .values({ ...archive, created_at: now })
      .execute()
    const set = { id: 'bakery-set', partner_id: world.partners.acme, org_id: bakery.id, owner: bakery.id }
    await tx
      .insertInto('config_sets')
      .values({ ...set, name: 'bakery set', revision: null, applied_at: now, applied_by: 'x' })
      .execute()
    const inSet = { set_id: set.id, partner_id: set.partner_id, org_id: bakery.id }
    await tx
      .insertInto('config_objects')
      .values({ ...inSet, object_id: bakery.siteId, section: 'sites' })
      .execute()
    const about = { section: 'sites', action: 'create', org_id: bakery.id }
    const change = { id: newId(), apply_id: victim.configuration_apply, position: 0, ...about }
    const sealing = createCipher([testSecrets.APP_ENCRYPTION_KEY])
    const content = sealing.encrypt('{}', `config_changes.content.${change.id}`)
    await tx
      .insertInto('config_changes')
      .values({ ...change, content })
      .execute()
    const last = { last_device_id: bakery.deviceId }
    await tx
      .updateTable('sso_providers')
      .set({ status: 'active' })
      .where('id', '=', bakery.providerId)
      .execute()
    await tx
      .updateTable('trust_policies')
      .set({ issuer: 'https://ci.bakery.example.com' })
      .where('id', '=', bakery.policyId)
      .execute()
    await tx.updateTable('sso_identities').set(identity).where('id', '=', victim.sso_identity).execute()
    await tx.insertInto('sso_sessions').values(begun).execute()
    await tx.insertInto('sso_exchanges').values(ending).execute()
    await insertTrial(tx, { ...trial, created_at: now, expires_at: now })
    await tx.updateTable('enrollment_keys').set(last).where('id', '=', spareKey.id).execute()
  })
  await client.call(api.auditRetention.change, { query: org, body: { retentionDays: 99 } })

  const logs = [{ timestamp: now, level: 'info' as const, component: 'x', message: 'bakery' }]
  const submitted = { params: { id: bakery.agentId }, body: { logs } }
  await service.client(bakery.agentToken).call(api.diagnosticLogs.submit, submitted)

  const alert = await getAlert(read, systemScope, bakery.alertId)
  const apiKey = await getApiKey(read, systemScope, bakery.apiKeyId)
  const key = await getEnrollmentKey(read, systemScope, bakery.keyId)
  const group = await getGroup(read, systemScope, shelf.id)
  const script = await getScript(read, systemScope, bakery.scriptId)
  const { webhookId, deliveryId } = bakery
  const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
  const { webhook } = await getWebhook(read, cipher, systemScope, webhookId)
  const which = { webhookId, id: deliveryId }
  const { providerId } = bakery
  const provider = await getProvider(read, cipher, systemScope, providerId)
  const linked = { id: victim.sso_identity, providerId }
  const { policyId } = bakery
  const setOwner = { partnerId: world.partners.acme, orgId: bakery.id }
  const policy = await getTrustPolicy(read, systemScope, policyId)
  const past = '2026-01-01T00:00:00.000Z'
  const place = await getSite(read, systemScope, bakery.siteId)
  const organization = await getOrg(read, systemScope, bakery.id)
  const named: ConditionGroup = {
    operator: 'AND',
    conditions: [{ field: 'hostname', operator: 'equals', value: 'bakery-pc' }],
  }
  const own = { id: bakery.filterId, conditions }
  const nothing = { siteIds: null, deviceGroupIds: null, orgAccess: null, orgIds: null } as const

  const reads: Case[] = [
    ['getAlert', machine, (db, scope) => getAlert(db, scope, alert.id)],
    [
      'listAlerts',
      machine,
      async (db, scope) => (await listAlerts(db, scope, page)).data.some(({ id }) => id === alert.id),
    ],
    [
      'getCommand',
      machine,
      (db, scope) => getCommand(db, scope, { deviceId: bakery.deviceId, id: bakery.commandId }),
    ],
    [
      'listCommands',
      machine,
      async (db, scope) => (await listCommands(db, scope, bakery.deviceId, page)).data,
    ],
    ['getEntry', tenant, (db, scope) => getEntry(db, scope, victim.audit_log)],
    ['findHead', tenant, (db, scope) => findHead(db, scope, bakery.id)],
    [
      'listHeads',
      tenant,
      async (db, scope) => (await listHeads(db, scope, [bakery.id])).some(({ orgId }) => orgId === bakery.id),
    ],
    ['getPolicy', tenant, (db, scope) => getPolicy(db, scope, bakery.id)],
    ['countArchives', tenant, (db, scope) => countArchives(db, scope, bakery.id)],
    ['getApiKey', tenant, (db, scope) => getApiKey(db, scope, apiKey.id)],
    ['getEnrollmentKey', site, (db, scope) => getEnrollmentKey(db, scope, key.id)],
    [
      'getEnrollmentKey, its last device',
      machine,
      (db, scope) =>
        getEnrollmentKey(db, scope, spareKey.id).then(({ lastDeviceId }) => lastDeviceId, nobody),
    ],
    ['listEnrolledDevices', machine, (db, scope) => listEnrolledDevices(db, scope, key.id, page)],
    [
      'previewFilter',
      machine,
      async (db, scope) => (await previewFilter(db, scope, named, { limit: 10, now })).data.totalCount,
    ],
    ['listGroupsOfFilter', tenant, (db, scope) => listGroupsOfFilter(db, scope, own)],
    ['listGroupMembers', machine, (db, scope) => listGroupMembers(db, scope, shelf.id, page)],
    ['listChanges', machine, (db, scope) => listChanges(db, scope, shelf.id, page)],
    ['getDevices', machine, (db, scope) => getDevices(db, scope, group, [bakery.deviceId])],
    ['countUses, members', tenant, async (db, scope) => (await countUses(db, scope, shelf)).memberships],
    ['countUses, groups', tenant, async (db, scope) => (await countUses(db, scope, shelf)).groups],
    ['countUses, filters', tenant, async (db, scope) => (await countUses(db, scope, shelf)).filters],
    ['isAncestor', tenant, (db, scope) => isAncestor(db, scope, shelf.id, below.id)],
    [
      'countHolders',
      tenant,
      async (db, scope) => (await countHolders(db, scope, 'organization', [role])).get(role),
    ],
    [
      'listHolders',
      tenant,
      async (db, scope) =>
        (await listHolders(db, scope, { id: role, scope: 'organization' }, page)).data.some(
          ({ name }) => name === 'bakery-shelved',
        ),
    ],
    [
      'membersOf',
      tenant,
      async (db, scope) =>
        (await membersOf(db, scope, { kind: 'organization', orgId: bakery.id }).selectAll().execute()).length,
    ],
    ['getRole', tenant, (db, scope) => getRole(db, scope, bakery.roleId)],
    [
      'resolveOrgAccess of sites',
      site,
      (db, scope) => resolveOrgAccess(db, scope, bakery.id, { siteIds: [bakery.siteId] }, nothing),
    ],
    [
      'resolveOrgAccess of groups',
      ['organization', 'group'],
      (db, scope) => resolveOrgAccess(db, scope, bakery.id, { deviceGroupIds: [shelf.id] }, nothing),
    ],
    [
      'resolvePartnerAccess',
      tenant,
      (db, scope) =>
        resolvePartnerAccess(
          db,
          scope,
          world.partners.acme,
          { orgAccess: 'selected', orgIds: [bakery.id] },
          nothing,
        ),
    ],
    ['getRole of a partner', ['partner'], (db, scope) => getRole(db, scope, shared.id)],
    ['getOrg', tenant, (db, scope) => getOrg(db, scope, bakery.id)],
    ['getWebhook', tenant, (db, scope) => getWebhook(db, cipher, scope, webhookId)],
    ['lockWebhook', tenant, (db, scope) => lockWebhook(db, cipher, scope, webhookId)],
    ['getSummary', tenant, (db, scope) => getSummary(db, scope, webhookId)],
    [
      'listWebhooks',
      tenant,
      async (db, scope) =>
        (await listWebhooks(db, cipher, scope, page)).data.some(({ id }) => id === webhookId),
    ],
    ['getDelivery', tenant, (db, scope) => getDelivery(db, scope, which)],
    ['lockDelivery', tenant, (db, scope) => lockDelivery(db, scope, which)],
    ['listDeliveries', tenant, (db, scope) => listDeliveries(db, scope, webhookId, page)],
    ['countDeliveries', tenant, (db, scope) => countDeliveries(db, scope, webhookId)],
    ['lastSequence', tenant, async (db, scope) => (await lastSequence(db, scope, webhookId)) > 0],
    [
      'findToRelay',
      tenant,
      async (db, scope) => (await findToRelay(db, scope, { webhookId, after: 0, limit: 1 })).length > 0,
    ],
    [
      'findForReplay',
      tenant,
      (db, scope) => findForReplay(db, scope, webhookId, { after: 0, through: 1000 }, 9),
    ],
    [
      'listDead',
      tenant,
      async (db, scope) =>
        (await listFailedDeliveries(db, scope, page)).data.some(({ id }) => id === deliveryId),
    ],
    ['getProvider', tenant, (db, scope) => getProvider(db, cipher, scope, providerId)],
    ['lockProvider', tenant, (db, scope) => lockProvider(db, cipher, scope, providerId)],
    [
      'listProviders',
      tenant,
      async (db, scope) =>
        (await listProviders(db, cipher, scope, page)).data.some(({ id }) => id === providerId),
    ],
    [
      'findActiveProvider',
      tenant,
      async (db, scope) => (await findActiveProvider(db, scope))?.id === providerId,
    ],
    ['listSignedInRoles', tenant, (db, scope) => listSignedInRoles(db, scope, providerId, past)],
    ['showTrial', tenant, (db, scope) => showTrial(db, scope, { id: testId, providerId })],
    [
      'listIdentities',
      tenant,
      async (db, scope) => (await listIdentities(db, scope, providerId, page)).data.length,
    ],
    ['getIdentity', tenant, (db, scope) => getIdentity(db, scope, linked)],
    ['getTrustPolicy', tenant, (db, scope) => getTrustPolicy(db, scope, policyId)],
    ['lockTrustPolicy', tenant, (db, scope) => lockTrustPolicy(db, scope, policyId)],
    [
      'listTrustPolicies',
      tenant,
      async (db, scope) => (await listTrustPolicies(db, scope, page)).data.some(({ id }) => id === policyId),
    ],
    ['isTrusted', tenant, (db, scope) => isTrusted(db, scope, policy.issuer)],
    ['findPolicyInUse', tenant, (db, scope) => findPolicyInUse(db, scope, policyId)],
    ['findPolicyOf', tenant, (db, scope) => findPolicyOf(db, scope, policy.issuer, policyId)],
    [
      'listPoliciesByKey',
      tenant,
      (db, scope) => listPoliciesByKey(db, scope, policy.issuer, [`sub=${policy.claims.sub}`]),
    ],
    ['getScript', tenant, (db, scope) => getScript(db, scope, script.id)],
    [
      'listLogHeads',
      machine,
      async (db, scope) =>
        (await listLogHeads(db, scope, page, () => {})).data.some(
          ({ deviceId }) => deviceId === bakery.deviceId,
        ),
    ],
    [
      'newestLogs',
      machine,
      async (db, scope) =>
        (await newestLogs(db, scope, {}, 1000, () => {})).diagnostic.some(
          ({ deviceId }) => deviceId === bakery.deviceId,
        ),
    ],
    [
      'logsAfter',
      machine,
      async (db, scope) =>
        (await logsAfter(db, scope, [{ deviceId: bakery.deviceId, seq: 0 }], {}, 10, () => {})).places.length,
    ],
    [
      'listWholeScripts',
      tenant,
      async (db, scope) => (await listWholeScripts(db, scope, everything)).some(({ id }) => id === script.id),
    ],
    [
      'listOrgsById',
      tenant,
      async (db, scope) => (await listOrgsById(db, scope, everything)).some(({ id }) => id === bakery.id),
    ],
    [
      'listSitesById',
      site,
      async (db, scope) =>
        (await listSitesById(db, scope, everything)).some(({ id }) => id === bakery.siteId),
    ],
    [
      'listFiltersById',
      tenant,
      async (db, scope) =>
        (await listFiltersById(db, scope, everything)).some(({ id }) => id === bakery.filterId),
    ],
    [
      'listTrustPoliciesById',
      tenant,
      async (db, scope) =>
        (await listTrustPoliciesById(db, scope, everything)).some(({ id }) => id === policyId),
    ],
    [
      'listVisibleRoles',
      tenant,
      async (db, scope) =>
        (await listVisibleRoles(db, scope, everything)).some(({ id }) => id === bakery.roleId),
    ],
    [
      'listGroupSettings',
      ['organization', 'group'],
      async (db, scope) => (await listGroupSettings(db, scope, everything)).some(({ id }) => id === shelf.id),
    ],
    [
      'listSets',
      tenant,
      async (db, scope) => (await listSets(db, scope, setOwner)).some(({ name }) => name === 'bakery set'),
    ],
    [
      'findSet',
      tenant,
      async (db, scope) => (await findSet(db, scope, setOwner, 'bakery set')) === 'bakery-set',
    ],
    [
      'listOwned',
      tenant,
      async (db, scope) =>
        (await listOwned(db, scope, 'sites', everything)).some(({ id }) => id === bakery.siteId),
    ],
    [
      'listApplies',
      tenant,
      async (db, scope) =>
        (
          await listApplies(db, scope, { owner: setOwner, readable: ['sites'], page: { page: 1, limit: 9 } })
        ).data.some(({ id }) => id === victim.configuration_apply),
    ],
    ['getApply', tenant, (db, scope) => getApply(db, scope, victim.configuration_apply)],
    [
      'changesOf',
      tenant,
      async (db, scope) => (await changesOf(db, cipher, scope, victim.configuration_apply)).length > 0,
    ],
  ]
  const writes: Case[] = [
    ['changeAlert', tenant, (db, scope) => changeAlert(db, scope, { ...alert, status: 'resolved' })],
    [
      'changePolicy',
      tenant,
      (db, scope) => changePolicy(db, scope, bakery.id, { retentionDays: 7, archiveToS3: false }),
    ],
    [
      'changeHold',
      tenant,
      (db, scope) =>
        changeHold(db, scope, bakery.id, { reason: 'x', userId: null, userEmail: null, since: now }),
    ],
    ['changeApiKey', tenant, (db, scope) => changeApiKey(db, scope, { ...apiKey, name: 'mine now' })],
    [
      'replaceApiKey',
      tenant,
      (db, scope) => replaceApiKey(db, scope, apiKey, { hash: 'mine', previousUntil: null }),
    ],
    ['revokeApiKey', tenant, (db, scope) => revokeApiKey(db, scope, apiKey.id)],
    ['replaceEnrollmentKey', tenant, (db, scope) => replaceEnrollmentKey(db, scope, key, 'mine')],
    [
      'expireEnrollmentKeys',
      tenant,
      (db, scope) => expireEnrollmentKeys(db, scope, '2026-01-01T00:00:00.000Z'),
    ],
    [
      'changeFilter',
      tenant,
      (db, scope) => changeFilter(db, scope, filter.id, { name: 'mine now', updatedAt: now }),
    ],
    ['changeGroup', tenant, (db, scope) => changeGroup(db, scope, { ...group, name: 'mine now' })],
    ['changeScript', tenant, (db, scope) => changeScript(db, scope, { ...script, name: 'mine now' })],
    ['changeSite', tenant, (db, scope) => changeSite(db, scope, { ...place, name: 'mine now' })],
    ['changeOrg', tenant, (db, scope) => changeOrg(db, scope, { ...organization, name: 'mine now' })],
    [
      'exchangeSlug',
      tenant,
      (db, scope) => exchangeSlug(db, scope, bakery.id, { from: organization.slug, to: 'mine-now' }),
    ],
    ['endTenantSessions', tenant, (db, scope) => endTenantSessions(db, scope, now)],
    [
      'changeWebhook',
      tenant,
      (db, scope) => changeWebhook(db, cipher, scope, { ...webhook, name: 'mine now' }),
    ],
    [
      'sendAgain',
      tenant,
      (db, scope) =>
        resendDeliveries(db, scope, { webhookId, ids: [deliveryId], isActive: false, isReplay: true, now }),
    ],
    [
      'changeProvider',
      tenant,
      (db, scope) => changeProvider(db, cipher, scope, { ...provider, name: 'mine now' }),
    ],
    ['endProviderSessions', tenant, (db, scope) => endProviderSessions(db, scope, providerId, now)],
    ['unlinkIdentity', tenant, (db, scope) => unlinkIdentity(db, scope, linked, now)],
    ['deleteIdentities', tenant, (db, scope) => deleteIdentities(db, scope, providerId)],
    ['recordUse', tenant, (db, scope) => recordUse(db, scope, policy, now)],
    ['revokeWorkloads', tenant, (db, scope) => revokeWorkloads(db, scope)],
    [
      'changeTrustPolicy',
      tenant,
      (db, scope) => changeTrustPolicy(db, scope, { ...policy, name: 'mine now' }),
    ],
    ['removeTrustPolicy', tenant, (db, scope) => removeTrustPolicy(db, scope, policyId)],
    ['removeProvider', tenant, (db, scope) => removeProvider(db, scope, providerId)],
    ['removeWebhook', tenant, (db, scope) => removeWebhook(db, scope, webhookId, now)],
    ['removeScript', tenant, (db, scope) => removeScript(db, scope, script.id, now)],
    ['removeEnrollmentKey', tenant, (db, scope) => removeEnrollmentKey(db, scope, spareKey.id)],
    ['removeGroup', tenant, (db, scope) => removeGroup(db, scope, below.id)],
    ['removeFilter', tenant, (db, scope) => removeFilter(db, scope, filter.id)],
    ['removeSite', tenant, (db, scope) => removeSite(db, scope, spare.id)],
    ['revokeApiKeys', tenant, (db, scope) => revokeApiKeys(db, scope)],
    ['removeOrgs', tenant, (db, scope) => removeOrgs(db, scope, now)],
  ]

  const acme: Scope = { kind: 'partner', partnerId: world.partners.acme, orgs: 'all' }
  const globex: Scope = { kind: 'partner', partnerId: world.partners.globex, orgs: 'all' }
  const narrow = { kind: 'organization', orgId: bakery.id, siteIds: null, groupIds: null } as const
  const outside: Record<Apart, Scope[]> = {
    partner: [globex, organizationScope(bakery.id)],
    organization: [organizationScope(garage.id), globex, { ...acme, orgs: [garage.id] }],
    site: [{ ...narrow, siteIds: [elsewhere.site] }],
    group: [{ ...narrow, groupIds: [elsewhere.device_group] }],
  }
  const strangersTo = (apart: readonly Apart[]) => apart.flatMap((kind) => outside[kind])
  const insideOf = (apart: readonly Apart[]) =>
    apart.includes('partner') ? acme : organizationScope(bakery.id)
  return { reads, writes, strangersTo, insideOf, bakery }
}

/** Handlers check before they write; stores do not rely on that. */
onEveryDatabase((_kind, open) => {
  describe('a store function for a record outside the scope', () => {
    it('answers as if the record did not exist', async () => {
      const service = await startService(open)
      const { reads, strangersTo, insideOf } = await prepare(service)
      const { read } = service.storage
      const blind: Scope = { kind: 'partner', partnerId: '0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55', orgs: [] }
      const answer = (ask: Ask, scope: Scope) => ask(read, scope).catch((error: Error) => error.message)
      for (const [name, apart, ask] of reads) {
        const unseen = await answer(ask, blind)
        expect(await answer(ask, insideOf(apart)), name).not.toEqual(unseen)
        for (const scope of strangersTo(apart))
          expect(await answer(ask, scope), `${name} ${JSON.stringify(scope)}`).toEqual(unseen)
      }
    })

    it('changes nothing of the record', async () => {
      const service = await startService(open)
      const { writes, strangersTo, insideOf, bakery } = await prepare(service)
      const { storage } = service
      const sessions = storage.read.selectFrom('sessions').select(['id', 'context', 'revoked_at'])
      const deliveries = storage.read.selectFrom('webhook_deliveries').selectAll()
      const owned = async () => {
        const all = await dump(storage)
        all.set(
          'sessions',
          (await sessions.execute()).map((row) => JSON.stringify(row)),
        )
        all.set(
          'webhook_deliveries',
          (await deliveries.execute()).map((row) => JSON.stringify(row)),
        )
        return about(all, [bakery.id])
      }
      for (const [name, apart, ask] of writes) {
        const before = await owned()
        for (const scope of strangersTo(apart)) {
          await storage.write((tx) => ask(tx, scope))
          expect(changed(before, await owned()), `${name} ${JSON.stringify(scope)}`).toEqual([])
        }
        await storage.write((tx) => ask(tx, insideOf(apart)))
        expect(changed(before, await owned()), name).not.toEqual([])
      }
    })
  })
})

import { checkAll, invalid, Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { checkCost } from '../filters/rules.ts'
import { getFilter } from '../filters/saved/store.ts'
import { type HandlersOf, inSteps } from '../handler.ts'
import { lockTenant } from '../identity/administrators.ts'
import type { Db } from '../storage/open.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import { checkOrg, findSite } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import { type DynamicGroup, evaluateFilter, matchesFilter, refreshGroup } from './dynamic.ts'
import * as members from './members.ts'
import {
  applyChange,
  checkDynamic,
  checkFilterRequired,
  checkMayChange,
  checkNoGroupCondition,
  checkStatic,
  checkUnused,
  deviceCountText,
  difference,
  makeGroup,
} from './rules.ts'
import * as store from './store.ts'

export const deviceGroups: HandlersOf<typeof contract.deviceGroups> = {
  async list({ db, readQuery, readQueryIfWide, scope, query }) {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    // A search for part of a name reads every visible group.
    const listed = (on: Db) => store.listGroups(on, scope, query)
    return query.search ? readQuery(listed) : readQueryIfWide(listed)
  },

  create: inSteps({
    async prepare({ storage, readQuery, scope, body, now }) {
      if (body.filterId === null) return undefined
      const { dynamic } = await planned(storage.read, scope, body, now)
      return dynamic && readQuery((on) => evaluateFilter(on, dynamic, now))
    },
    async run({ db, scope, body, now, quota }, answer) {
      const { group, dynamic } = await planned(db, scope, body, now)
      await quota(group)
      await store.insertGroup(db, group)
      if (dynamic) await refreshGroup(db, dynamic, answer, now)
      return store.getGroup(db, scope, group.id)
    },
  }),

  show: ({ db, scope, params }) => store.getGroup(db, scope, params.id),

  update: inSteps({
    async prepare({ storage, readQuery, scope, params, body, now }) {
      if (body.filterId === undefined) return undefined
      const before = await store.getGroup(storage.read, scope, params.id)
      checkMayChange(scope, before.siteId)
      checkFilterRequired(before.type, body.filterId)
      const dynamic = await dynamicOf(storage.read, scope, applyChange(before, body, now))
      return dynamic && readQuery((on) => evaluateFilter(on, dynamic, now))
    },
    async run({ db, scope, params, body, now, note }, answer) {
      const { orgId } = await store.getGroup(db, scope, params.id)
      // A cycle of parents involves several rows: lock the tenant.
      if (body.parentId) await lockTenant(db, { kind: 'organization', orgId })
      const before = await lockGroup(db, scope, params.id)
      checkFilterRequired(before.type, body.filterId)
      const after = applyChange(before, body, now)
      if (body.parentId) {
        await checkParent(db, scope, orgId, after.parentId)
        if (await store.isAncestor(db, scope, before.id, body.parentId)) throw circle
      }
      const dynamic = body.filterId === undefined ? undefined : await dynamicOf(db, scope, after)
      await store.changeGroup(db, scope, after)
      if (dynamic) await refreshGroup(db, dynamic, answer, now)
      note(difference(before, after))
      return store.getGroup(db, scope, after.id)
    },
  }),

  async remove({ db, scope, params, note }) {
    const group = await lockGroup(db, scope, params.id)
    checkUnused(await store.countUses(db, scope, group))
    await store.removeGroup(db, scope, group.id)
    const { orgId, name, type, siteId, filterId, parentId, deviceCount } = group
    note({ orgId, resourceName: name, before: { name, type, siteId, filterId, parentId, deviceCount } })
    return { success: true, message: 'Device group deleted' }
  },

  async devices({ db, scope, params, query }) {
    const group = await store.getGroup(db, scope, params.id)
    return members.listGroupMembers(db, scope, group.id, query)
  },

  async add({ db, scope, params, body, now, note }) {
    const group = await lockGroup(db, scope, params.id)
    checkStatic(group)
    const devices = await members.getDevices(db, scope, group, body.deviceIds)
    checkOnSite(group, devices, 'body.deviceIds')
    const ids = devices.map(({ id }) => id)
    const added = await members.addMembers(db, group.id, ids, { reason: 'manual', now })
    note({ ...namesOf(group), after: { added } })
    const { deviceCount } = await store.getGroup(db, scope, group.id)
    const message = `Added ${deviceCountText(added.length)} to ${group.name}`
    return { added: added.length, deviceCount, message }
  },

  async take({ db, scope, params, body, now, note }) {
    const group = await lockGroup(db, scope, params.id)
    checkStatic(group)
    const devices = await members.getDevices(db, scope, group, body.deviceIds)
    const ids = devices.map(({ id }) => id)
    const removed = await members.removeMembers(db, group.id, ids, { reason: 'manual', now })
    note({ ...namesOf(group), before: { removed } })
    const { deviceCount } = await store.getGroup(db, scope, group.id)
    const message = `Removed ${deviceCountText(removed.length)} from ${group.name}`
    return { removed: removed.length, deviceCount, message }
  },

  async pin({ db, scope, params, now, note }) {
    const group = await lockGroup(db, scope, params.id)
    const devices = await members.getDevices(db, scope, group, [params.deviceId])
    checkDynamic(group)
    checkOnSite(group, devices, 'params.deviceId')
    const added = await members.addMembers(db, group.id, [params.deviceId], { reason: 'pinned', now })
    await members.pinMember(db, group.id, params.deviceId, true)
    note({
      ...namesOf(group),
      after: { deviceId: params.deviceId, isPinned: true, added: added.length === 1 },
    })
    return memberOf(db, scope, group, params.deviceId)
  },

  async unpin({ db, scope, params, now, note }) {
    const group = await lockGroup(db, scope, params.id)
    await members.getDevices(db, scope, group, [params.deviceId])
    checkDynamic(group)
    const { hostname } = await memberOf(db, scope, group, params.deviceId)
    await members.pinMember(db, group.id, params.deviceId, false)
    const dynamic = await dynamicOf(db, scope, group)
    const isMember = dynamic !== undefined && (await matchesFilter(db, dynamic, params.deviceId, now))
    if (!isMember) await members.removeMembers(db, group.id, [params.deviceId], { reason: 'unpinned', now })
    const facts = { before: { deviceId: params.deviceId, isPinned: true }, details: { isMember } }
    note({ ...namesOf(group), ...facts })
    const message = isMember
      ? `${hostname} is not pinned any more; the filter matches it`
      : `${hostname} left ${group.name}: the filter does not match it`
    return { isMember, message }
  },

  async log({ db, scope, params, query }) {
    const group = await store.getGroup(db, scope, params.id)
    return members.listChanges(db, scope, group.id, query)
  },
}

const namesOf = ({ id, orgId, name }: contract.DeviceGroup) => ({ resourceId: id, orgId, resourceName: name })

const circle = invalid([{ path: 'body.parentId', message: 'is the group itself or a group under it' }])

/** A new group, and its filter if it is dynamic. @throws for an invalid site, parent or filter */
async function planned(db: Db, scope: Scope, body: contract.NewGroup, now: Instant) {
  const orgId = await resolveOrg(db, scope, body.orgId)
  checkMayChange(scope, body.siteId)
  checkFilterRequired(body.type, body.filterId)
  await checkAll(
    () => checkSite(db, scope, orgId, body.siteId),
    () => checkParent(db, scope, orgId, body.parentId),
  )
  const group = makeGroup({ ...body, orgId }, { id: newId(), now })
  return { group, dynamic: await dynamicOf(db, scope, group) }
}

/** A group that the caller may change, locked against concurrent changes. @throws not_found, site_access_denied */
async function lockGroup(db: Db, scope: Scope, id: string): Promise<contract.DeviceGroup> {
  const group = await store.lockGroup(db, scope, id)
  checkMayChange(scope, group.siteId)
  return group
}

async function memberOf(
  db: Db,
  scope: Scope,
  group: contract.DeviceGroup,
  deviceId: string,
): Promise<contract.GroupMember> {
  const member = await members.findGroupMember(db, scope, group.id, deviceId)
  if (!member) throw new Problem('not_found', 'Device not found in this group')
  return member
}

async function checkSite(db: Db, scope: Scope, orgId: string, siteId: string | null): Promise<void> {
  if (siteId === null || (await findSite(db, scope, siteId))?.orgId === orgId) return
  throw invalid([{ path: 'body.siteId', message: 'is not a site of this organization' }])
}

async function checkParent(db: Db, scope: Scope, orgId: string, parentId: string | null): Promise<void> {
  if (parentId === null || (await store.findGroup(db, scope, parentId))?.orgId === orgId) return
  throw invalid([{ path: 'body.parentId', message: 'is not a device group of this organization' }])
}

function checkOnSite(
  { siteId }: contract.DeviceGroup,
  devices: readonly { id: string; siteId: string | null }[],
  path: string,
): void {
  const elsewhere = siteId === null ? [] : devices.filter((device) => device.siteId !== siteId)
  if (elsewhere.length === 0) return
  const ids = elsewhere.map(({ id }) => id).join(', ')
  throw invalid([{ path, message: `the group allows only devices of its site, not ${ids}` }])
}

/**
 * A dynamic group with the conditions of its filter. @throws not_found, invalid_request for a filter it cannot have,
 * filter_too_expensive
 */
async function dynamicOf(
  db: Db,
  scope: Scope,
  { id, orgId, siteId, filterId, evaluationError }: contract.DeviceGroup,
): Promise<DynamicGroup | undefined> {
  if (filterId === null) return undefined
  const filter = await getFilter(db, scope, filterId)
  if (filter.orgId !== orgId) {
    throw invalid([{ path: 'body.filterId', message: 'is not a saved filter of this organization' }])
  }
  checkNoGroupCondition(filter.conditions, 'body.filterId')
  checkCost(filter.conditions, 'body.filterId')
  return { id, orgId, siteId, evaluationError, conditions: filter.conditions }
}

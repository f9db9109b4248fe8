import { invalid, Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Caller, EnrollmentKeyLimits, HandlersOf } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { checkOrg, findSite } from '../../tenancy/store.ts'
import { resolveKeyOrg } from '../new-key.ts'
import { checkExpiry } from '../rules.ts'
import type * as contract from './contract.ts'
import {
  applyChange,
  checkLive,
  checkShape,
  clampToShape,
  difference,
  enrollmentKeyHash,
  makeEnrollmentKey,
  newEnrollmentKey,
  rotateKey,
} from './rules.ts'
import * as store from './store.ts'

export type EnrollmentSettings = { pepper: string; ttlMinutes: number }

export const enrollmentKeyHandlers = (
  settings: EnrollmentSettings,
): HandlersOf<typeof contract.enrollmentKeys> => {
  const hashOf = (key: string) => enrollmentKeyHash(settings.pepper, key)
  return {
    async list({ db, readQueryIfWide, scope, query, now }) {
      if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
      return readQueryIfWide((on) => store.listEnrollmentKeys(on, scope, query, now))
    },

    async create({ db, scope, body, caller, now, quota }) {
      checkExpiry(body.expiresAt, now)
      const shape = shapeOf(caller)
      checkShape(body, shape, now)
      const orgId = await resolveKeyOrg(db, scope, body.orgId)
      await checkSite(db, scope, orgId, body.siteId)
      const key = newEnrollmentKey()
      const ttlMinutes = Math.min(settings.ttlMinutes, shape?.maxTtlMinutes ?? settings.ttlMinutes)
      const made = { id: newId(), by: caller.id, now, ttlMinutes }
      const minted = makeEnrollmentKey({ ...body, orgId }, made)
      await quota({ orgId })
      await store.insertEnrollmentKey(db, minted, hashOf(key))
      return { ...minted, key }
    },

    async devices({ db, scope, params, query }) {
      const key = await store.getEnrollmentKey(db, scope, params.id)
      return store.listEnrolledDevices(db, scope, key.id, query)
    },

    show: ({ db, scope, params }) => store.getEnrollmentKey(db, scope, params.id),

    async update({ db, scope, params, body, caller, now, note }) {
      checkExpiry(body.expiresAt, now)
      checkShape(body, shapeOf(caller), now)
      const before = await store.getEnrollmentKey(db, scope, params.id)
      checkWithinReach(scope, before.siteId)
      checkLive(before, now)
      const after = applyChange(before, body)
      await store.changeEnrollmentKey(db, scope, after)
      note({ orgId: after.orgId, resourceName: after.name, ...difference(before, after) })
      return after
    },

    async rotate({ db, scope, params, body, caller, now, note }) {
      checkExpiry(body.expiresAt, now)
      const shape = shapeOf(caller)
      checkShape(body, shape, now)
      const before = await store.getEnrollmentKey(db, scope, params.id)
      checkWithinReach(scope, before.siteId)
      const after = clampToShape(rotateKey(before, body), shape, now)
      const key = newEnrollmentKey()
      await store.replaceEnrollmentKey(db, scope, after, hashOf(key))
      note({ before: limitsOf(before), after: limitsOf(after) })
      return { ...after, key }
    },

    async remove({ db, scope, params, note }) {
      const key = await store.getEnrollmentKey(db, scope, params.id)
      checkWithinReach(scope, key.siteId)
      await store.removeEnrollmentKey(db, scope, key.id)
      note({ orgId: key.orgId, resourceName: key.name, before: limitsOf(key) })
      return { success: true, message: 'Enrollment key deleted successfully' }
    },
  }
}

const shapeOf = (caller: Caller): EnrollmentKeyLimits | undefined =>
  caller.kind === 'workload' ? caller.keyLimits : undefined

const limitsOf = ({ usageCount, maxUsage, expiresAt }: contract.EnrollmentKey) => ({
  usageCount,
  maxUsage,
  expiresAt,
})

/**
 * A holder of a key has to see all devices that it enrolls. A user limited to some sites sees that a key
 * without a site exists, but can neither read nor end it; a user limited to some groups has access to no key,
 * as an enrolling device is in no group.
 * @throws site_access_denied
 */
function checkWithinReach(scope: Scope, siteId: string | null): void {
  if (scope.kind !== 'organization') return
  if (scope.groupIds !== null) {
    const message = 'Your access is limited to some device groups, and a machine that enrolls is in none'
    throw new Problem('site_access_denied', message)
  }
  if (siteId !== null || scope.siteIds === null) return
  throw new Problem(
    'site_access_denied',
    'Your access is limited to some sites: a key without one is for all',
  )
}

async function checkSite(db: Db, scope: Scope, orgId: string, siteId: string | undefined): Promise<void> {
  checkWithinReach(scope, siteId ?? null)
  if (siteId === undefined) return
  const site = await findSite(db, scope, siteId)
  if (site?.orgId === orgId) return
  throw invalid([{ path: 'body.siteId', message: 'siteId does not belong to the specified org' }])
}

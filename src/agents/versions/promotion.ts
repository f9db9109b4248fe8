import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Component } from './manifest.ts'
import {
  checkMinimumVersion,
  checkNotDowngrade,
  checkNotRolledBack,
  type Promotion,
  promotionOf,
} from './rules.ts'
import * as store from './store.ts'

/** In one of these statuses a rollout alone determines what its devices are offered. */
const openStates: readonly string[] = ['preparing', 'running', 'halted']

type PromotionRequest = { version: string; component?: Component | undefined; anew?: boolean }

/**
 * Offers a registered version on a user's request. With `anew` it is offered again to devices on which it failed.
 * @throws not_found, rollback_needed, below_minimum_version, rollout_in_progress
 */
export async function promote(db: Db, request: PromotionRequest, now: Instant): Promise<Promotion> {
  await store.lockReleases(db)
  await checkPromotable(db, request)
  return applyPromotion(db, request, now)
}

/**
 * Offers a version after its registration. This must neither downgrade agents nor return them to a version they were
 * rolled back from: then the version is only registered, and `withheld` says why. @throws rollout_in_progress
 */
export async function promoteRegistered(
  db: Db,
  { version, isKnown }: { version: string; isKnown: boolean },
  now: Instant,
): Promise<Promotion & { withheld: string | null }> {
  await store.lockReleases(db)
  try {
    await checkPromotable(db, { version })
    if (isKnown) checkNotRolledBack(version, await store.buildsOf(db, version), await store.listPromoted(db))
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    return { promoted: [], demoted: [], withheld: error.message }
  }
  return { ...(await applyPromotion(db, { version, anew: false }, now)), withheld: null }
}

/** @throws rollback_needed, below_minimum_version; passes for a version without builds */
export async function checkPromotable(db: Db, { version, component }: PromotionRequest): Promise<void> {
  const builds = (await store.buildsOf(db, version)).filter((one) => matchesComponent(component, one))
  if (builds.length === 0) return
  checkMinimumVersion(version, await store.listManifests(db))
  checkNotDowngrade(version, builds, await store.listPromoted(db))
}

export const matchesComponent = (component: Component | undefined, build: { component: string }): boolean =>
  component === undefined || build.component === component

/**
 * Offers a registered version to the platforms it has builds for, unless they are offered a newer one. The current
 * rollout, if ended, no longer holds its devices at its version. @throws not_found, rollout_in_progress
 */
export async function applyPromotion(
  db: Db,
  { version, component, anew = true }: PromotionRequest,
  now: Instant,
): Promise<Promotion> {
  await store.lockReleases(db)
  await store.getRelease(db, version)
  const all = await store.buildsOf(db, version)
  const builds = all.filter((build) => matchesComponent(component, build))
  if (builds.length === 0) throw new Problem('not_found', `${version} has no ${component}`)
  const promotion = promotionOf(builds, await store.listPromoted(db), { anew })
  // Rollouts concern the agent only, not its helper.
  if (promotion.promoted.some((build) => build.component === 'agent')) await clearCurrentRollout(db, now)
  // Demotes first: only one build may be offered per platform.
  await store.setPromoted(db, promotion.demoted, null)
  await store.setPromoted(db, promotion.promoted, now)
  return promotion
}

/** Makes an ended rollout no longer current, so that it holds no device at its version. @throws rollout_in_progress */
export async function clearCurrentRollout(db: Db, now: Instant): Promise<void> {
  const rollout = await store.findCurrentRollout(db)
  if (!rollout) return
  if (openStates.includes(rollout.status)) {
    throw new Problem(
      'rollout_in_progress',
      `The rollout of ${rollout.version} is ${rollout.status}: complete or abort it first`,
      { details: { rolloutId: rollout.id, version: rollout.version, status: rollout.status } },
    )
  }
  await store.unsetCurrentRollout(db, rollout.id, now)
}

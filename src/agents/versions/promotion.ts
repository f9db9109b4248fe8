import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Component } from './manifest.ts'
import { type Promotion, promotionOf } from './rules.ts'
import * as store from './store.ts'

/** While one of these it decides what the devices in it are offered, and nobody else does. */
const openStates: readonly string[] = ['preparing', 'running', 'halted']

/**
 * Offers a registered version to the machines it has builds for. What a rollout has held devices at ends with it. With
 * `anew` those who failed at it are offered it once more.
 * @throws not_found, rollout_in_progress
 */
export async function promote(
  db: Db,
  { version, component, anew = true }: { version: string; component?: Component | undefined; anew?: boolean },
  now: Instant,
): Promise<Promotion> {
  await store.lockReleases(db)
  await store.getRelease(db, version)
  const all = await store.buildsOf(db, version)
  const builds = all.filter((build) => component === undefined || build.component === component)
  if (builds.length === 0) throw new Problem('not_found', `${version} has no ${component}`)
  const promotion = promotionOf(builds, await store.listPromoted(db), { anew })
  // Rollouts are of the agent itself.
  if (promotion.promoted.some((build) => build.component === 'agent')) await endRollout(db, now)
  // First, since no two may be offered to one machine.
  await store.setPromoted(db, promotion.demoted, null)
  await store.setPromoted(db, promotion.promoted, now)
  return promotion
}

async function endRollout(db: Db, now: Instant): Promise<void> {
  const rollout = await store.findCurrentRollout(db)
  if (!rollout) return
  if (openStates.includes(rollout.status)) {
    throw new Problem(
      'rollout_in_progress',
      `The rollout of ${rollout.version} is ${rollout.status}: complete or abort it first`,
      { details: { rolloutId: rollout.id, version: rollout.version, status: rollout.status } },
    )
  }
  await store.endHold(db, rollout.id, now)
}

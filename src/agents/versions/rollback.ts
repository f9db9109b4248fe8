import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { isActive, type RolloutRecord } from '../rollouts/rules.ts'
import { findActiveRollout, lockRollout } from '../rollouts/store.ts'
import { abortRollout } from '../rollouts/transitions.ts'
import type { Architecture, Component, Platform } from './manifest.ts'
import { clearCurrentRollout, matchesComponent } from './promotion.ts'
import { checkMinimumVersion, type Promotion, promotionOf } from './rules.ts'
import { isNewer } from './semver.ts'
import * as store from './store.ts'

type RollbackRequest = {
  version: string
  component?: Component | undefined
  platform?: Platform | undefined
  arch?: Architecture | undefined
}

/**
 * Offers a registered version to all machines it has builds for, including those with a newer one, unless they are
 * offered an older one already: a roll-back never upgrades. The next promotion ends it. It aborts a rollout of a
 * newer version. @throws not_found, below_minimum_version, conflict, rollout_in_progress
 */
export async function rollBack(
  db: Db,
  { version, component, platform, arch }: RollbackRequest,
  { by, now }: { by: string; now: Instant },
): Promise<{ promotion: Promotion; ended: RolloutRecord | undefined }> {
  // Locks the rollout before the releases, in the same order as the completion of a rollout.
  const underWay = await findActiveRollout(db)
  const rollout = underWay && (await lockRollout(db, underWay.id))
  await store.lockReleases(db)
  await store.getRelease(db, version)
  const builds = (await store.buildsOf(db, version)).filter(
    (build) =>
      matchesComponent(component, build) &&
      (platform === undefined || build.platform === platform) &&
      (arch === undefined || build.architecture === arch),
  )
  if (builds.length === 0) throw new Problem('not_found', `${version} has no such build`)
  checkMinimumVersion(version, await store.listManifests(db))
  const promotion = promotionOf(builds, await store.listPromoted(db), { anew: true, back: true })
  if (promotion.promoted.length === 0) {
    throw new Problem(
      'conflict',
      `${version} is newer than the version offered to these machines: svc agent promote ${version} offers it`,
    )
  }
  // Rollouts concern the agent only, not its helper.
  const isOfAgent = promotion.promoted.some((build) => build.component === 'agent')
  const ended = isOfAgent ? await endNewer(db, version, rollout, { by, now }) : undefined
  // Demotes first: only one build may be offered per platform.
  await store.setPromoted(db, promotion.demoted, null)
  await store.setPromoted(db, promotion.promoted, now, { back: true })
  return { promotion, ended }
}

/** Ends the effect of rollouts. Returns the one that was aborted. */
async function endNewer(
  db: Db,
  version: string,
  rollout: RolloutRecord | undefined,
  { by, now }: { by: string; now: Instant },
): Promise<RolloutRecord | undefined> {
  const isEnded = rollout !== undefined && isActive(rollout) && isNewer(rollout.version, version)
  if (isEnded) await abortRollout(db, rollout, `Rolled back to ${version} by ${by}`, now)
  await clearCurrentRollout(db, now)
  return isEnded ? rollout : undefined
}

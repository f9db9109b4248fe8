import { Problem } from '../../core/errors.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { endRollout } from '../rollouts/moves.ts'
import { type Held, isUnderWay } from '../rollouts/rules.ts'
import { findUnderWay, lockRollout } from '../rollouts/store.ts'
import type { Architecture, Component, Platform } from './manifest.ts'
import { isNewer } from './order.ts'
import { endCurrent, isOf } from './promotion.ts'
import { checkFloor, type Promotion, promotionOf } from './rules.ts'
import * as store from './store.ts'

type Wanted = {
  version: string
  component?: Component | undefined
  platform?: Platform | undefined
  arch?: Architecture | undefined
}

/**
 * Offers a registered version to all machines it has builds for, those with a newer one too, unless they are offered an
 * older one already: nobody is brought up by it. The next promotion ends that. A rollout of something newer ends with it.
 * @throws not_found, below_minimum_version, conflict, rollout_in_progress
 */
export async function rollBack(
  db: Db,
  { version, component, platform, arch }: Wanted,
  { by, now }: { by: string; now: Instant },
): Promise<{ promotion: Promotion; ended: Held | undefined }> {
  // The rollout before the releases, as whatever completes one takes them.
  const underWay = await findUnderWay(db)
  const rollout = underWay && (await lockRollout(db, underWay.id))
  await store.lockReleases(db)
  await store.getRelease(db, version)
  const builds = (await store.buildsOf(db, version)).filter(
    (build) =>
      isOf(component, build) &&
      (platform === undefined || build.platform === platform) &&
      (arch === undefined || build.architecture === arch),
  )
  if (builds.length === 0) throw new Problem('not_found', `${version} has no such build`)
  checkFloor(version, await store.listManifests(db))
  const promotion = promotionOf(builds, await store.listPromoted(db), { anew: true, back: true })
  if (promotion.promoted.length === 0) {
    throw new Problem(
      'conflict',
      `${version} is newer than what these machines are offered: svc agent promote ${version} offers it`,
    )
  }
  // Rollouts are of the agent itself.
  const isOfAgent = promotion.promoted.some((build) => build.component === 'agent')
  const ended = isOfAgent ? await endNewer(db, version, rollout, { by, now }) : undefined
  // First, since no two may be offered to one machine.
  await store.setPromoted(db, promotion.demoted, null)
  await store.setPromoted(db, promotion.promoted, now, { back: true })
  return { promotion, ended }
}

/** What rollouts decide for their devices ends. Gives the one that was under way. */
async function endNewer(
  db: Db,
  version: string,
  rollout: Held | undefined,
  { by, now }: { by: string; now: Instant },
): Promise<Held | undefined> {
  const isEnded = rollout !== undefined && isUnderWay(rollout) && isNewer(rollout.version, version)
  if (isEnded) await endRollout(db, rollout, `Rolled back to ${version} by ${by}`, now)
  await endCurrent(db, now)
  return isEnded ? rollout : undefined
}

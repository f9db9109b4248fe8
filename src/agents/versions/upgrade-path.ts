import semverPrerelease from 'semver/functions/prerelease.js'
import { compareVersions, isOlder, isVersion } from './semver.ts'

/** A version as its manifest describes it. */
export type ReleaseStep = {
  version: string
  /** The oldest version that may go to it directly; null: any. */
  minFrom: string | null
}

/**
 * Which of the releases for a machine it goes to next, on the way from what it reports to its target: the target, or else the
 * highest version before it that it may go to now. undefined: it is there, or there is no way. To an older version,
 * which others decide on, it goes directly. A release candidate is a stepping stone only on the way to another one.
 */
export function nextUpgrade(
  releases: readonly ReleaseStep[],
  reported: string,
  target: string,
): string | undefined {
  const goal = releases.find(({ version }) => version === target)
  if (!goal || reported === target) return undefined
  if (isOlder(target, reported)) return target
  const mayGo = ({ minFrom }: ReleaseStep) => minFrom === null || compareVersions(minFrom, reported) <= 0
  if (mayGo(goal)) return target
  const isBetween = ({ version }: ReleaseStep) =>
    compareVersions(version, reported) > 0 && compareVersions(version, target) < 0
  const isStone = ({ version }: ReleaseStep) => isPrerelease(target) || !isPrerelease(version)
  // From the highest, everything can be reached that can be from a lower one: minFrom is a bound, and no list.
  return releases
    .filter((step) => mayGo(step) && isBetween(step) && isStone(step))
    .map(({ version }) => version)
    .sort(compareVersions)
    .at(-1)
}

/** A release candidate, alpha or the like: 1.3.0-rc.1. */
export const isPrerelease = (version: string): boolean =>
  isVersion(version) && semverPrerelease(version) !== null

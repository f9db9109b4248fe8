import semverPrerelease from 'semver/functions/prerelease.js'
import { compareVersions, isOlder, isVersion } from './semver.ts'

/** A version as its manifest describes it. */
export type ReleaseStep = {
  version: string
  /** The oldest version that can update to it directly; null: any. */
  minFrom: string | null
}

/**
 * The next release on the way from the reported version to the target: the target, or else the highest version before
 * it that the agent can update to now. undefined: it is reached, or there is no path. An older target, whose
 * permission is checked elsewhere, is reached directly. A release candidate is an intermediate step only on the way
 * to another candidate.
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
  // The highest step reaches everything that a lower one reaches: minFrom is a bound, not a list.
  return releases
    .filter((step) => mayGo(step) && isBetween(step) && isStone(step))
    .map(({ version }) => version)
    .sort(compareVersions)
    .at(-1)
}

/** A release candidate, alpha or the like: 1.3.0-rc.1. */
export const isPrerelease = (version: string): boolean =>
  isVersion(version) && semverPrerelease(version) !== null

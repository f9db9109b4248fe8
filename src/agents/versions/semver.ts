import semverCompare from 'semver/functions/compare.js'
import semverValid from 'semver/functions/valid.js'

/** Semantic version 2.0 without a leading v or build metadata, at most 20 characters. */
export const isVersion = (text: string): boolean =>
  text.length <= 20 && /^\d/.test(text) && !text.includes('+') && semverValid(text) === text

/** Negative: `a` comes before `b`. What is no version comes before all that are. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [isVersion(a), isVersion(b)]
  if (left && right) return semverCompare(a, b)
  return Number(left) - Number(right)
}

/**
 * Whether a version comes after what an agent reports, which may have the v of a tag or build metadata. Of neither the order
 * knows; what is no version at all comes before all that are.
 */
export function isNewer(version: string, reported: string): boolean {
  const known = semverValid(reported)
  return isVersion(version) && (known === null || semverCompare(version, known) > 0)
}

/** Whether a version comes before what an agent reports. Nothing comes before what is no version. */
export function isOlder(version: string, reported: string): boolean {
  const known = semverValid(reported)
  return isVersion(version) && known !== null && semverCompare(version, known) < 0
}

/** A build of a developer, which nothing is offered. */
export const isDevBuild = (version: string): boolean => version.startsWith('dev-')

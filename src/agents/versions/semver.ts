import semverCompare from 'semver/functions/compare.js'
import semverParse from 'semver/functions/parse.js'
import semverValid from 'semver/functions/valid.js'

/** Semantic version 2.0 without a leading v or build metadata, at most 20 characters. */
export const isVersion = (text: string): boolean =>
  text.length <= 20 && /^\d/.test(text) && !text.includes('+') && semverValid(text) === text

/** Negative when `a` precedes `b`. Text that is not a version precedes all versions. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [isVersion(a), isVersion(b)]
  if (left && right) return semverCompare(a, b)
  return Number(left) - Number(right)
}

/**
 * Whether a version is newer than the one that an agent reports, which may have a leading v or build metadata.
 * Neither affects the order; a reported text that is not a version precedes all versions.
 */
export function isNewer(version: string, reported: string): boolean {
  const known = semverValid(reported)
  return isVersion(version) && (known === null || semverCompare(version, known) > 0)
}

/**
 * Whether a version is older than the one that an agent reports. Nothing is older than a text that is not a version.
 */
export function isOlder(version: string, reported: string): boolean {
  const known = semverValid(reported)
  return isVersion(version) && known !== null && semverCompare(version, known) < 0
}

/** Whether an agent reports another major version before `newest`, or one that is so many minor versions older or more. */
export function isFarBehind(reported: string, newest: string, minors: number): boolean {
  const [known, latest] = [semverParse(reported), semverParse(newest)]
  if (!known || !latest || !isNewer(newest, reported)) return false
  return known.major < latest.major || latest.minor - known.minor >= minors
}

/** A developer's build, which is never offered an update. */
export const isDevBuild = (version: string): boolean => version.startsWith('dev-')

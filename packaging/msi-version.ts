const order = ['alpha', 'beta', 'rc']
/** Of the numbers of one patch: three stages of 30, and then the release itself. */
const [perStage, perPatch] = [30, 100]
const release = perPatch - 1

/**
 * The version of an MSI, as `major.minor.build`: Windows compares three numbers alone, up to 255, 255 and 65535. The third one has the
 * patch and the stage before its release: 0.2.1-rc.3 is 0.2.163, and 0.2.1 is 0.2.199. @throws Error for a version that has no place there
 */
export function msiVersion(version: string): string {
  const [, major, minor, patch, stage, number = '0'] =
    /^(\d+)\.(\d+)\.(\d+)(?:-([a-z]+)(?:\.(\d+))?)?$/.exec(version) ?? []
  const at = stage === undefined ? 0 : order.indexOf(stage)
  const place = stage === undefined ? release : at * perStage + Number(number)
  const build = Number(patch) * perPatch + place
  if (patch === undefined || at === -1 || Number(number) >= perStage || build > 65_535)
    throw new Error(
      `An MSI has no version for ${version}: what comes before a release is alpha.N, beta.N or rc.N with N below ${perStage}, and a patch is below 655`,
    )
  if (Number(major) > 255 || Number(minor) > 255)
    throw new Error(`An MSI has no version for ${version}: major and minor version are at most 255`)
  return `${major}.${minor}.${build}`
}

/** Why there is no MSI of a version. */
export function msiProblemOf(version: string): string | false {
  try {
    msiVersion(version)
    return false
  } catch (error) {
    return `${(error as Error).message}. Leave it out with --only, or choose another version`
  }
}

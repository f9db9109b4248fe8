import { Problem } from '../../core/errors.ts'
import { parseJson } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import { truncateStorable } from '../../core/text.ts'
import type { AgentBuildRow, AgentReleaseRow } from '../../storage/schema/agent-tables.ts'
import type { AgentBuild, AgentRelease } from './contract.ts'
import { assetFor, type Build, Manifest, ManifestError, parseBuildName, versionOf } from './manifest.ts'
import { compareVersions, isOlder } from './semver.ts'
import { isPrerelease } from './upgrade-path.ts'

/** A verified release, in the form to store. */
export type ReleaseRegistration = {
  release: Omit<AgentReleaseRow, 'created_at' | 'updated_at'>
  builds: (Omit<AgentBuildRow, 'promoted_at' | 'rollback_at'> & { label: string })[]
}

/** A verified release, and which of its files exist. */
export type VerifiedRelease = {
  tag: string
  notes: string | null
  manifest: Manifest
  /** The exact text of the manifest. */
  text: string
  signature: string
  keyId: string
  files: ReadonlyMap<string, { url: string; size: number | undefined }>
}

const maxNotes = 64 << 10

/** @throws ManifestError when the manifest does not match the published files */
export function registrationOf({ manifest, files, ...it }: VerifiedRelease): ReleaseRegistration {
  const version = versionOf(manifest)
  const builds = manifest.assets.flatMap(({ name, sha256, size }) => {
    const [named, file] = [parseBuildName(name), files.get(name)]
    if (!named || !file) return []
    if (file.size !== undefined && file.size !== size) {
      const what = `${name} has ${file.size} bytes, and not ${size}`
      throw new ManifestError('release_manifest_metadata_mismatch', what)
    }
    return [{ version, ...named, name, url: file.url, checksum: sha256, size }]
  })
  if (builds.length === 0) {
    const what = 'it lists no file of an agent that the release has'
    throw new ManifestError('release_manifest_metadata_mismatch', what)
  }
  return {
    release: {
      version,
      tag: it.tag,
      prerelease: isPrerelease(version) ? 1 : 0,
      // Postgres cannot store NUL or lone surrogates.
      notes: it.notes ? truncateStorable(it.notes.replaceAll('\0', ''), maxNotes) : null,
      min_from: manifest.minFrom ?? null,
      manifest: it.text,
      manifest_signature: it.signature,
      signing_key_id: it.keyId,
    },
    builds,
  }
}

/** @throws release_changed when a registered version would change */
export function checkUnchanged(
  known: Pick<AgentReleaseRow, 'manifest'>,
  { release }: ReleaseRegistration,
): void {
  if (known.manifest === release.manifest) return
  throw new Problem(
    'release_changed',
    `${release.version} is registered with another manifest: a published version never changes`,
  )
}

/** @throws ManifestError when the registered build does not match the manifest */
export function checkMatchesManifest(manifest: Manifest, build: AgentBuildRow): void {
  const asset = assetFor(manifest, build as Build)
  const isSame =
    versionOf(manifest) === build.version &&
    asset.name === build.name &&
    asset.sha256 === build.checksum &&
    asset.size === build.size
  if (!isSame)
    throw new ManifestError('release_manifest_metadata_mismatch', `${build.name} of ${build.version}`)
}

export const buildLabel = ({ name }: Pick<AgentBuildRow, 'name'>): string => parseBuildName(name)!.label

export function toAgentRelease(release: AgentReleaseRow, builds: readonly AgentBuildRow[]): AgentRelease {
  const all = builds.map(toAgentBuild).sort((a, b) => (a.build < b.build ? -1 : 1))
  return {
    version: release.version,
    tag: release.tag,
    channel: release.prerelease === 1 ? 'candidate' : 'stable',
    minFrom: release.min_from,
    minimumVersion: minimumVersionIn(release) ?? null,
    builds: all.map(({ build }) => build),
    promotedFor: all.filter(({ promotedAt }) => promotedAt !== null).map(({ build }) => build),
    rollbackFor: all.filter(({ rollbackAt }) => rollbackAt !== null).map(({ build }) => build),
    notes: release.notes,
    signingKeyId: release.signing_key_id,
    files: all,
    createdAt: release.created_at,
    updatedAt: release.updated_at,
  }
}

function toAgentBuild(row: AgentBuildRow): AgentBuild {
  const { component, platform, architecture } = row as Build
  const { name, checksum, size, promoted_at: promotedAt } = row
  const rollbackAt = isRollbackTarget(row) ? promotedAt : null
  const what = { component, platform, architecture, name, checksum, size }
  return { build: buildLabel(row), ...what, promotedAt, rollbackAt }
}

/** Whether a build is also offered to machines with a newer version. */
export const isRollbackTarget = ({
  promoted_at,
  rollback_at,
}: Pick<AgentBuildRow, 'promoted_at' | 'rollback_at'>): boolean =>
  promoted_at !== null && rollback_at === promoted_at

/**
 * The lowest version that its manifest allows; undefined when it names none, or was damaged: then agents do not trust
 * it either.
 */
const minimumVersionIn = (release: Pick<AgentReleaseRow, 'manifest'>): string | undefined =>
  manifestOf(release)?.minimumVersion

const manifestOf = ({ manifest }: Pick<AgentReleaseRow, 'manifest'>) =>
  safeParse(Manifest, parseJson(Buffer.from(manifest))).data

/**
 * Checks that no registered release names a higher minimum version. Agents that ran such a release refuse lower
 * versions themselves; this protects the others. @throws below_minimum_version
 */
export function checkMinimumVersion(
  version: string,
  releases: readonly Pick<AgentReleaseRow, 'version' | 'manifest'>[],
): void {
  for (const release of releases) {
    const floor = minimumVersionIn(release)
    if (floor === undefined || !isOlder(version, floor)) continue
    throw new Problem(
      'below_minimum_version',
      `${version} is below ${floor}, which ${release.version} names as the lowest version that agents may go to`,
      { details: { minimumVersion: floor, namedBy: release.version } },
    )
  }
}

/** Whether it names keys for later releases, or a minimum version: both would be forgotten with it. */
function bindsOthers(release: AgentReleaseRow): boolean {
  const { minimumVersion, nextKeys } = manifestOf(release) ?? {}
  return minimumVersion !== undefined || nextKeys !== undefined
}

/**
 * The releases last registered before a time that later ones do not need: they bind none, and no release after them has an
 * oldest version to update from, for which they might be a step.
 */
export const listUnneeded = (
  releases: readonly AgentReleaseRow[],
  before: string,
): readonly AgentReleaseRow[] =>
  releases.filter(
    (one) =>
      one.updated_at < before &&
      !bindsOthers(one) &&
      !releases.some(({ version, min_from }) => min_from !== null && isOlder(one.version, version)),
  )

/** The effect of a promotion: builds that are offered now, and builds that no longer are. */
export type Promotion = { promoted: AgentBuildRow[]; demoted: AgentBuildRow[] }

const isSameKind = (a: AgentBuildRow, b: AgentBuildRow): boolean =>
  a.component === b.component && a.platform === b.platform && a.architecture === b.architecture

/**
 * Compares the version offered to the build's platform with the build: negative when it is older, 0 when equal,
 * positive when newer; undefined when none is offered.
 */
const compareWithOffered = (build: AgentBuildRow, offered: readonly AgentBuildRow[]): number | undefined => {
  const there = offered.find((one) => isSameKind(build, one))
  return there && compareVersions(there.version, build.version)
}

/** @throws rollback_needed when all platforms of the builds are offered a newer version */
export function checkNotDowngrade(
  version: string,
  builds: readonly AgentBuildRow[],
  offered: readonly AgentBuildRow[],
): void {
  if (builds.some((build) => (compareWithOffered(build, offered) ?? 0) <= 0)) return
  const newer = offered.filter((one) => builds.some((build) => isSameKind(build, one)))
  const [highest] = newer
    .map((one) => one.version)
    .sort(compareVersions)
    .slice(-1)
  throw new Problem(
    'rollback_needed',
    `${version} is older than ${highest}, which is offered: svc agent rollback ${version} returns to it`,
    { details: { offered: newer.map((one) => `${buildLabel(one)}@${one.version}`).sort() } },
  )
}

/**
 * The builds replace those of the same platforms that are older, or with `back` newer; platforms without a build keep
 * theirs. Without `anew` builds that are already offered are left unchanged.
 */
export function promotionOf(
  builds: readonly AgentBuildRow[],
  offered: readonly AgentBuildRow[],
  { anew, back = false }: { anew: boolean; back?: boolean },
): Promotion {
  const isOnItsWay = (build: AgentBuildRow): boolean => {
    const order = compareWithOffered(build, offered) ?? 0
    return back ? order >= 0 : order <= 0
  }
  const promoted = builds.filter((build) => isOnItsWay(build) && (anew || build.promoted_at === null))
  const demoted = offered.filter(
    (one) => promoted.some((other) => isSameKind(one, other)) && one.version !== promoted[0]?.version,
  )
  return { promoted, demoted }
}

/**
 * A version that is registered again, for example by a nightly job, must not return machines to it after a roll-back.
 * @throws conflict
 */
export function checkNotRolledBack(
  version: string,
  builds: readonly AgentBuildRow[],
  offered: readonly AgentBuildRow[],
): void {
  const left = offered.filter(isRollbackTarget).find((one) => {
    const isOlderOne = compareVersions(one.version, version) < 0
    return isOlderOne && builds.some((build) => isSameKind(build, one))
  })
  if (!left) return
  const what = `Machines were rolled back to ${left.version}: svc agent promote ${version} offers it again`
  throw new Problem('conflict', what)
}

/** The promotion in the form of replies and the audit log. */
export function promotionSummary({ promoted, demoted }: Promotion) {
  const versions = (builds: readonly AgentBuildRow[]) =>
    Object.fromEntries(builds.map((one) => [buildLabel(one), one.version]).sort())
  return {
    promoted: promoted.map(buildLabel).sort(),
    demoted: demoted.map((one) => `${buildLabel(one)}@${one.version}`).sort(),
    change: { before: versions(demoted), after: versions(promoted) },
  }
}

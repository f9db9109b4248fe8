import { Problem } from '../../core/errors.ts'
import type { AgentBuildRow, AgentReleaseRow } from '../../storage/agent-tables.ts'
import type { AgentBuild, AgentRelease } from './contract.ts'
import { assetFor, type Build, buildNamed, Distrusted, type Manifest, versionOf } from './manifest.ts'
import { isCandidate } from './stepping.ts'

/** A release that was believed, as it is to be registered. */
export type Registration = {
  release: Omit<AgentReleaseRow, 'created_at' | 'updated_at'>
  builds: (Omit<AgentBuildRow, 'promoted_at'> & { label: string })[]
}

/** What was read of a release, and which of its files are there. */
export type Believed = {
  tag: string
  notes: string | null
  manifest: Manifest
  /** The exact text. */
  text: string
  signature: string
  keyId: string
  files: ReadonlyMap<string, { url: string; size: number | undefined }>
}

const mostNotes = 64 << 10

/** @throws Distrusted when the manifest is about something else than was announced */
export function registrationOf({ manifest, files, ...it }: Believed): Registration {
  const version = versionOf(manifest)
  const builds = manifest.assets.flatMap(({ name, sha256, size }) => {
    const [named, file] = [buildNamed(name), files.get(name)]
    if (!named || !file) return []
    if (file.size !== undefined && file.size !== size) {
      const what = `${name} has ${file.size} bytes, and not ${size}`
      throw new Distrusted('release_manifest_metadata_mismatch', what)
    }
    return [{ version, ...named, name, url: file.url, checksum: sha256, size }]
  })
  if (builds.length === 0) {
    const what = 'it lists no file of an agent that the release has'
    throw new Distrusted('release_manifest_metadata_mismatch', what)
  }
  return {
    release: {
      version,
      tag: it.tag,
      prerelease: isCandidate(version) ? 1 : 0,
      // Postgres takes no NUL, and neither takes half a letter.
      notes: it.notes?.replaceAll('\0', '').slice(0, mostNotes).toWellFormed() ?? null,
      min_from: manifest.minFrom ?? null,
      manifest: it.text,
      manifest_signature: it.signature,
      signing_key_id: it.keyId,
    },
    builds,
  }
}

/** @throws release_changed when a version that is there already would become another one */
export function checkUnchanged(known: Pick<AgentReleaseRow, 'manifest'>, { release }: Registration): void {
  if (known.manifest === release.manifest) return
  throw new Problem(
    'release_changed',
    `${release.version} is registered with another manifest: a version that was given out is never another one`,
  )
}

/** @throws Distrusted when what is registered is not what the manifest says */
export function checkRegistered(manifest: Manifest, build: AgentBuildRow): void {
  const asset = assetFor(manifest, build as Build)
  const isSame =
    versionOf(manifest) === build.version &&
    asset.name === build.name &&
    asset.sha256 === build.checksum &&
    asset.size === build.size
  if (!isSame) throw new Distrusted('release_manifest_metadata_mismatch', `${build.name} of ${build.version}`)
}

export const labelOf = ({ name }: Pick<AgentBuildRow, 'name'>): string => buildNamed(name)!.label

export function shown(release: AgentReleaseRow, builds: readonly AgentBuildRow[]): AgentRelease {
  const all = builds.map(shownBuild).sort((a, b) => (a.build < b.build ? -1 : 1))
  return {
    version: release.version,
    tag: release.tag,
    channel: release.prerelease === 1 ? 'candidate' : 'stable',
    minFrom: release.min_from,
    builds: all.map(({ build }) => build),
    promotedFor: all.filter(({ promotedAt }) => promotedAt !== null).map(({ build }) => build),
    notes: release.notes,
    signingKeyId: release.signing_key_id,
    files: all,
    createdAt: release.created_at,
    updatedAt: release.updated_at,
  }
}

function shownBuild(row: AgentBuildRow): AgentBuild {
  const { component, platform, architecture } = row as Build
  const { name, checksum, size, promoted_at: promotedAt } = row
  return { build: labelOf(row), component, platform, architecture, name, checksum, size, promotedAt }
}

/** What a promotion does: which builds are offered by it, and which before. */
export type Promotion = { promoted: AgentBuildRow[]; demoted: AgentBuildRow[] }

/**
 * Builds of a version take the place of those for the same machines; machines that it has no build for keep what they
 * have. Without `anew` what is offered already stays as it is, and counts for nothing.
 */
export function promotionOf(
  builds: readonly AgentBuildRow[],
  offered: readonly AgentBuildRow[],
  { anew }: { anew: boolean },
): Promotion {
  const promoted = builds.filter(({ promoted_at }) => anew || promoted_at === null)
  const isSameKind = (a: AgentBuildRow, b: AgentBuildRow) =>
    a.component === b.component && a.platform === b.platform && a.architecture === b.architecture
  const demoted = offered.filter(
    (one) => promoted.some((other) => isSameKind(one, other)) && one.version !== promoted[0]?.version,
  )
  return { promoted, demoted }
}

/** As replies and the audit log tell of it. */
export function told({ promoted, demoted }: Promotion) {
  const versions = (builds: readonly AgentBuildRow[]) =>
    Object.fromEntries(builds.map((one) => [labelOf(one), one.version]).sort())
  return {
    promoted: promoted.map(labelOf).sort(),
    demoted: demoted.map((one) => `${labelOf(one)}@${one.version}`).sort(),
    change: { before: versions(demoted), after: versions(promoted) },
  }
}

import { agentVersions } from '../../agents/versions/contract.ts'
import {
  architectureOf,
  assetFor,
  type Component,
  type Manifest,
  ManifestError,
  platformOf,
  verifyManifest,
  versionOf,
} from '../../agents/versions/manifest.ts'
import { compareVersions, isDevBuild, isOlder } from '../../agents/versions/semver.ts'
import { ApiError, type Client } from '../../core/client.ts'
import { safeParse } from '../../core/schema.ts'
import { DownloadInfo } from '../replies.ts'
import { UpdateFailure } from './failure.ts'
import type { TrustStore } from './trust-store.ts'

/** What a heartbeat was answered with. `isRollback`: the version may be older than the present one. */
export type Offer = { version: string; isRollback: boolean }

/**
 * An older version is only gone to where the service says that people want that. The mark is worth what the rest of the
 * answer is: it came over TLS from the service that this machine enrolled with. Whoever has that service in hand can set it,
 * and gets no further than to what was signed and is not below the lowest version of a signed release.
 * @throws UpdateFailure `refused`
 */
export function checkNotDowngrade({ version, isRollback }: Offer, present: string): void {
  if (isRollback || !isOlder(version, present)) return
  throw new UpdateFailure('refused', `it is older than ${present}, and was not offered as a roll-back`)
}

/** A file that may take the place of this program, once its content is what a trusted key has signed. */
export type Candidate = { version: string; url: string; sha256: string; size: number }

const component: Component = 'agent'

export type TargetMachine = { platform: string; architecture: string }

/** What the service says of a version for such a machine. @throws UpdateFailure, or what the client throws */
export async function fetchDownloadInfo(
  client: Client,
  version: string,
  machine: TargetMachine,
): Promise<DownloadInfo> {
  const query = { platform: machine.platform, arch: machine.architecture, component }
  // Elsewhere somebody else would say what is to be installed: the client follows no redirect.
  const said = await client.request(agentVersions.info, { params: { version }, query }).catch((error) => {
    throw refusalOf(error, version)
  })
  const info = safeParse(DownloadInfo, said)
  if (!info.success) throw new UpdateFailure('failed', 'the service does not describe the file')
  return info.data
}

function refusalOf(error: unknown, version: string): unknown {
  if (!(error instanceof ApiError)) return error
  if (error.status === 404) return new UpdateFailure('failed', `there is no ${version} for this machine`)
  if (error.code !== 'release_untrusted') return error
  const { reason = error.code } = (error.details ?? {}) as { reason?: string }
  return new UpdateFailure('refused', `the service does not trust it (${reason})`)
}

/**
 * Compares what the service says with what the manifest says, which one of the keys has signed. Keys that it announces are
 * trusted from then on, and the lowest version that it allows is kept. @throws UpdateFailure `refused`
 */
export function verifyCandidate(
  info: DownloadInfo,
  wanted: { version: string; present: string; machine: TargetMachine; trust: TrustStore },
): Candidate {
  try {
    const { manifest, keyId } = verifyManifest(info.manifest, info.manifestSignature, wanted.trust.keys())
    const candidate = checkCandidate(info, manifest, wanted)
    wanted.trust.learn(manifest.nextKeys ?? [], keyId)
    wanted.trust.raise(manifest.minimumVersion)
    return candidate
  } catch (error) {
    if (error instanceof ManifestError)
      throw new UpdateFailure('refused', `${error.message} (${error.reason})`)
    throw error
  }
}

function checkCandidate(
  info: DownloadInfo,
  manifest: Manifest,
  {
    version,
    present,
    machine,
    trust,
  }: { version: string; present: string; machine: TargetMachine; trust: TrustStore },
): Candidate {
  const mismatch = (what: string): ManifestError =>
    new ManifestError('release_manifest_metadata_mismatch', what)
  if (versionOf(manifest) !== version || info.version !== version) {
    throw mismatch(`${version} was offered, and ${manifest.release} is described`)
  }
  const platform = platformOf(machine.platform)
  const architecture = architectureOf(machine.architecture)
  if (!platform || !architecture)
    throw mismatch(`nothing is built for ${machine.platform}/${machine.architecture}`)
  const { sha256, size } = assetFor(manifest, { component, platform, architecture })
  if (info.checksum !== sha256 || info.size !== size) throw mismatch('the file is another one')
  const floor = trust.floor()
  if (floor !== undefined && compareVersions(version, floor) < 0) {
    throw new UpdateFailure(
      'refused',
      `it is below ${floor}, the lowest version that a signed release allows`,
    )
  }
  const { minFrom } = manifest
  if (minFrom !== undefined && !isDevBuild(present) && compareVersions(present, minFrom) < 0) {
    throw new UpdateFailure('refused', `it needs ${minFrom} first`)
  }
  return { version, url: info.url, sha256, size }
}

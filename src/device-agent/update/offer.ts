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

/** A version offered in reply to a heartbeat. `isRollback`: it may be older than the present one. */
export type Offer = { version: string; isRollback: boolean }

/**
 * An older version is accepted only when the service marks it as a roll-back. The mark is as trustworthy as the rest
 * of the reply: it came over TLS from the service that this machine enrolled with. Whoever controls that service can
 * set it, but is limited to signed versions that are not below the minimum of a signed release. @throws UpdateFailure
 * `refused`
 */
export function checkNotDowngrade({ version, isRollback }: Offer, present: string): void {
  if (isRollback || !isOlder(version, present)) return
  throw new UpdateFailure('refused', `it is older than ${present}, and was not offered as a roll-back`)
}

/** A file that may replace this program, once its content is verified. */
export type Candidate = { version: string; url: string; sha256: string; size: number }

const component: Component = 'agent'

export type TargetMachine = { platform: string; architecture: string }

/** The service's description of a version for a platform. @throws UpdateFailure, or an error of the client */
export async function fetchDownloadInfo(
  client: Client,
  version: string,
  machine: TargetMachine,
): Promise<DownloadInfo> {
  const query = { platform: machine.platform, arch: machine.architecture, component }
  // The client follows no redirect: another host must not decide what is installed.
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
 * Verifies the manifest's signature and compares the service's description with it. Keys that the manifest announces
 * are trusted from then on, and its minimum version is stored. @throws UpdateFailure `refused`
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
    throw mismatch(`${version} was offered, but the manifest describes ${manifest.release}`)
  }
  const platform = platformOf(machine.platform)
  const architecture = architectureOf(machine.architecture)
  if (!platform || !architecture)
    throw mismatch(`there is no build for ${machine.platform}/${machine.architecture}`)
  const { sha256, size } = assetFor(manifest, { component, platform, architecture })
  if (info.checksum !== sha256 || info.size !== size) throw mismatch('the file differs from the manifest')
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

import { Problem } from '../../core/errors.ts'
import { ManifestError, parseBuildName, type TrustKey, verifyManifest, versionOf } from './manifest.ts'
import { type PublishedRelease, type ReleaseAsset, ReleaseFailure, type ReleaseSource } from './ports.ts'
import { type ReleaseRegistration, registrationOf } from './rules.ts'
import { isPrerelease } from './upgrade-path.ts'

/**
 * Reads a release, by default the latest stable one, and verifies its manifest. @throws releases_not_configured,
 * release_host_failed, release_refused, not_found
 */
export async function readRelease(
  releases: ReleaseSource | undefined,
  trustKeys: readonly TrustKey[],
  wanted: string | undefined,
): Promise<ReleaseRegistration> {
  if (!releases) throw new Problem('releases_not_configured')
  try {
    return await verifyRelease(await releases.find(wanted), trustKeys, wanted)
  } catch (error) {
    if (error instanceof ManifestError) {
      throw new Problem('release_refused', error.message, { details: { reason: error.reason } })
    }
    if (!(error instanceof ReleaseFailure)) throw error
    const code = error.kind === 'absent' ? 'not_found' : 'release_host_failed'
    throw new Problem(code, error.message, { ...(error.hint && { details: { hint: error.hint } }) })
  }
}

async function verifyRelease(
  announced: PublishedRelease,
  trustKeys: readonly TrustKey[],
  wanted: string | undefined,
): Promise<ReleaseRegistration> {
  const { tag, notes, manifest: bytes } = announced
  if (!bytes || announced.signature === undefined) throw new ManifestError('signed_release_manifest_required')
  const { manifest, keyId } = verifyManifest(bytes, announced.signature, trustKeys)
  const text = bytes.toString('utf8')
  // The manifest is stored as text, and served as exactly these bytes.
  if (!Buffer.from(text).equals(bytes))
    throw new ManifestError('invalid_release_manifest_json', 'it is not UTF-8')
  const version = versionOf(manifest)
  if (version !== versionOf({ release: tag }) || version !== (wanted ?? version)) {
    const what = `it describes ${manifest.release}, but was published as ${tag}`
    throw new ManifestError('release_manifest_metadata_mismatch', what)
  }
  if (wanted === undefined && isPrerelease(version)) {
    throw new ReleaseFailure('host', `The latest release there is a candidate, ${version}`, {
      hint: 'candidates are registered only by name: ?version=',
    })
  }
  const files = new Map<string, ReleaseAsset>()
  for (const { name } of manifest.assets.filter((asset) => parseBuildName(asset.name))) {
    const file = await announced.file(name)
    if (file) files.set(name, file)
  }
  const signature = Buffer.from(announced.signature, 'base64').toString('base64')
  return registrationOf({ tag, notes, manifest, text, signature, keyId, files })
}

import { Problem } from '../../core/errors.ts'
import { believe, buildNamed, Distrusted, type TrustKey, versionOf } from './manifest.ts'
import { type Announced, type AnnouncedFile, ReleaseFailure, type Releases } from './ports.ts'
import { type Registration, registrationOf } from './rules.ts'
import { isCandidate } from './stepping.ts'

/**
 * Reads a release, the latest stable one unless told, and believes what its manifest says.
 * @throws releases_not_configured, release_host_failed, release_refused, not_found
 */
export async function readRelease(
  releases: Releases | undefined,
  trustKeys: readonly TrustKey[],
  wanted: string | undefined,
): Promise<Registration> {
  if (!releases) throw new Problem('releases_not_configured')
  try {
    return await believed(await releases.find(wanted), trustKeys, wanted)
  } catch (error) {
    if (error instanceof Distrusted) {
      throw new Problem('release_refused', error.message, { details: { reason: error.reason } })
    }
    if (!(error instanceof ReleaseFailure)) throw error
    const code = error.kind === 'absent' ? 'not_found' : 'release_host_failed'
    throw new Problem(code, error.message, { ...(error.hint && { details: { hint: error.hint } }) })
  }
}

async function believed(
  announced: Announced,
  trustKeys: readonly TrustKey[],
  wanted: string | undefined,
): Promise<Registration> {
  const { tag, notes, manifest: bytes } = announced
  if (!bytes || announced.signature === undefined) throw new Distrusted('signed_release_manifest_required')
  const { manifest, keyId } = believe(bytes, announced.signature, trustKeys)
  const text = bytes.toString('utf8')
  // It is kept as text, and given out as these very bytes.
  if (!Buffer.from(text).equals(bytes))
    throw new Distrusted('invalid_release_manifest_json', 'it is not UTF-8')
  const version = versionOf(manifest)
  if (version !== versionOf({ release: tag }) || version !== (wanted ?? version)) {
    const what = `it is about ${manifest.release}, and was announced as ${tag}`
    throw new Distrusted('release_manifest_metadata_mismatch', what)
  }
  if (wanted === undefined && isCandidate(version)) {
    throw new ReleaseFailure('host', `The latest release there is a candidate, ${version}`, {
      hint: 'candidates are registered by their name alone: ?version=',
    })
  }
  const files = new Map<string, AnnouncedFile>()
  for (const { name } of manifest.assets.filter((asset) => buildNamed(asset.name))) {
    const file = await announced.file(name)
    if (file) files.set(name, file)
  }
  const signature = Buffer.from(announced.signature, 'base64').toString('base64')
  return registrationOf({ tag, notes, manifest, text, signature, keyId, files })
}

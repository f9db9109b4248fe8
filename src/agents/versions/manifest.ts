import { createPublicKey, hash, type KeyObject, verify } from 'node:crypto'
import { z } from 'zod'
import { parseJson } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import { compareVersions, isVersion } from './semver.ts'

/*
 * The signed description of a release's files, which the release host has as release-manifest.json. The service verifies it before it
 * registers a version, and an agent before it updates: both use this file.
 */

export const components = ['agent', 'helper'] as const
export type Component = (typeof components)[number]
export type Platform = 'windows' | 'macos' | 'linux'
export type Architecture = 'x64' | 'arm64' | 'x86'

const platforms: Readonly<Record<string, Platform>> = {
  windows: 'windows',
  win32: 'windows',
  macos: 'macos',
  darwin: 'macos',
  linux: 'linux',
}
const architectures: Readonly<Record<string, Architecture>> = {
  x64: 'x64',
  amd64: 'x64',
  x86_64: 'x64',
  arm64: 'arm64',
  aarch64: 'arm64',
  x86: 'x86',
  386: 'x86',
  ia32: 'x86',
}

export const platformNames = Object.keys(platforms)
export const architectureNames = Object.keys(architectures)

/** By any of its usual names. */
export const platformOf = (name: string): Platform | undefined => own(platforms, name)
export const architectureOf = (name: string): Architecture | undefined => own(architectures, name)

const own = <T>(names: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(names, name.toLowerCase()) ? names[name.toLowerCase()] : undefined

export type Build = { component: Component; platform: Platform; architecture: Architecture }

/**
 * Program and platform of a file, by its name `svc-<component>-<platform>-<arch>[.exe]`; undefined for any other
 * file.
 */
export function parseBuildName(name: string): (Build & { label: string }) | undefined {
  const [, kind, os, arch, exe] = /^svc-(agent|helper)-([a-z0-9]+)-([a-z0-9_]+)(\.exe)?$/.exec(name) ?? []
  const platform = os === undefined ? undefined : platformOf(os)
  const architecture = arch === undefined ? undefined : architectureOf(arch)
  if (!platform || !architecture || (exe !== undefined) !== (platform === 'windows')) return undefined
  return { component: kind as Component, platform, architecture, label: `${kind}:${os}/${arch}` }
}

function machineOf(name: string): string | undefined {
  const named = parseBuildName(name)
  return named && `${named.component} ${named.platform} ${named.architecture}`
}

const areUnique = (all: readonly string[]): boolean => new Set(all).size === all.length

const ManifestAsset = z.object({
  name: z.string().min(1).max(255),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  size: z
    .int()
    .min(1)
    .max(2 ** 40),
})
export type ManifestAsset = z.output<typeof ManifestAsset>

export const Manifest = z
  .object({
    schemaVersion: z.literal(1),
    /** The tag: `v` and the version. */
    release: z.string().refine((tag) => isVersion(tag.replace(/^v/, ''))),
    repository: z.string().max(500).optional(),
    sourceCommit: z.string().max(100).optional(),
    /** The oldest version that can update to this one directly. */
    minFrom: z.string().refine(isVersion).optional(),
    /**
     * Agents that have read this manifest refuse versions below this one for ever: it protects from a return to a
     * vulnerable version.
     */
    minimumVersion: z.string().refine(isVersion).optional(),
    /** Keys that may sign later releases: whoever trusts this manifest trusts them. */
    nextKeys: z
      .array(z.object({ publicKeyB64: z.string() }))
      .max(10)
      .optional(),
    assets: z.array(ManifestAsset).min(1).max(500),
  })
  .refine(({ minFrom, ...of }) => minFrom === undefined || compareVersions(minFrom, versionOf(of)) < 0)
  .refine(
    ({ minimumVersion: floor, ...of }) => floor === undefined || compareVersions(floor, versionOf(of)) <= 0,
  )
  // Two files for one platform, under two of its names, would be ambiguous.
  .refine(({ assets }) => areUnique(assets.flatMap(({ name }) => machineOf(name) ?? name)))
export type Manifest = z.output<typeof Manifest>

export type TrustKey = { keyId: string; publicKeyB64: string; validFrom: string | null }

const spkiPrefix = Buffer.from('302a300506032b6570032100', 'hex')

/** Parses an Ed25519 public key: 32 raw bytes in base64, SPKI in base64, or PEM. @throws Error for anything else */
export function parseTrustKey(text: string, validFrom: string | null = null): TrustKey {
  const raw = rawKeyOf(text.trim())
  return { keyId: hash('sha256', raw, 'hex').slice(0, 16), publicKeyB64: raw.toString('base64'), validFrom }
}

function rawKeyOf(text: string): Buffer {
  const bytes = text.startsWith('-----BEGIN') ? undefined : Buffer.from(text, 'base64')
  if (bytes?.length === 32) return bytes
  const key = bytes
    ? createPublicKey({ key: bytes, format: 'der', type: 'spki' })
    : createPublicKey({ key: text, format: 'pem' })
  if (key.asymmetricKeyType !== 'ed25519') throw new Error('not an Ed25519 public key')
  return key.export({ format: 'der', type: 'spki' }).subarray(spkiPrefix.length)
}

const keyObjectOf = ({ publicKeyB64 }: Pick<TrustKey, 'publicKeyB64'>): KeyObject => {
  const der = Buffer.concat([spkiPrefix, Buffer.from(publicKeyB64, 'base64')])
  return createPublicKey({ key: der, format: 'der', type: 'spki' })
}

/** Why a manifest is not trusted; the keys are API (`details.reason`). */
export const manifestFaults = {
  no_trusted_keys: 'No trusted release key is configured',
  signed_release_manifest_required: 'The release has no signed manifest',
  invalid_release_manifest_signature: 'The signature of the release manifest is not by a trusted key',
  invalid_release_manifest_json: 'The release manifest does not have a known format',
  release_manifest_metadata_mismatch: 'The release manifest describes another release',
} as const
export type ManifestFault = keyof typeof manifestFaults

export class ManifestError extends Error {
  override name = 'ManifestError'
  readonly reason: ManifestFault

  constructor(reason: ManifestFault, about?: string) {
    super(about ? `${manifestFaults[reason]}: ${about}` : manifestFaults[reason])
    this.reason = reason
  }
}

/**
 * Verifies and parses a manifest signed by one of the keys over exactly these bytes; `signature` is 64 bytes in
 * base64. @throws ManifestError
 */
export function verifyManifest(
  text: string | Buffer,
  signature: string,
  keys: readonly TrustKey[],
): { manifest: Manifest; keyId: string } {
  if (keys.length === 0) throw new ManifestError('no_trusted_keys')
  const bytes = Buffer.from(text as string)
  const mark = Buffer.from(signature.trim(), 'base64')
  const signer = mark.length === 64 && keys.find((key) => verify(null, bytes, keyObjectOf(key), mark))
  if (!signer) throw new ManifestError('invalid_release_manifest_signature')
  const read = safeParse(Manifest, parseJson(bytes))
  if (!read.success) throw new ManifestError('invalid_release_manifest_json')
  return { manifest: read.data, keyId: signer.keyId }
}

/** The version that a manifest describes, without the v of its tag. */
export const versionOf = ({ release }: { release: string }): string => release.replace(/^v/, '')

/** The file of the release for a program and platform. @throws ManifestError when there is none */
export function assetFor(manifest: Manifest, build: Build): ManifestAsset {
  const found = manifest.assets.find(({ name }) => {
    const named = parseBuildName(name)
    return (
      named?.component === build.component &&
      named.platform === build.platform &&
      named.architecture === build.architecture
    )
  })
  if (found) return found
  const { component, platform, architecture } = build
  throw new ManifestError(
    'release_manifest_metadata_mismatch',
    `no ${component} for ${platform}/${architecture} in ${manifest.release}`,
  )
}

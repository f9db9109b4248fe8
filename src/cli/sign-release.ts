import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
} from 'node:crypto'
import { createReadStream, existsSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import {
  type Manifest,
  type ManifestAsset,
  ManifestError,
  parseBuildName,
  parseTrustKey,
  verifyManifest,
} from '../agents/versions/manifest.ts'
import { compareVersions, isVersion } from '../agents/versions/semver.ts'
import { readBytes } from './ask.ts'
import { CliError, usageError } from './exit-codes.ts'
import { checkPrivateFile, writePrivateFile } from './files.ts'
import { type Output, printNote, printRecord } from './print.ts'
import { progressBar } from './progress.ts'

export type SignFlags = {
  version: string
  'key-file'?: string | undefined
  'new-key'?: string | undefined
  'min-from'?: string | undefined
  'minimum-version'?: string | undefined
}

const manifestName = 'release-manifest.json'

/** Writes the manifest of the files in a folder beside them, with its signature. */
export async function signRelease(output: Output, folder: string, flags: SignFlags): Promise<void> {
  const version = versionFrom(flags.version, '--version')
  const minFrom = flags['min-from'] === undefined ? undefined : versionFrom(flags['min-from'], '--min-from')
  if (minFrom !== undefined && compareVersions(minFrom, version) >= 0) {
    throw usageError(`--min-from ${minFrom} does not come before --version ${version}`)
  }
  const lowest = flags['minimum-version']
  const minimumVersion = lowest === undefined ? undefined : versionFrom(lowest, '--minimum-version')
  if (minimumVersion !== undefined && compareVersions(minimumVersion, version) > 0) {
    throw usageError(`--minimum-version ${minimumVersion} comes after --version ${version}`)
  }
  const names = buildsIn(folder)
  const { key, next } = keysFrom(flags)
  const assets = await assetsOf(folder, names)
  const manifest: Manifest = {
    schemaVersion: 1,
    release: `v${version}`,
    ...(minFrom !== undefined && { minFrom }),
    ...(minimumVersion !== undefined && { minimumVersion }),
    ...(next && { nextKeys: [{ publicKeyB64: next.publicKeyB64 }] }),
    assets,
  }
  const text = `${JSON.stringify(manifest, null, 2)}\n`
  const signature = sign(null, Buffer.from(text), key).toString('base64')
  const own = publicOf(key)
  // The same check as in the service and in agents.
  try {
    verifyManifest(text, signature, [own])
  } catch (error) {
    if (!(error instanceof ManifestError)) throw error
    throw usageError(
      `No agent would accept this manifest: ${error.message}`,
      'each kind of machine has one file: svc-agent-linux-amd64 and svc-agent-linux-x64 are the same',
    )
  }
  writeNewFile(join(folder, manifestName), text)
  writeNewFile(join(folder, `${manifestName}.sig`), `${signature}\n`)
  const made = {
    version,
    builds: names.map((name) => parseBuildName(name)!.label),
    publicKey: own.publicKeyB64,
  }
  const record = {
    ...made,
    keyId: own.keyId,
    ...(next && { nextPublicKey: next.publicKeyB64, nextKeyId: next.keyId }),
  }
  await printRecord(output, record, undefined, () => {
    printNote(`${manifestName} and ${manifestName}.sig are written, for ${made.builds.join(', ')}`)
    const keys = [own, ...(next ? [next] : [])].map(({ publicKeyB64 }) => publicKeyB64)
    return `RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS=${keys.join(',')}\n`
  })
}

function versionFrom(said: string, flag: string): string {
  const version = said.replace(/^v/, '')
  if (isVersion(version)) return version
  throw usageError(`${flag} takes a version such as 1.2.3 or 1.3.0-rc.1, not "${said}"`)
}

/** Files with names of builds, sorted. */
function buildsIn(folder: string): string[] {
  let names: string[]
  try {
    names = readdirSync(folder).sort()
  } catch (error) {
    throw usageError(`Cannot read ${folder}: ${(error as NodeJS.ErrnoException).code}`)
  }
  const builds = names.filter((name) => parseBuildName(name) && statSync(join(folder, name)).isFile())
  if (builds.length > 0) return builds
  throw usageError(
    `There is no file of an agent in ${folder}`,
    'they are named svc-agent-<platform>-<arch>, such as svc-agent-linux-amd64 or svc-agent-windows-amd64.exe',
  )
}

/**
 * The signing key, and the key that later releases may be signed with. Without an old key the new one signs: it is
 * the first.
 */
function keysFrom(flags: SignFlags): { key: KeyObject; next?: ReturnType<typeof publicOf> } {
  const [old, fresh] = [flags['key-file'], flags['new-key']]
  if (old === undefined && fresh === undefined) {
    throw usageError('Missing --key-file', '--new-key FILE creates a key and signs with it')
  }
  const key = old === undefined ? undefined : readReleaseKey(old, '--key-file')
  const made =
    fresh === undefined ? undefined : existsSync(fresh) ? readReleaseKey(fresh, '--new-key') : makeKey(fresh)
  if (key === undefined) return { key: made! }
  return { key, ...(made && { next: publicOf(made) }) }
}

/** A key that signs releases. @throws CliError unless it is an Ed25519 private key that others cannot read */
export function readReleaseKey(path: string, flag: string): KeyObject {
  checkPrivateFile(path, flag)
  let key: KeyObject | undefined
  try {
    key = createPrivateKey(readBytes(path, flag))
  } catch {
    // The parser's message may contain the key.
  }
  if (key?.asymmetricKeyType === 'ed25519') return key
  throw usageError(
    `${path} is not an Ed25519 private key in PEM`,
    'svc agent sign-release DIR --new-key FILE creates one',
  )
}

function makeKey(path: string): KeyObject {
  const { privateKey } = generateKeyPairSync('ed25519')
  writePrivateFile(path, privateKey.export({ format: 'pem', type: 'pkcs8' }).toString())
  printNote(
    `A new key is in ${path} (mode 0600). Keep it apart from the service: whoever has it can make agents run anything.`,
  )
  return privateKey
}

export const publicOf = (key: KeyObject) =>
  parseTrustKey(createPublicKey(key).export({ format: 'der', type: 'spki' }).toString('base64'))

async function assetsOf(folder: string, names: readonly string[]): Promise<ManifestAsset[]> {
  const total = names.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0)
  const shown = progressBar('Reading', 'bytes', total)
  let done = 0
  try {
    const assets: ManifestAsset[] = []
    for (const name of names) {
      const hash = createHash('sha256')
      let size = 0
      await pipeline(
        createReadStream(join(folder, name)),
        async function* (pieces: AsyncIterable<Buffer>) {
          for await (const piece of pieces) {
            size += piece.length
            done += piece.length
            shown.done(done)
            yield piece
          }
        },
        hash,
      )
      assets.push({ name, sha256: hash.digest('hex'), size })
    }
    return assets
  } finally {
    shown.end()
  }
}

function writeNewFile(path: string, text: string): void {
  try {
    writeFileSync(path, text)
  } catch (error) {
    throw new CliError(`Cannot write ${path}: ${(error as Error).message}`, { cause: error })
  }
}

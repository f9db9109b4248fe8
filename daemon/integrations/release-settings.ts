import { resolve } from 'node:path'
import { parseTrustKey, type TrustKey } from '../../src/agents/versions/manifest.ts'
import { SetupError } from '../../src/core/errors.ts'
import { type Env, readSecretVariable, readUrl } from '../variables.ts'
import { readS3, type S3Settings } from './s3-settings.ts'

/** The source of agent releases, their trusted keys, and the source of their files. */
export type ReleaseSettings = {
  /** RELEASE_API_URL: base of a repository in a GitHub-compatible API. */
  api: { url: string; token: string | undefined } | undefined
  /** RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: trusted keys of releases. */
  trustKeys: readonly TrustKey[]
  /** BINARY_SOURCE */
  source: 'release-host' | 'local'
  /** AGENT_BINARY_DIR */
  directory: string | undefined
  /** AGENT_BINARY_S3_… */
  storage: S3Settings | undefined
}

/** @throws SetupError */
export function readReleases(env: Env): ReleaseSettings {
  const url = readUrl(env, 'RELEASE_API_URL')
  const token = readSecretVariable(env, 'RELEASE_API_TOKEN')
  if (url === undefined && token !== undefined) {
    throw new SetupError('RELEASE_API_TOKEN is set, but not RELEASE_API_URL')
  }
  const source = env.BINARY_SOURCE || 'release-host'
  if (source !== 'release-host' && source !== 'local') {
    throw new SetupError('BINARY_SOURCE must be release-host or local')
  }
  const directory = env.AGENT_BINARY_DIR ? resolve(env.AGENT_BINARY_DIR) : undefined
  const storage = readS3(env, 'AGENT_BINARY_S3_')
  if (source === 'local' && directory === undefined && storage === undefined) {
    throw new SetupError(
      'BINARY_SOURCE is local: set AGENT_BINARY_DIR or AGENT_BINARY_S3_BUCKET to where the files are',
    )
  }
  return {
    api: url === undefined ? undefined : { url, token },
    trustKeys: readKeys(env),
    source,
    directory,
    storage,
  }
}

const keysName = 'RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS'

/** Keys in any format of `parseTrustKey`, separated by commas or blanks. */
function readKeys(env: Env): TrustKey[] {
  const text = readSecretVariable(env, keysName)?.replaceAll('\\n', '\n') ?? ''
  const spelled = text.match(/-----BEGIN PUBLIC KEY-----[^-]+-----END PUBLIC KEY-----|[^\s,]+/g) ?? []
  const keys = spelled.map((one, i) => {
    try {
      return parseTrustKey(one)
    } catch {
      // It may be a private key by mistake: the message must not contain it.
      throw new SetupError(
        `${keysName} must be Ed25519 public keys, in base64 or PEM, separated by commas: number ${i + 1} is not one`,
      )
    }
  })
  return [...new Map(keys.map((key) => [key.keyId, key])).values()]
}

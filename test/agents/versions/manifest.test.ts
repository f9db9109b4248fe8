import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import {
  assetFor,
  parseBuildName,
  parseTrustKey,
  verifyManifest,
} from '../../../src/agents/versions/manifest.ts'
import { compareVersions, isVersion } from '../../../src/agents/versions/semver.ts'

const pair = () => generateKeyPairSync('ed25519')
const spki = (key: KeyObject) => key.export({ format: 'der', type: 'spki' })
const asset = { name: 'svc-agent-linux-amd64', sha256: 'a'.repeat(64), size: 5 }
const manifest = { schemaVersion: 1, release: 'v1.2.3', assets: [asset] }
const signed = (key: KeyObject, text = JSON.stringify(manifest)) => ({
  text,
  signature: sign(null, Buffer.from(text), key).toString('base64'),
})

describe('the signed manifest of a release', () => {
  it('is verified with a key in any encoding, and the key is named', () => {
    const { publicKey, privateKey } = pair()
    const { text, signature } = signed(privateKey)
    const der = spki(publicKey)
    const spellings = [
      der.subarray(12).toString('base64'),
      der.toString('base64'),
      publicKey.export({ format: 'pem', type: 'spki' }).toString(),
    ]
    const keys = spellings.map((one) => parseTrustKey(one))
    expect(new Set(keys.map(({ keyId }) => keyId)).size).toBe(1)
    for (const key of keys) {
      const read = verifyManifest(text, signature, [
        parseTrustKey(spki(pair().publicKey).toString('base64')),
        key,
      ])
      expect(read.keyId).toBe(key.keyId)
      expect(assetFor(read.manifest, { component: 'agent', platform: 'linux', architecture: 'x64' })).toEqual(
        asset,
      )
    }
  })

  it.each([
    [
      'another key',
      'invalid_release_manifest_signature',
      (text: string) => ({ text, key: pair().privateKey }),
    ],
    ['one byte more', 'invalid_release_manifest_signature', (text: string) => ({ text: `${text} ` })],
    [
      'an invalid signature',
      'invalid_release_manifest_signature',
      (text: string) => ({ text, mark: 'AA==' }),
    ],
    ['no keys', 'no_trusted_keys', (text: string) => ({ text, keys: [] })],
  ])('is rejected with %s', (_, reason, change) => {
    const { publicKey, privateKey } = pair()
    const good = signed(privateKey)
    const changed: { text: string; key?: KeyObject; mark?: string; keys?: [] } = change(good.text)
    const signature =
      changed.mark ?? (changed.key ? signed(changed.key, changed.text).signature : good.signature)
    const keys = changed.keys ?? [parseTrustKey(spki(publicKey).toString('base64'))]
    expect(() => verifyManifest(changed.text, signature, keys)).toThrow(expect.objectContaining({ reason }))
  })

  const unreachable = JSON.stringify({ ...manifest, minFrom: '1.2.3' })
  const below = JSON.stringify({ ...manifest, minimumVersion: '1.2.4' })
  const twice = JSON.stringify({ ...manifest, assets: [asset, { ...asset, name: 'svc-agent-linux-x64' }] })
  it.each(['{}', '[', '{"schemaVersion":1,"release":"v1","assets":[]}', unreachable, below, twice])(
    'is rejected in the form %s',
    (text) => {
      const { publicKey, privateKey } = pair()
      const { signature } = signed(privateKey, text)
      const keys = [parseTrustKey(spki(publicKey).toString('base64'))]
      expect(() => verifyManifest(text, signature, keys)).toThrow(
        expect.objectContaining({ reason: 'invalid_release_manifest_json' }),
      )
    },
  )

  it('accepts no other kinds of keys', () => {
    const { publicKey } = generateKeyPairSync('x25519')
    expect(() => parseTrustKey(spki(publicKey).toString('base64'))).toThrow()
    expect(() => parseTrustKey('short')).toThrow()
  })
})

it.each([
  ['svc-agent-linux-amd64', 'agent:linux/amd64', 'linux', 'x64'],
  ['svc-agent-linux-x64', 'agent:linux/x64', 'linux', 'x64'],
  ['svc-helper-darwin-arm64', 'helper:darwin/arm64', 'macos', 'arm64'],
  ['svc-agent-windows-x86_64.exe', 'agent:windows/x86_64', 'windows', 'x64'],
])('%s is %s', (name, label, platform, architecture) => {
  expect(parseBuildName(name)).toMatchObject({ label, platform, architecture })
})

it.each([
  'svc-agent-linux-amd64.exe',
  'svc-agent-windows-amd64',
  'svc-viewer-linux-amd64',
  'svc-agent-plan9-amd64',
  'svc-agent-linux-constructor',
  'svc-agent-linux-amd64.sha256',
  'release-manifest.json',
])('%s is not a build', (name) => {
  expect(parseBuildName(name)).toBeUndefined()
})

it('versions are ordered as semantic versions, other texts come first', () => {
  const inOrder = ['dev-1', '0.9.9', '1.0.0-rc.2', '1.0.0-rc.10', '1.0.0', '1.2.0', '1.10.0']
  expect([...inOrder].reverse().sort(compareVersions)).toEqual(inOrder)
  expect(['1.2', 'v1.2.3', '1.2.3+build', '', `1.0.0-${'x'.repeat(20)}`].map(isVersion)).toEqual(
    Array(5).fill(false),
  )
})

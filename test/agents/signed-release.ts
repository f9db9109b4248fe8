import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto'
import type { Manifest } from '../../src/agents/versions/manifest.ts'
import { parseTrustKey } from '../../src/agents/versions/manifest.ts'

/** Keys of a test: the same number gives the same key, so that runs are comparable. */
export function keyOf(number: number) {
  const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')
  const der = Buffer.concat([pkcs8, Buffer.alloc(32, number)])
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  const spki = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).toString('base64')
  return { privateKey, publicKey: spki, trustKey: parseTrustKey(spki) }
}

/** The key that services in tests trust by default. */
export const releaseKey = keyOf(1)

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

const usualFiles = ['svc-agent-linux-amd64', 'svc-agent-linux-arm64', 'svc-agent-windows-amd64.exe']

/** The content of a file that no test reads. */
export const contentOf = (name: string, version: string): Buffer => Buffer.from(`${name} ${version}\n`)

export type SignedRelease = {
  tag: string
  version: string
  files: ReadonlyMap<string, Buffer>
  manifest: Buffer
  signature: string
}

/** A release with its signed manifest. `files`: their names, or their contents. */
export function signedRelease(
  version: string,
  {
    files = usualFiles,
    key = releaseKey.privateKey,
    ...more
  }: Partial<Manifest> & {
    files?: readonly string[] | Readonly<Record<string, Buffer>>
    key?: KeyObject
  } = {},
): SignedRelease {
  const contents = new Map(
    Array.isArray(files)
      ? files.map((name: string) => [name, contentOf(name, version)] as const)
      : Object.entries(files as Readonly<Record<string, Buffer>>),
  )
  const assets = [...contents].map(([name, bytes]) => ({ name, sha256: sha256(bytes), size: bytes.length }))
  const content: Manifest = { schemaVersion: 1, release: `v${version}`, assets, ...more }
  const manifest = Buffer.from(`${JSON.stringify(content, null, 2)}\n`)
  const signature = sign(null, manifest, key).toString('base64')
  return { tag: `v${version}`, version, files: contents, manifest, signature }
}

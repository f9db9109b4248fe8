import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto'
import type { Manifest } from '../../src/agents/versions/manifest.ts'
import { parseTrustKey } from '../../src/agents/versions/manifest.ts'

/** Keys of a test: the same number gives the same key, so that sessions can be compared. */
export function keyOf(number: number) {
  const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')
  const der = Buffer.concat([pkcs8, Buffer.alloc(32, number)])
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  const spki = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).toString('base64')
  return { privateKey, publicKey: spki, trustKey: parseTrustKey(spki) }
}

/** Whom services of tests believe, unless told. */
export const releaseKey = keyOf(1)

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

const usualFiles = ['svc-agent-linux-amd64', 'svc-agent-linux-arm64', 'svc-agent-windows-amd64.exe']

/** What is in a file that nobody looks into. */
export const contentOf = (name: string, version: string): Buffer => Buffer.from(`${name} ${version}\n`)

export type SignedRelease = {
  tag: string
  version: string
  files: ReadonlyMap<string, Buffer>
  manifest: Buffer
  signature: string
}

/** A release with its manifest, signed. `files`: their names, or what is in them. */
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
  const said: Manifest = { schemaVersion: 1, release: `v${version}`, assets, ...more }
  const manifest = Buffer.from(`${JSON.stringify(said, null, 2)}\n`)
  const signature = sign(null, manifest, key).toString('base64')
  return { tag: `v${version}`, version, files: contents, manifest, signature }
}

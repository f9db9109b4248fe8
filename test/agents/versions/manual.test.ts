import { createHash, createPublicKey, verify } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { manifestFaults, parseTrustKey, verifyManifest } from '../../../src/agents/versions/manifest.ts'
import { contentOf, sha256 } from '../signed-release.ts'

const page = readFileSync(new URL('../../../man/svc-agent.7.md', import.meta.url), 'utf8')
/** The first indented block of the page with this start, without its indentation. */
const block = (start: RegExp): string =>
  [...page.matchAll(/(?:^ {4}.*\n|^\n(?= {4}))+/gm)]
    .map(([text]) => text.replace(/^ {4}/gm, '').replace(/^\n+/, ''))
    .find((text) => start.test(text)) ?? ''

const manifest = block(/^\{/)
const signature = block(/^[\w+/]{86}==\n$/)
const [, key = '', keyId = ''] = /Signed with the key `([^`]+)`, whose id is `([^`]+)`/.exec(page) ?? []

describe('the example release in man/svc-agent.7', () => {
  it('verifies, and its files match it', () => {
    const read = verifyManifest(manifest, signature, [parseTrustKey(key)])
    expect(read).toMatchObject({ keyId, manifest: { release: 'v1.3.0', minFrom: '1.2.0' } })
    for (const { name, sha256: checksum, size } of read.manifest.assets) {
      const bytes = contentOf(name, '1.3.0')
      expect([sha256(bytes), bytes.length]).toEqual([checksum, size])
    }
  })

  it('verifies with the page alone', () => {
    const raw = Buffer.from(key, 'base64')
    expect(raw).toHaveLength(32)
    expect(createHash('sha256').update(raw).digest('hex').slice(0, 16)).toBe(keyId)
    const jwk = { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }
    const publicKey = createPublicKey({ key: jwk, format: 'jwk' })
    const signatureBytes = Buffer.from(signature, 'base64')
    expect(verify(null, Buffer.from(manifest), publicKey, signatureBytes)).toBe(true)
    expect(verify(null, Buffer.from(manifest.trimEnd()), publicKey, signatureBytes)).toBe(false)
  })

  it('comes with every reason for a rejection', () => {
    const reasons = [...page.matchAll(/^\| .* \| `(\w+)` \|$/gm)].map(([, reason]) => reason)
    expect(reasons).toEqual(Object.keys(manifestFaults))
  })
})

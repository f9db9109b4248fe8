import { generateKeyPairSync } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readReleases } from '../../../daemon/integrations/release-settings.ts'
import { parseTrustKey } from '../../../src/agents/versions/manifest.ts'
import { temporaryFolder } from '../../databases.ts'

const name = 'RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS'
const pair = () => generateKeyPairSync('ed25519')
const pem = (key: ReturnType<typeof pair>['publicKey']) =>
  key.export({ format: 'pem', type: 'spki' }).toString()
const base64 = (key: ReturnType<typeof pair>['publicKey']) =>
  key.export({ format: 'der', type: 'spki' }).toString('base64')

describe('the trusted release keys', () => {
  it('are read in any encoding and mixture, each once', async () => {
    const [one, two] = [pair().publicKey, pair().publicKey]
    const wanted = [one, two].map((key) => parseTrustKey(base64(key)))
    const spellings = [
      `${base64(one)},${base64(two)}`,
      ` ${base64(one)} ,\n ${base64(two)},${base64(one)},`,
      `${pem(one)}${pem(two)}`,
      `${base64(one)},${pem(two)}`,
      `${pem(one)},${wanted[1]!.publicKeyB64}`.replaceAll('\n', '\\n'),
    ]
    for (const text of spellings) expect(readReleases({ [name]: text }).trustKeys).toEqual(wanted)
    const file = join(await temporaryFolder(), 'keys.pem')
    await writeFile(file, `${pem(one)}${pem(two)}`)
    expect(readReleases({ [`${name}_FILE`]: file }).trustKeys).toEqual(wanted)
    expect(readReleases({}).trustKeys).toEqual([])
  })

  it.each([
    ['half a key', base64(pair().publicKey).slice(0, 20)],
    ['a private key', pair().privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()],
    ['a key of another kind', base64(generateKeyPairSync('x25519').publicKey as never)],
    ['a PEM that is cut off', '-----BEGIN PUBLIC KEY-----\nMCow'],
  ])('stop the start when %s is among them, which is not shown', (_, text) => {
    const good = base64(pair().publicKey)
    const said = expect.objectContaining({
      name: 'SetupError',
      message: expect.stringMatching(
        new RegExp(`^${name} must be Ed25519 public keys, .* number 2 is not one$`),
      ),
    })
    expect(() => readReleases({ [name]: `${good},${text}` })).toThrow(said)
  })
})

describe('the source of releases and files', () => {
  it.each([
    [{ RELEASE_API_TOKEN: 'x' }, 'RELEASE_API_TOKEN is set, but not RELEASE_API_URL'],
    [{ RELEASE_API_URL: 'ftp://x' }, 'RELEASE_API_URL must be an address'],
    [{ BINARY_SOURCE: 'elsewhere' }, 'BINARY_SOURCE must be release-host or local'],
    [{ BINARY_SOURCE: 'local' }, 'set AGENT_BINARY_DIR or AGENT_BINARY_S3_BUCKET'],
    [{ AGENT_BINARY_S3_PREFIX: 'x' }, 'AGENT_BINARY_S3_PREFIX is set, but not AGENT_BINARY_S3_BUCKET'],
  ])('cannot be set by %o', (env, message) => {
    expect(() => readReleases(env)).toThrow(message)
  })

  it('is the release host by default', () => {
    expect(readReleases({})).toMatchObject({ source: 'release-host', api: undefined, storage: undefined })
    const url = 'https://api.github.com/repos/example/svc'
    expect(readReleases({ RELEASE_API_URL: `${url}/`, RELEASE_API_TOKEN: 't' }).api).toEqual({
      url,
      token: 't',
    })
    const local = { BINARY_SOURCE: 'local', AGENT_BINARY_DIR: '/srv/agents', AGENT_BINARY_S3_BUCKET: 'b' }
    expect(readReleases(local)).toMatchObject({
      source: 'local',
      directory: '/srv/agents',
      storage: { bucket: 'b', prefix: '' },
    })
  })
})

import S3rver from 's3rver'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { inTurn, temporaryFolder } from '../../databases.ts'
import { serviceOn, startService } from '../../harness.ts'
import { systemToken } from '../../world.ts'
import { putRelease } from '../directory.ts'
import { releaseHost } from '../release-host.ts'
import { signatureFor } from '../signed-address.ts'
import { sha256, signedRelease } from '../signed-release.ts'

const linux = 'svc-agent-linux-amd64'
const path = '/api/v1/agents/download/linux/amd64'
const query = { platform: 'linux', arch: 'amd64' } as const
const manually = { redirect: 'manual' } as const

let s3: S3rver
let endpoint: string
const credentials = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' }

beforeAll(async () => {
  s3 = new S3rver({
    port: 0,
    address: '127.0.0.1',
    silent: true,
    directory: await temporaryFolder(),
    configureBuckets: [{ name: 'agents', configs: [] }],
  })
  endpoint = `http://127.0.0.1:${(await s3.run()).port}`
})
afterAll(() => s3.close())

async function put(key: string, body: Buffer): Promise<void> {
  const { S3Client, PutObjectCommand } = await import('@aws-sdk/client-s3')
  const client = new S3Client({ endpoint, region: 'us-east-1', credentials, forcePathStyle: true })
  await client.send(new PutObjectCommand({ Bucket: 'agents', Key: key, Body: body }))
}

const stored = (more: Record<string, string> = {}) => ({
  BINARY_SOURCE: 'local',
  AGENT_BINARY_S3_BUCKET: 'agents',
  AGENT_BINARY_S3_PREFIX: 'releases',
  AGENT_BINARY_S3_ENDPOINT: endpoint,
  AGENT_BINARY_S3_ACCESS_KEY_ID: credentials.accessKeyId,
  AGENT_BINARY_S3_SECRET_ACCESS_KEY: credentials.secretAccessKey,
  OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
  ...more,
})

inTurn((open) => {
  async function start(env: Record<string, string>) {
    const service = await startService(open, { env })
    const client = service.client(await systemToken(service))
    return { service, client, get: (at = path) => fetch(`${service.url}${at}`, manually) }
  }

  describe('files at the release host', () => {
    it('are downloaded by an uncached redirect', async () => {
      const host = await releaseHost()
      const release = signedRelease('1.0.0')
      host.publish(release)
      const { service, client, get } = await start(host.env())
      await client.call(api.agentVersions.sync)
      for (const method of ['GET', 'HEAD']) {
        const reply = await fetch(`${service.url}${path}`, { ...manually, method })
        expect([reply.status, reply.headers.get('location'), reply.headers.get('cache-control')]).toEqual([
          302,
          `${host.url}/files/v1.0.0/${linux}`,
          'no-store',
        ])
      }
      const followed = await fetch(`${service.url}${path}`)
      expect(Buffer.from(await followed.arrayBuffer()).equals(release.files.get(linux)!)).toBe(true)
      expect((await get('/api/v1/agents/download/darwin/arm64')).status).toBe(404)
      // The service itself fetched only the signed manifest.
      expect(host.asked.filter(({ path: at }) => at.startsWith('/files/')).map(({ path: at }) => at)).toEqual(
        [
          '/files/v1.0.0/release-manifest.json',
          '/files/v1.0.0/release-manifest.json.sig',
          `/files/v1.0.0/${linux}`,
        ],
      )
    })

    it('are not found when the release came from a directory', async () => {
      const directory = await temporaryFolder()
      await putRelease(directory, signedRelease('1.0.0'))
      const local = {
        BINARY_SOURCE: 'local',
        AGENT_BINARY_DIR: directory,
        OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
      }
      const { client, service } = await start(local)
      await client.call(api.agentVersions.sync)
      await service.close()
      const moved = await serviceOn(service, { env: { OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' } })
      expect((await fetch(`${moved.url}${path}`, manually)).status).toBe(404)
      const info = moved.client().call(api.agentVersions.info, { params: { version: '1.0.0' }, query })
      await expect(info).rejects.toThrow(
        expect.objectContaining({ status: 404, message: 'Binary not found' }),
      )
    })
  })

  describe('files in object storage', () => {
    it('are downloaded by a redirect to a URL that is signed for 15 minutes', async () => {
      const host = await releaseHost()
      const release = signedRelease('1.0.0')
      host.publish(release)
      const { client, get, service } = await start(stored(host.env()))
      await client.call(api.agentVersions.sync)
      const bytes = release.files.get(linux)!
      await put(`releases/1.0.0/${linux}`, bytes)
      const reply = await get()
      const location = new URL(reply.headers.get('location')!)
      expect([reply.status, location.origin, location.pathname]).toEqual([
        302,
        endpoint,
        `/agents/releases/1.0.0/${linux}`,
      ])
      expect(Object.fromEntries(location.searchParams)).toMatchObject({
        'X-Amz-Expires': '900',
        'X-Amz-SignedHeaders': 'host',
        'X-Amz-Signature': expect.stringMatching(/^[0-9a-f]{64}$/),
      })
      const fetched = await fetch(location)
      expect([fetched.status, sha256(Buffer.from(await fetched.arrayBuffer()))]).toEqual([200, sha256(bytes)])
      const part = await fetch(location, { headers: { range: 'bytes=2-5' } })
      expect([part.status, Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(2, 6))]).toEqual([
        206,
        true,
      ])

      const signature = location.searchParams.get('X-Amz-Signature')
      expect(signature).toBe(signatureFor(location, credentials.secretAccessKey))
      const another = new URL(location)
      another.pathname = another.pathname.replace('amd64', 'arm64')
      expect(signature).not.toBe(signatureFor(another, credentials.secretAccessKey))

      const { url } = await client.call(api.agentVersions.info, { params: { version: '1.0.0' }, query })
      expect(url.startsWith(`${service.url}/api/v1/agents/download/agent/linux/amd64?`)).toBe(true)
    })

    it('are not found when the storage lacks them, or has another size', async () => {
      const host = await releaseHost()
      host.publish(signedRelease('2.0.0'))
      const { client, get } = await start(stored(host.env()))
      await client.call(api.agentVersions.sync)
      expect((await get()).status).toBe(404)
      await put('releases/2.0.0/svc-agent-linux-arm64', Buffer.from('another length'))
      expect((await get(path.replace('amd64', 'arm64'))).status).toBe(404)
    })

    it('are registered from the manifest in a directory, as far as the storage has them', async () => {
      const directory = await temporaryFolder()
      const release = signedRelease('3.0.0')
      await putRelease(directory, { ...release, files: new Map() })
      await put(`releases/3.0.0/${linux}`, release.files.get(linux)!)
      const { client, get } = await start(stored({ AGENT_BINARY_DIR: directory }))
      expect((await client.call(api.agentVersions.sync)).synced).toEqual(['agent:linux/amd64'])
      expect((await get()).status).toBe(302)
    })

    it('are a 503 while the storage is unreachable, without internals', async () => {
      const host = await releaseHost()
      host.publish(signedRelease('1.0.0'))
      const { client, get } = await start(
        stored({ ...host.env(), AGENT_BINARY_S3_ENDPOINT: 'http://127.0.0.1:1' }),
      )
      await client.call(api.agentVersions.sync)
      const reply = await get()
      const body = (await reply.json()) as { code: string; error: string }
      expect([reply.status, body.code]).toEqual([503, 'unavailable'])
      expect(JSON.stringify(body)).not.toMatch(/127\.0\.0\.1|ECONN|agents/)
    })
  })
})

it('the S3 signature equals the example in the documentation of Amazon S3', () => {
  const address =
    'https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256' +
    '&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request' +
    '&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host'
  expect(signatureFor(address, 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY')).toBe(
    'aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404',
  )
})

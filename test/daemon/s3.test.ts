import { createHash, randomBytes } from 'node:crypto'
import { createServer, request, type Server } from 'node:http'
import { type AddressInfo, createServer as createTcp } from 'node:net'
import S3rver from 's3rver'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { classifyAddress, readOutbound } from '../../daemon/integrations/guard.ts'
import { bucketArchive, s3Archive } from '../../daemon/integrations/s3.ts'
import type { S3Settings } from '../../daemon/integrations/s3-settings.ts'
import { temporaryFolder } from '../databases.ts'

const loopback = readOutbound({ OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' })
const credentials = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' }

const object = (body: Buffer = randomBytes(100_000)) => ({
  key: 'chain/000000000001-000000000002.ndjson.gz',
  body,
  sha256: createHash('sha256').update(body).digest(),
  type: 'application/gzip',
})

let s3: S3rver
let at: string

beforeAll(async () => {
  s3 = new S3rver({
    port: 0,
    address: '127.0.0.1',
    silent: true,
    directory: await temporaryFolder(),
    configureBuckets: [{ name: 'audit', configs: [] }],
  })
  const { port } = await s3.run()
  at = `http://127.0.0.1:${port}`
})

afterAll(() => s3.close())

const settings = (more: Partial<S3Settings> = {}): S3Settings => ({
  bucket: 'audit',
  prefix: 'svc',
  endpoint: at,
  region: 'us-east-1',
  credentials,
  ...more,
})

const putTo = (more: Partial<S3Settings>, outbound = loopback) =>
  bucketArchive(settings(more), outbound).put(object())

/** A proxy in front of the storage that changes what passes. */
async function proxyWith(change: {
  request?: (body: Buffer, method: string) => Buffer
  headers?: (headers: Record<string, unknown>, method: string) => void
}): Promise<{ url: string; close(): void; server: Server }> {
  const server = createServer((incoming, outgoing) => {
    const pieces: Buffer[] = []
    incoming.on('data', (piece: Buffer) => pieces.push(piece))
    incoming.on('end', () => {
      const method = incoming.method ?? ''
      const body = change.request?.(Buffer.concat(pieces), method) ?? Buffer.concat(pieces)
      const passed = request(`${at}${incoming.url}`, { method, headers: incoming.headers }, (reply) => {
        const headers: Record<string, unknown> = { ...reply.headers }
        change.headers?.(headers, method)
        outgoing.writeHead(reply.statusCode ?? 500, headers as never)
        reply.pipe(outgoing)
      })
      passed.end(body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, server, close: () => void server.close() }
}

describe('the S3 archive', () => {
  it('stores an object, and accepts the same one again', async () => {
    const archive = bucketArchive(settings(), loopback)
    const one = object()
    await archive.put(one)
    await archive.put(one)
    const { S3Client, GetObjectCommand } = await import('@aws-sdk/client-s3')
    const client = new S3Client({ endpoint: at, region: 'us-east-1', credentials, forcePathStyle: true })
    const found = await client.send(new GetObjectCommand({ Bucket: 'audit', Key: `svc/${one.key}` }))
    expect(Buffer.from(await found.Body!.transformToByteArray()).equals(one.body)).toBe(true)
  })

  it('sends the SHA-256 for the storage to check', async () => {
    const seen: unknown[] = []
    const proxy = await proxyWith({})
    proxy.server.prependListener('request', ({ method, headers }) => {
      if (method === 'PUT') seen.push(headers['x-amz-checksum-sha256'])
    })
    const one = object()
    await bucketArchive(settings({ endpoint: proxy.url }), loopback).put(one)
    proxy.close()
    expect(seen).toEqual([one.sha256.toString('base64')])
  })

  it('rejects an object that is stored altered', async () => {
    const flip = await proxyWith({
      request: (body, method) => {
        if (method === 'PUT') body[7]! ^= 1
        return body
      },
    })
    await expect(putTo({ endpoint: flip.url })).rejects.toThrow('the stored object is not what was sent')
    flip.close()
  })

  it('rejects a wrong checksum or length from the storage', async () => {
    const other = await proxyWith({
      headers: (headers, method) => {
        if (method === 'HEAD') headers['x-amz-checksum-sha256'] = Buffer.alloc(32).toString('base64')
      },
    })
    await expect(putTo({ endpoint: other.url })).rejects.toThrow('the stored object is not what was sent')
    other.close()
    const shorter = await proxyWith({
      headers: (headers, method) => {
        if (method === 'HEAD') headers['content-length'] = '5'
      },
    })
    await expect(putTo({ endpoint: shorter.url })).rejects.toThrow('it holds 5 bytes of 100000')
    shorter.close()
  })

  it('names the cause when the storage refuses', async () => {
    await expect(putTo({ bucket: 'nowhere' })).rejects.toThrow(
      /^s3:\/\/nowhere\/svc\/chain\/.* at http:\/\/127\.0\.0\.1:\d+: NoSuchBucket/,
    )
    const wrong = { accessKeyId: 'nobody', secretAccessKey: 'a secret of nobody' }
    const refusal = putTo({ credentials: wrong })
    await expect(refusal).rejects.toThrow('InvalidAccessKeyId')
    await expect(refusal).rejects.not.toThrow('a secret of nobody')
  })

  it('reports a storage that is down as a failure, without endless retries', async () => {
    const gone = createTcp()
    await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve))
    const { port } = gone.address() as AddressInfo
    await new Promise((resolve) => gone.close(resolve))
    await expect(putTo({ endpoint: `http://127.0.0.1:${port}` })).rejects.toThrow('ECONNREFUSED')
  })

  it('is not reached where OUTBOUND_ALLOW_CIDRS does not allow it', async () => {
    const closed = readOutbound({})
    await expect(putTo({}, closed)).rejects.toThrow('OUTBOUND_ALLOW_CIDRS does not open it')
    const named = at.replace('127.0.0.1', 'localhost')
    await expect(putTo({ endpoint: named }, closed)).rejects.toThrow('localhost')
    await expect(putTo({ endpoint: 'https://169.254.169.254' }, closed)).rejects.toThrow('it is not public')
    await expect(putTo({ endpoint: 'http://93.184.215.14' }, closed)).rejects.toThrow('without TLS')
  })
})

describe('outbound settings', () => {
  it.each([
    ['93.184.215.14', 'public'],
    ['2606:2800:21f:cb07:6820:80da:af6b:8b2c', 'public'],
    ['10.1.2.3', 'refused'],
    ['127.0.0.1', 'allowed'],
    ['::ffff:127.0.0.1', 'allowed'],
    ['::1', 'refused'],
    ['169.254.169.254', 'refused'],
    ['100.64.0.1', 'refused'],
    ['192.0.2.1', 'refused'],
    ['198.18.0.1', 'refused'],
    ['224.0.0.1', 'refused'],
    ['240.0.0.1', 'refused'],
    ['0.0.0.0', 'refused'],
    ['fd00::1', 'refused'],
    ['fe80::1', 'refused'],
    ['64:ff9b::a00:1', 'refused'],
    ['2002:a00:1::', 'refused'],
    ['::ffff:93.184.215.14', 'refused'],
    ['2001:db8::1', 'refused'],
    ['::7f00:1', 'refused'],
    ['5f00::1', 'refused'],
    ['nonsense', 'refused'],
  ] as const)('%s is %s', (address, kind) => {
    expect(classifyAddress(address, loopback)).toBe(kind)
  })

  it('are ranges and a CA file, and an archive is a bucket', () => {
    expect(() => readOutbound({ OUTBOUND_ALLOW_CIDRS: '10.0.0.0/8, home' })).toThrow('"home" is not one')
    expect(() => readOutbound({ OUTBOUND_CA_FILE: '/nowhere' })).toThrow('OUTBOUND_CA_FILE cannot be read')
    expect(s3Archive.read({})).toBeUndefined()
    expect(() => s3Archive.read({ AUDIT_ARCHIVE_S3_PREFIX: 'x' })).toThrow('AUDIT_ARCHIVE_S3_BUCKET')
    const bucket = { AUDIT_ARCHIVE_S3_BUCKET: 'logs', AUDIT_ARCHIVE_S3_PREFIX: '/audit/' }
    expect(s3Archive.read(bucket)).toEqual({
      bucket: 'logs',
      prefix: 'audit',
      endpoint: undefined,
      region: 'us-east-1',
      credentials: undefined,
    })
    expect(() => s3Archive.read({ ...bucket, AUDIT_ARCHIVE_S3_ACCESS_KEY_ID: 'x' })).toThrow(
      'both or not at all',
    )
  })
})

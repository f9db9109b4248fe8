import { createServer as createTlsServer } from 'node:https'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nodeTransport } from '../../src/cli/transport.ts'
import { createClient } from '../../src/core/client.ts'
import { orgs } from '../../src/tenancy/contract.ts'
import { hasOpenssl, listening, testCertificate, testProxy } from './network.ts'

const proxy = testProxy()

const list = (url: string, caFile?: string) =>
  createClient({ url, transport: nodeTransport({ caFile }), retries: 0, timeout: 5000 }).call(orgs.list)

describe('a proxy', () => {
  it('is used when set in the environment', async () => {
    process.env.HTTP_PROXY = proxy.url
    expect(await list('http://svc.test')).toEqual({ data: [] })
    expect(proxy.asked).toEqual(['GET http://svc.test/api/v1/orgs/'])
  })

  it('is not used for hosts in NO_PROXY', async () => {
    process.env.HTTP_PROXY = proxy.url
    process.env.NO_PROXY = 'other.test, .nowhere.invalid'
    await expect(list('http://svc.nowhere.invalid')).rejects.toThrow(
      'Cannot reach http://svc.nowhere.invalid',
    )
    expect(proxy.asked).toEqual([])
  })

  it('is never used for this machine', async () => {
    process.env.HTTP_PROXY = proxy.url
    await expect(list('http://127.0.0.1:1')).rejects.toThrow('connection refused')
    await expect(list('http://localhost:1')).rejects.toThrow('connection refused')
    expect(proxy.asked).toEqual([])
  })
})

describe.skipIf(!hasOpenssl)('a certificate of a private authority', () => {
  const certificate = testCertificate()
  let server: ReturnType<typeof createTlsServer>
  let url: string

  beforeAll(async () => {
    server = createTlsServer(certificate.pair(), (_, reply) => {
      reply.end('{"data":[]}')
    })
    proxy.target = await listening(server)
    url = `https://127.0.0.1:${proxy.target}`
  })

  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })

  it('is refused unless SVC_CA_FILE contains it', async () => {
    await expect(list(url)).rejects.toThrow(/self-signed|certificate/)
    expect(await list(url, certificate.file)).toEqual({ data: [] })
  })

  it('is also checked through a proxy', async () => {
    process.env.HTTPS_PROXY = proxy.url
    expect(await list('https://svc.test', certificate.file)).toEqual({ data: [] })
    expect(proxy.asked).toEqual(['CONNECT svc.test:443'])
    await expect(list('https://svc.test')).rejects.toThrow(/through the proxy .*certificate/)
  })

  it('in a missing file is a usage error', async () => {
    await expect(list(url, certificate.missing)).rejects.toMatchObject({ exit: 2 })
  })
})

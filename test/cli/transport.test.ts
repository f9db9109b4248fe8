import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect as dial } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { nodeTransport } from '../../src/cli/transport.ts'
import { connect } from '../../src/core/client.ts'
import { orgs } from '../../src/tenancy/contract.ts'

const variables = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy']
const before = Object.fromEntries(variables.map((name) => [name, process.env[name]]))

/** A proxy that notes what it was asked for and takes every request to `target`. */
const asked: string[] = []
let target = 0
const proxy = createServer((request, reply) => {
  asked.push(`${request.method} ${request.url}`)
  reply.end('{"data":[]}')
}).on('connect', (request, client) => {
  asked.push(`CONNECT ${request.url}`)
  const upstream = dial(target, '127.0.0.1', () => {
    client.write('HTTP/1.1 200 OK\r\n\r\n')
    upstream.pipe(client).pipe(upstream)
  })
  for (const end of [upstream, client]) end.on('error', () => {})
})

const listening = (server: { listen: Server['listen']; address: Server['address'] }): Promise<number> =>
  new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })

let proxyUrl: string

beforeAll(async () => {
  proxyUrl = `http://127.0.0.1:${await listening(proxy)}`
})

afterEach(() => {
  asked.length = 0
  for (const name of variables) {
    if (before[name] === undefined) delete process.env[name]
    else process.env[name] = before[name]
  }
})

afterAll(() => {
  proxy.closeAllConnections()
  proxy.close()
})

const list = (url: string, caFile?: string) =>
  connect({ url, transport: nodeTransport({ caFile }), retries: 0, timeout: 5000 }).call(orgs.list)

describe('a proxy', () => {
  it('is used when the environment has one', async () => {
    process.env.HTTP_PROXY = proxyUrl
    expect(await list('http://svc.test')).toEqual({ data: [] })
    expect(asked).toEqual(['GET http://svc.test/api/v1/orgs/'])
  })

  it('is not used for hosts of NO_PROXY', async () => {
    process.env.HTTP_PROXY = proxyUrl
    process.env.NO_PROXY = 'other.test, .nowhere.invalid'
    await expect(list('http://svc.nowhere.invalid')).rejects.toThrow(
      'Cannot reach http://svc.nowhere.invalid',
    )
    expect(asked).toEqual([])
  })

  it('is never used for this machine', async () => {
    process.env.HTTP_PROXY = proxyUrl
    await expect(list('http://127.0.0.1:1')).rejects.toThrow('connection refused')
    await expect(list('http://localhost:1')).rejects.toThrow('connection refused')
    expect(asked).toEqual([])
  })
})

const hasOpenssl = spawnSync('openssl', ['version']).status === 0
if (!hasOpenssl) console.warn('skipped: certificates need openssl')

describe.skipIf(!hasOpenssl)('a certificate of a private authority', () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-tls-'))
  const at = (name: string) => join(folder, name)
  let server: ReturnType<typeof createTlsServer>
  let url: string

  beforeAll(async () => {
    const subject = ['-subj', '/CN=svc.test', '-addext', 'subjectAltName=DNS:svc.test,IP:127.0.0.1']
    const files = ['-keyout', at('key.pem'), '-out', at('cert.pem')]
    const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1']
    execFileSync('openssl', ['req', '-x509', ...kind, ...files, ...subject], { stdio: 'ignore' })
    server = createTlsServer(
      { key: readFileSync(at('key.pem')), cert: readFileSync(at('cert.pem')) },
      (_, reply) => {
        reply.end('{"data":[]}')
      },
    )
    target = await listening(server)
    url = `https://127.0.0.1:${target}`
  })

  afterAll(() => {
    server.closeAllConnections()
    server.close()
    rmSync(folder, { recursive: true })
  })

  it('is refused unless SVC_CA_FILE names it', async () => {
    await expect(list(url)).rejects.toThrow(/self-signed|certificate/)
    expect(await list(url, at('cert.pem'))).toEqual({ data: [] })
  })

  it('is checked through a proxy as well', async () => {
    process.env.HTTPS_PROXY = proxyUrl
    expect(await list('https://svc.test', at('cert.pem'))).toEqual({ data: [] })
    expect(asked).toEqual(['CONNECT svc.test:443'])
    await expect(list('https://svc.test')).rejects.toThrow(/through the proxy .*certificate/)
  })

  it('a file that is not there is a mistake of the caller', async () => {
    await expect(list(url, at('missing.pem'))).rejects.toMatchObject({ exit: 2 })
  })
})

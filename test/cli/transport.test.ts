import { createServer as createTlsServer } from 'node:https'
import { connect, createServer } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nodeTransport } from '../../src/cli/transport.ts'
import { createClient } from '../../src/core/client.ts'
import { orgs } from '../../src/tenancy/contract.ts'
import { FakeService } from './fake-service.ts'
import { hasOpenssl, listening, testCertificate, testProxy } from './network.ts'
import { Home } from './run.ts'

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

describe.skipIf(!hasOpenssl)('a failure of TLS', () => {
  const home = new Home()
  const certificate = testCertificate()
  const expired = testCertificate({ hasExpired: true })
  const plain = new FakeService()
  const servers = [certificate, expired].map(({ pair }) => {
    let server: ReturnType<typeof createTlsServer>
    return {
      open: () => (server = createTlsServer(pair(), (_, reply) => void reply.end('{}'))),
      close: () => server.close(),
    }
  })
  /** Answers plain HTTP as nginx does, and TLS. */
  const polite = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (first) => {
      const isTls = first[0] === 0x16
      if (!isTls)
        return socket.end(
          'HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno',
        )
      const upstream = connect(ports[0]!, '127.0.0.1', () => void upstream.write(first))
      upstream.on('error', () => {})
      upstream.pipe(socket).pipe(upstream)
    })
  })
  const ports: number[] = []

  beforeAll(async () => {
    await plain.start()
    for (const { open } of servers) ports.push(await listening(open()))
    ports.push(await listening(polite))
  })
  afterAll(async () => {
    await plain.stop()
    for (const { close } of servers) close()
    polite.close()
    home.remove()
  })

  const failed = async (url: string, env: Record<string, string> = {}) => {
    const all = { SVC_TOKEN: 'token', SVC_URL: url, ...env }
    const { code, stderr } = await home.run(['orgs'], { env: all })
    expect(code).toBe(8)
    return stderr
  }

  it('says that a certificate is self-signed, and how to trust it', async () => {
    const said = await failed(`https://127.0.0.1:${ports[0]}`)
    expect(said).toContain(`Cannot reach https://127.0.0.1:${ports[0]}: its certificate is self-signed\n`)
    expect(said).toContain('SVC_CA_FILE=FILE trusts it')
  })

  it('names whom a certificate is for', async () => {
    const said = await failed(`https://localhost:${ports[0]}`, { SVC_CA_FILE: certificate.file })
    expect(said).toContain('its certificate is for svc.test, 127.0.0.1, not for localhost\n')
    expect(said).toContain('the address has to have a name of the certificate')
  })

  it('says that a certificate has expired', async () => {
    const said = await failed(`https://127.0.0.1:${ports[1]}`, { SVC_CA_FILE: expired.file })
    expect(said).toContain('its certificate has expired\n')
    expect(said).toContain('has to renew it')
  })

  it('tells a port without TLS from one with it', async () => {
    const without = plain.url.replace('http:', 'https:')
    expect(await failed(without)).toContain(
      `${without}: it does not speak TLS\nHint: without TLS its address is ${plain.url}\n`,
    )
    for (const port of [ports[0], ports[2]]) {
      const said = await failed(`http://127.0.0.1:${port}`)
      expect(said).toContain(
        `http://127.0.0.1:${port}: it speaks TLS\nHint: with TLS its address is https://127.0.0.1:${port}\n`,
      )
    }
  })

  it('blames no service for a proxy that breaks off', async () => {
    const breaking = createServer((socket) => void socket.destroy())
    const HTTP_PROXY = `http://127.0.0.1:${await listening(breaking)}`
    try {
      // This machine, by an address for which a proxy is asked.
      const said = await failed(`http://0.0.0.0:${ports[0]}`, { HTTP_PROXY })
      expect(said).toContain(HTTP_PROXY)
      expect(said).not.toContain('it speaks TLS')
    } finally {
      breaking.close()
    }
  })
})

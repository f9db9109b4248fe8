import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect as dial, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll } from 'vitest'

/* Proxies, and certificates of a private authority. */

export const listening = (server: Pick<Server, 'listen' | 'address'>): Promise<number> =>
  new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port))
  })

const variables = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy']

/** A proxy for the tests of a file, which restores the environment after each of them. */
export function testProxy() {
  const before = Object.fromEntries(variables.map((name) => [name, process.env[name]]))
  const self = {
    url: '',
    /** The requests it received. */
    asked: [] as string[],
    /** The password it requires, if any. */
    password: undefined as string | undefined,
    /** The local port to which it connects every tunnel. */
    target: 0,
  }
  const server = createServer((request, reply) => {
    self.asked.push(`${request.method} ${request.url}`)
    reply.end('{"data":[]}')
  }).on('connect', (request, client) => {
    self.asked.push(`CONNECT ${request.url}`)
    const wanted = self.password && `Basic ${Buffer.from(self.password).toString('base64')}`
    if (wanted && request.headers['proxy-authorization'] !== wanted) {
      return client.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
    }
    const upstream = dial(self.target, '127.0.0.1', () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      upstream.pipe(client).pipe(upstream)
    })
    for (const end of [upstream, client]) end.on('error', () => {})
  })
  beforeAll(async () => {
    self.url = `http://127.0.0.1:${await listening(server)}`
  })
  afterEach(() => {
    self.asked.length = 0
    self.password = undefined
    for (const name of variables) {
      if (before[name] === undefined) delete process.env[name]
      else process.env[name] = before[name]
    }
  })
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })
  return self
}

export const hasOpenssl = spawnSync('openssl', ['version']).status === 0
if (!hasOpenssl) console.warn('skipped: certificates need openssl')

/** A self-signed certificate of svc.test and this machine, whose files are removed after the test file. */
export function testCertificate({ hasExpired = false, names = 'DNS:svc.test,IP:127.0.0.1' } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'svc-tls-'))
  const at = (name: string) => join(folder, name)
  afterAll(() => rmSync(folder, { recursive: true }))
  const subject = ['-subj', '/CN=svc.test', '-addext', `subjectAltName=${names}`]
  const files = ['-keyout', at('key.pem'), '-out', at('cert.pem')]
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1']
  if (hasOpenssl)
    execFileSync('openssl', ['req', '-x509', ...kind, ...files, ...subject], { stdio: 'ignore' })
  const again = ['-in', at('cert.pem'), '-signkey', at('key.pem'), '-days', '-1', '-out', at('cert.pem')]
  if (hasOpenssl && hasExpired) execFileSync('openssl', ['x509', ...again], { stdio: 'ignore' })
  return {
    file: at('cert.pem'),
    missing: at('missing.pem'),
    /** Key and certificate for a server. */
    pair: () => ({ key: readFileSync(at('key.pem')), cert: readFileSync(at('cert.pem')) }),
  }
}

import { createServer, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { afterEach, describe, expect, it } from 'vitest'
import { WebSocketServer } from 'ws'
import { socketOptions } from '../../src/cli/transport.ts'
import { agentDialer } from '../../src/device-agent/connection.ts'
import { hasOpenssl, listening, testCertificate, testProxy } from '../cli/network.ts'

/* How the WebSocket of an agent gets to a service that is not on this machine. */

const proxy = testProxy()
const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

/** A service that greets every agent with its request; returns its port. */
async function greeting(server: Server): Promise<number> {
  servers.push(server)
  new WebSocketServer({ server }).on('connection', (socket, { url, headers }) =>
    socket.send(`${url} ${headers.authorization}`),
  )
  return listening(server)
}

/** The first message of the service. @throws why it could not be reached */
async function firstMessage(url: string, caFile?: string): Promise<string> {
  const dial = agentDialer({ url, version: '1.2.3' }, (at) => socketOptions(at, { caFile }))
  const socket = await dial('a1', 'secret')
  return new Promise<string>((resolve, reject) => {
    socket.on('message', (said) => resolve(String(said)))
    socket.on('error', reject)
  }).finally(() => socket.terminate())
}

const greeted = '/api/v1/agent-ws/a1/ws Bearer secret'

describe('the WebSocket of an agent', () => {
  it('goes through a tunnel of the proxy, with the password in the proxy URL', async () => {
    proxy.target = await greeting(createServer())
    process.env.HTTP_PROXY = proxy.url
    expect(await firstMessage('http://svc.test')).toBe(greeted)
    expect(await firstMessage('http://svc.test:8080')).toBe(greeted)
    expect(proxy.asked).toEqual(['CONNECT svc.test:80', 'CONNECT svc.test:8080'])
    proxy.password = 'ann:p@ss'
    process.env.HTTP_PROXY = proxy.url.replace('//', '//ann:p%40ss@')
    expect(await firstMessage('http://svc.test')).toBe(greeted)
  })

  it('fails with the reason where the proxy refuses, or is down', async () => {
    proxy.password = 'ann:p@ss'
    process.env.HTTP_PROXY = proxy.url
    await expect(firstMessage('http://svc.test')).rejects.toThrow(
      `the proxy ${new URL(proxy.url).host} answers 407`,
    )
    process.env.HTTP_PROXY = 'http://127.0.0.1:1'
    await expect(firstMessage('http://svc.test')).rejects.toThrow('ECONNREFUSED')
  })

  it('never goes through a proxy to a service on this machine', async () => {
    const port = await greeting(createServer())
    process.env.HTTP_PROXY = proxy.url
    expect(await firstMessage(`http://127.0.0.1:${port}`)).toBe(greeted)
    expect(proxy.asked).toEqual([])
  })

  describe.skipIf(!hasOpenssl)('with a certificate of a private authority', () => {
    const certificate = testCertificate()

    it('connects only if SVC_CA_FILE names it', async () => {
      const url = `https://127.0.0.1:${await greeting(createTlsServer(certificate.pair()))}`
      await expect(firstMessage(url)).rejects.toThrow(/self-signed|certificate/)
      expect(await firstMessage(url, certificate.file)).toBe(greeted)
    })

    it('is verified through a proxy as well', async () => {
      proxy.target = await greeting(createTlsServer(certificate.pair()))
      process.env.HTTPS_PROXY = proxy.url
      expect(await firstMessage('https://svc.test', certificate.file)).toBe(greeted)
      await expect(firstMessage('https://svc.test')).rejects.toThrow(/self-signed|certificate/)
      expect(proxy.asked).toEqual(['CONNECT svc.test:443', 'CONNECT svc.test:443'])
    })
  })
})

import { readFileSync } from 'node:fs'
import type { Agent, ClientRequestArgs, IncomingMessage } from 'node:http'
import { NetworkError, type TransportRequest, type TransportResponse } from '../core/client.ts'
import { usageError } from './exit-codes.ts'
import type { Explanation } from './tls-failures.ts'

export const isLoopbackHost = (host: string): boolean => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(host)

/** The proxy the environment asks for. A service on this machine never goes through one. */
function proxyFor(url: URL, env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (isLoopbackHost(url.hostname)) return undefined
  const name = url.protocol === 'https:' ? 'https_proxy' : 'http_proxy'
  const proxy = env[name] || env[name.toUpperCase()]
  if (!proxy) return undefined
  const exempt = (env.no_proxy || env.NO_PROXY || '').split(/[\s,]+/).filter(Boolean)
  const host = url.hostname.toLowerCase()
  const spared = exempt.some((rule) => {
    const name = rule
      .toLowerCase()
      .replace(/:\d+$/, '')
      .replace(/^\*?\./, '')
    return name === '*' || host === name || host.endsWith(`.${name}`)
  })
  return spared ? undefined : proxy
}

/** Milliseconds for a proxy to open a tunnel. */
const tunnelTimeoutMs = 30_000

const withoutPassword = (text: string): string =>
  URL.canParse(text) ? new URL(text).origin : text.replace(/\/\/[^@/]*@/, '//')

/** Importing node:http would load all of undici for the names it re-exports. */
const builtin = ({ protocol }: URL) =>
  protocol === 'https:' ? process.getBuiltinModule('node:https') : process.getBuiltinModule('node:http')

const isJson = ({ headers }: IncomingMessage): boolean => headers['content-type']?.includes('json') === true

/** A transport that also accepts bytes. */
type NodeTransport = (
  request: Omit<TransportRequest, 'body'> & { body?: string | Buffer },
) => Promise<TransportResponse>

/**
 * Over node:http, which starts faster than fetch. Proxies of the environment and a private certificate
 * authority are the business of the agent, made only when one of them is asked for.
 */
export function nodeTransport(options: { caFile?: string | undefined }): NodeTransport {
  let agents: Promise<Agent | undefined> | undefined

  return async ({ url: address, method, headers, body, signal }) => {
    const url = new URL(address)
    const { request } = builtin(url)
    agents ??= agentFor(url, options)
    const agent = await agents
    return new Promise((resolve, reject) => {
      const proxy = proxyFor(url)
      const fail = ({ reason, hint }: Explanation, cause?: unknown) =>
        reject(new NetworkError(url.origin, reason, { cause, hint, proxy: proxy && withoutPassword(proxy) }))
      const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) }
      const call = request(url, {
        method,
        headers: { ...headers, ...length },
        signal,
        ...(agent && { agent }),
      })
      call.on('error', async (error) => {
        const { explainFailure } = await import('./tls-failures.ts')
        fail(await explainFailure(error, url, proxy === undefined), error)
      })
      call.on('response', async (reply) => {
        // What common servers with TLS answer a request without it; the service itself answers in JSON.
        if (reply.statusCode === 400 && url.protocol === 'http:' && !proxy && !isJson(reply)) {
          const { needsTls, speaksTls } = await import('./tls-failures.ts')
          if (await speaksTls(url)) return fail(needsTls(url))
        }
        const names = Object.entries(reply.headers).map(([name, value]) => [name, String(value)])
        resolve({ status: reply.statusCode ?? 0, headers: Object.fromEntries(names), body: reply })
      })
      call.end(body)
    })
  }
}

/** Connection options of a WebSocket. */
export type SocketOptions = Pick<ClientRequestArgs, 'agent' | 'createConnection'>

/** The options of requests, but through a proxy always with a tunnel, also without TLS (RFC 6455 4.1). */
export async function socketOptions(
  url: URL,
  options: { caFile?: string | undefined },
): Promise<SocketOptions> {
  const proxy = proxyFor(url)
  if (proxy && url.protocol === 'http:') return { createConnection: tunnelThrough(new URL(proxy), url) }
  const agent = await agentFor(url, options)
  return agent ? { agent } : {}
}

/** A connection made by CONNECT (RFC 9110 9.3.6). */
function tunnelThrough(proxy: URL, { hostname, port }: URL): SocketOptions['createConnection'] {
  const place = `${hostname}:${port || 80}`
  const auth = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`
  const headers = {
    host: place,
    ...(auth !== ':' && { 'proxy-authorization': `Basic ${Buffer.from(auth).toString('base64')}` }),
  }
  return (_, done) => {
    const fail = (error: Error) => done(error, undefined as never)
    const call = builtin(proxy).request(proxy, { method: 'CONNECT', path: place, headers, agent: false })
    call.on('error', fail)
    call.on('connect', ({ statusCode }, socket) => {
      if (statusCode === 200) return done(null, socket)
      socket.destroy()
      fail(new Error(`the proxy ${proxy.host} answers ${statusCode}`))
    })
    call.setTimeout(tunnelTimeoutMs, () => call.destroy(new Error(`the proxy ${proxy.host} does not answer`)))
    call.end()
    return undefined
  }
}

/** An agent for the proxy and certificates of a service; undefined when neither is needed. */
async function agentFor(url: URL, options: { caFile?: string | undefined }): Promise<Agent | undefined> {
  const proxy = proxyFor(url)
  const ca = url.protocol === 'https:' && options.caFile ? await readCaFile(options.caFile) : undefined
  if (!proxy && !ca) return undefined
  return keepAliveAgent(url, { proxy, ca })
}

type AgentOptions = { proxy?: string | undefined; ca?: string[] | undefined; maxSockets?: number }

function keepAliveAgent(url: URL, { proxy, ca, ...more }: AgentOptions): Agent {
  const { Agent } = builtin(url)
  return new Agent({
    keepAlive: true,
    ...(proxy && { proxyEnv: { HTTP_PROXY: proxy, HTTPS_PROXY: proxy } }),
    ...(ca && { ca }),
    ...more,
  })
}

/** An agent with at most `maxSockets` persistent connections, and the request function. */
export async function pooledAgent(url: URL, options: { caFile?: string | undefined; maxSockets: number }) {
  const { maxSockets } = options
  const ca = url.protocol === 'https:' && options.caFile ? await readCaFile(options.caFile) : undefined
  return {
    agent: keepAliveAgent(url, { proxy: proxyFor(url), ca, maxSockets }),
    request: builtin(url).request,
  }
}

/** The certificates of the file, besides those everyone trusts. */
async function readCaFile(path: string): Promise<string[]> {
  const { getCACertificates } = await import('node:tls')
  try {
    return [...getCACertificates('default'), readFileSync(path, 'utf8')]
  } catch (error) {
    throw usageError(
      `SVC_CA_FILE cannot be read: ${path} (${(error as NodeJS.ErrnoException).code ?? 'not a file'})`,
    )
  }
}

import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { randomBytes } from '../core/random.ts'
import type { WebPage } from '../core/web-page.ts'
import { callbackPage, describeFailure, failurePage, trialPage } from './loopback-pages.ts'

/** The values that a browser returned with. */
export type BrowserCallback =
  | {
      code: string
      /** Reports the result to the browser. */
      answer(failure?: string): void
    }
  | { error: string }
  | { trial: 'passed' | 'failed' }

export type LoopbackServer = {
  /** The redirect address for the browser. */
  redirect: string
  callback: Promise<BrowserCallback>
  /** Resolves when every request in progress is answered. */
  close(): Promise<void>
}

/** A code has 43 letters. */
const maxBodyBytes = 1024

/**
 * Waits for one browser, on this machine alone (RFC 8252, 7.3). Its path cannot be guessed, so other pages of that
 * browser cannot call it. It checks the Host header, so that no DNS name can point here.
 */
export async function startLoopback(): Promise<LoopbackServer> {
  const path = `/${randomBytes(16).toString('base64url')}`
  let arrived: (callback: BrowserCallback) => void = () => {}
  const callback = new Promise<BrowserCallback>((resolve) => {
    arrived = resolve
  })
  let taken = false
  const take = (one: BrowserCallback): boolean => {
    if (taken) return false
    taken = true
    arrived(one)
    return true
  }
  const server = process.getBuiltinModule('node:http').createServer({ requestTimeout: 10_000 })
  server.maxConnections = 16
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  server.on('request', (request, reply) => {
    request.on('error', () => {})
    reply.on('error', () => {})
    reply.setHeader('connection', 'close')
    // Any page of the browser may call this server, also with an invalid address.
    const url = URL.parse(request.url ?? '/', `http://${host}`)
    if (request.headers.host !== host || url?.pathname !== path) return refuse(reply, 404, 'Not found')
    if (request.method === 'GET') return show(reply, pageAt(url.searchParams, take))
    if (request.method === 'POST') return void receive(request, reply, `http://${host}`, take)
    refuse(reply, 405, 'Method not allowed')
  })
  return { redirect: `http://${host}${path}`, callback, close: () => closed(server) }
}

type Take = (callback: BrowserCallback) => boolean

function pageAt(query: URLSearchParams, take: Take): WebPage {
  const trial = query.get('ssoTest')
  if (trial !== null) {
    const status = trial === 'passed' ? trial : 'failed'
    take({ trial: status })
    return trialPage(status === 'passed')
  }
  const error = query.get('error')
  if (error === null) return callbackPage()
  take({ error })
  return failurePage(describeFailure(error))
}

async function receive(
  request: IncomingMessage,
  reply: ServerResponse,
  origin: string,
  take: Take,
): Promise<void> {
  const { headers } = request
  const site = headers['sec-fetch-site']
  // Some browsers omit the Origin without a referrer; none lets a page forge Sec-Fetch-Site.
  const isOurs = site === undefined ? headers.origin === origin : site === 'same-origin'
  if (!isOurs || headers['content-type'] !== 'application/json')
    return refuse(reply, 403, 'Not from this page')
  const code = await codeIn(request)
  if (code === undefined) return refuse(reply, 400, 'This is not a code')
  const answer = (failure?: string) =>
    failure === undefined ? send(reply, 200, { signedIn: true }) : refuse(reply, 400, failure)
  if (!take({ code, answer })) refuse(reply, 409, 'A code was received already')
}

async function codeIn(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of request) {
      size += (chunk as Buffer).length
      if (size > maxBodyBytes) return undefined
      chunks.push(chunk as Buffer)
    }
    const { code } = JSON.parse(Buffer.concat(chunks).toString('utf8')) as { code?: unknown }
    return typeof code === 'string' && code !== '' ? code : undefined
  } catch {
    // A browser that went away, or a request that no page of svc has sent.
    return undefined
  }
}

const show = (reply: ServerResponse, { html, headers }: WebPage): void =>
  void reply.writeHead(200, headers).end(html)

const refuse = (reply: ServerResponse, status: number, error: string): void => send(reply, status, { error })

const send = (reply: ServerResponse, status: number, body: object): void =>
  void reply
    .writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' })
    .end(JSON.stringify(body))

/** Pages in progress are sent; open idle connections do not delay the end. */
async function closed(server: Server): Promise<void> {
  const late = setTimeout(() => server.closeAllConnections(), 500)
  await new Promise((resolve) => server.close(resolve))
  clearTimeout(late)
}

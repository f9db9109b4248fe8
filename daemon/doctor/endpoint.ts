import { type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { TLSSocket } from 'node:tls'
import { peerFaults } from '../../src/core/transport.ts'

/** What one GET request saw. */
export type Probe = {
  status: number
  body: string
  /** This machine's address on the connection. */
  localAddress: string
  headers: IncomingHttpHeaders
  /** When the request was sent and when its answer began, in milliseconds since 1970. */
  during: readonly [number, number]
  /** The certificate of the server; undefined without TLS. */
  certificate: { from: Date; to: Date } | undefined
}

const timeoutMs = 10_000
const maxBody = 4 * 2 ** 20

/** Requests a URL of the operator's own settings. @throws Error whose message is a sentence for the operator */
export function probe(url: URL, headers: Record<string, string> = {}): Promise<Probe> {
  const { promise, resolve, reject } = Promise.withResolvers<Probe>()
  const sentAt = Date.now()
  const request = url.protocol === 'https:' ? requestHttps : requestHttp
  const sent = request(url, { headers, signal: AbortSignal.timeout(timeoutMs) }, (reply) => {
    // Read before the body ends, when the connection may be gone.
    const seen = {
      status: reply.statusCode ?? 0,
      headers: reply.headers,
      during: [sentAt, Date.now()] as const,
      localAddress: reply.socket.localAddress ?? '',
      certificate: certificateOf(reply),
    }
    readText(reply).then((body) => resolve({ body, ...seen }), reject)
  })
  sent.on('error', (error) => reject(new Error(explain(error as NodeJS.ErrnoException, url))))
  sent.end()
  return promise
}

async function readText(reply: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of reply) {
    chunks.push(chunk as Buffer)
    size += (chunk as Buffer).length
    if (size > maxBody) throw new Error('its answer is too long')
  }
  return Buffer.concat(chunks).toString('utf8')
}

function certificateOf({ socket }: IncomingMessage): Probe['certificate'] {
  if (!('getPeerCertificate' in socket)) return undefined
  const { valid_from: from, valid_to: to } = (socket as TLSSocket).getPeerCertificate()
  return { from: new Date(from), to: new Date(to) }
}

const untrusted =
  'its certificate comes from an authority that this machine does not trust; NODE_EXTRA_CA_CERTS names further ones'

const failures: Readonly<Record<string, string>> = {
  ...peerFaults,
  ECONNREFUSED: 'nothing listens there',
  ENOTFOUND: 'its name does not resolve',
  EAI_AGAIN: 'the name server does not answer',
  ECONNRESET: 'the connection was closed without an answer',
  ETIMEDOUT: 'there is no answer',
  ABORT_ERR: `there is no answer within ${timeoutMs / 1000} s`,
  EHOSTUNREACH: 'there is no route to it',
  ENETUNREACH: 'there is no route to it',
  EPROTO: 'it does not speak TLS',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak TLS',
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'its certificate comes from an authority that this machine does not trust (NODE_EXTRA_CA_CERTS names more), or does not send the certificate of it',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
}

const explain = ({ code, name, message }: NodeJS.ErrnoException, url: URL): string =>
  `${url.origin}: ${failures[code ?? ''] ?? (name === 'TimeoutError' ? failures.ABORT_ERR : message)}`

import { type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { TLSSocket } from 'node:tls'

/** What one GET request saw. */
export type Probe = {
  status: number
  body: string
  /** This machine's address on the connection. */
  localAddress: string
  /** Milliseconds by which the clock of the server is ahead, to a second; undefined without a Date header. */
  skewMs: number | undefined
  /** When the certificate ends; undefined without TLS. */
  certificateEnds: Date | undefined
}

const timeoutMs = 10_000
const maxBody = 4 * 2 ** 20

/** Requests a URL of the operator's own settings. @throws Error whose message is a sentence for the operator */
export function probe(url: URL, headers: Record<string, string> = {}): Promise<Probe> {
  const { promise, resolve, reject } = Promise.withResolvers<Probe>()
  const request = url.protocol === 'https:' ? requestHttps : requestHttp
  const sent = request(url, { headers, signal: AbortSignal.timeout(timeoutMs) }, (reply) => {
    // Read before the body ends, when the connection may be gone.
    const seen = { localAddress: reply.socket.localAddress ?? '', certificateEnds: certificateEnd(reply) }
    readText(reply).then(
      (body) => resolve({ status: reply.statusCode ?? 0, body, skewMs: skewOf(reply), ...seen }),
      reject,
    )
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

function certificateEnd({ socket }: IncomingMessage): Date | undefined {
  if (!('getPeerCertificate' in socket)) return undefined
  return new Date((socket as TLSSocket).getPeerCertificate().valid_to)
}

function skewOf({ headers }: IncomingMessage): number | undefined {
  const at = Date.parse(headers.date ?? '')
  return Number.isNaN(at) ? undefined : at + 500 - Date.now()
}

const failures: Readonly<Record<string, string>> = {
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
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate comes from an authority that this machine does not trust',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'it does not send the certificate of its authority',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    'its certificate comes from an authority that this machine does not trust',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
}

const explain = ({ code, name, message }: NodeJS.ErrnoException, url: URL): string =>
  `${url.origin}: ${failures[code ?? ''] ?? (name === 'TimeoutError' ? failures.ABORT_ERR : message)}`

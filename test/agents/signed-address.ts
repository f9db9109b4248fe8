import { createHash, createHmac } from 'node:crypto'

const hmac = (key: string | Buffer, text: string): Buffer => createHmac('sha256', key).update(text).digest()
const encoded = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)

/**
 * The signature of a URL for a GET, implemented from the documentation of Amazon S3 alone (Authenticating
 * Requests: Using Query Parameters, AWS Signature Version 4); only the host is a signed header.
 */
export function signatureFor(address: string | URL, secret: string): string {
  const url = new URL(address)
  const parameters = [...url.searchParams].filter(([name]) => name !== 'X-Amz-Signature')
  const query = parameters.map(([name, value]) => `${encoded(name)}=${encoded(value)}`).sort()
  const payload = url.searchParams.get('X-Amz-Content-Sha256') ?? 'UNSIGNED-PAYLOAD'
  const canonical = ['GET', url.pathname, query.join('&'), `host:${url.host}`, '', 'host', payload].join('\n')
  const time = url.searchParams.get('X-Amz-Date')!
  const [, ...scope] = url.searchParams.get('X-Amz-Credential')!.split('/')
  const digest = createHash('sha256').update(canonical).digest('hex')
  const text = ['AWS4-HMAC-SHA256', time, scope.join('/'), digest].join('\n')
  const key = scope.reduce<string | Buffer>((last, part) => hmac(last, part), `AWS4${secret}`)
  return hmac(key, text).toString('hex')
}

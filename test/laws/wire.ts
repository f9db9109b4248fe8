import { createConnection } from 'node:net'
import { Pool } from 'undici'

export type Wire = {
  method: string
  /** The path from the root, including the query string. */
  path: string
  token?: string | undefined
  headers?: Record<string, string>
  /** The body, sent as application/json unless the headers say otherwise. */
  body?: string | Buffer | undefined
  /** Announces a body of this many bytes, but sends `body`. */
  claims?: number
}

/** Sends bytes on a new connection and reads the response, for requests no client would make. */
export function sendBytes(url: string, bytes: string | Buffer): Promise<Answer> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: hostname, port: Number(port) })
    let text = ''
    const done = () => {
      const answer = parsed(text)
      if (!answer) return
      socket.destroy()
      resolve(answer)
    }
    socket.setTimeout(10_000, () => socket.destroy(new Error('no answer')))
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      done()
    })
    socket.on('close', () => reject(new Error(`closed after ${JSON.stringify(text)}`)))
    socket.on('error', reject)
    socket.on('connect', () => socket.write(bytes))
  })
}

/** The answer, once it is complete. */
function parsed(text: string): Answer | undefined {
  const end = text.indexOf('\r\n\r\n')
  if (end === -1) return undefined
  const [first = '', ...lines] = text.slice(0, end).split('\r\n')
  const headers = Object.fromEntries(
    lines.map((line) => [
      line.slice(0, line.indexOf(':')).toLowerCase(),
      line.slice(line.indexOf(':') + 1).trim(),
    ]),
  )
  const body = text.slice(end + 4)
  if (Buffer.byteLength(body) < Number(headers['content-length'] ?? 0)) return undefined
  return { status: Number(first.split(' ')[1]), headers, text: body }
}

/** The request as bytes, with a false content length. */
export function bytesOf({ method, path, token, body = '', headers = {} }: Wire, length: number): string {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'host: localhost',
    ...(token === undefined ? [] : [`authorization: Bearer ${token}`]),
    ...Object.entries({ 'content-type': 'application/json', ...headers, 'content-length': length }).map(
      ([name, value]) => `${name}: ${value}`,
    ),
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}

export type Answer = { status: number; headers: Record<string, string | undefined>; text: string }

/** Sends requests exactly as given, over one connection. */
export class Line {
  readonly #url: string
  readonly #pool: Pool

  constructor(url: string) {
    this.#url = url
    this.#pool = new Pool(url, { connections: 1 })
  }

  async send(wire: Wire): Promise<Answer> {
    const { method, path, token, headers = {}, body, claims } = wire
    if (claims !== undefined) return sendBytes(this.#url, bytesOf(wire, claims))
    const reply = await this.#pool.request({
      method,
      path,
      headers: {
        'x-service-client': 'cli',
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body }),
    })
    const text = await reply.body.text()
    return { status: reply.statusCode, headers: reply.headers as Answer['headers'], text }
  }

  close(): Promise<void> {
    return this.#pool.close()
  }
}

/** The reply as JSON, without the request ID. */
export function jsonOf({ text }: Answer): Record<string, unknown> {
  const { requestId: _, ...rest } = JSON.parse(text) as Record<string, unknown>
  return rest
}

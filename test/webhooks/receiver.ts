import type { IncomingHttpHeaders } from 'node:http'
import { createServer } from 'node:https'
import type { Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import { listening, type testCertificate } from '../cli/network.ts'

export type Got = { headers: IncomingHttpHeaders; body: string; event: Event; at: number; path: string }
type Event = { id: string; type: string; timestamp: string; orgId: string; data: Record<string, unknown> }

export type Answer = {
  status?: number
  headers?: Record<string, string>
  body?: string
  afterMs?: number
  /** Answered when this resolves. */
  when?: Promise<unknown>
}

/** An HTTPS receiver of deliveries; closes when the test ends. */
export async function receiver(
  certificate: ReturnType<typeof testCertificate>,
  answer: (got: Got, socket: Socket) => Answer | undefined = () => ({ status: 204 }),
) {
  const got: Got[] = []
  const self = {
    got,
    answer,
    url: '',
    /** Requests that are not answered yet, and the most there were at once. */
    open: 0,
    max: 0,
    connections: 0,
    /** Waits until this many have arrived. */
    async until(count: number, ms = 10_000): Promise<Got[]> {
      const end = performance.now() + ms
      while (got.length < count && performance.now() < end)
        await new Promise((resolve) => setTimeout(resolve, 5))
      if (got.length < count) throw new Error(`only ${got.length} of ${count} deliveries arrived`)
      return got
    },
    ids: () => got.map(({ event }) => event.id),
    /** It no longer listens. */
    async down() {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    },
    /** It listens again, at its address. */
    async up() {
      await new Promise<void>((resolve) =>
        server.listen(Number(new URL(self.url).port), '127.0.0.1', resolve),
      )
    },
    close: () => self.down(),
  }
  const server = createServer({ ...certificate.pair(), keepAlive: true }, (request, reply) => {
    self.open += 1
    self.max = Math.max(self.max, self.open)
    let isOpen = true
    const answered = () => {
      if (isOpen) self.open -= 1
      isOpen = false
    }
    reply.on('close', answered)
    let body = ''
    request.setEncoding('utf8').on('data', (piece) => {
      body += piece
    })
    request.on('error', () => {})
    request.on('end', () => {
      const { headers, url = '' } = request
      const one = { headers, body, event: JSON.parse(body) as Event, at: Date.now(), path: url }
      got.push(one)
      const said = self.answer(one, request.socket)
      if (!said) return
      const send = () => {
        answered()
        reply.writeHead(said.status ?? 200, said.headers).end(said.body)
      }
      if (said.when) void said.when.then(send)
      else if (said.afterMs) setTimeout(send, said.afterMs)
      else send()
    })
  })
  server.on('connection', () => {
    self.connections += 1
  })
  self.url = `https://127.0.0.1:${await listening(server)}`
  try {
    onTestFinished(() => self.close())
  } catch {
    // Opened from beforeAll: the caller closes it.
  }
  return self
}

/** The environment that lets a service reach receivers on this machine. */
export const reaching = (certificate: { file: string }) => ({
  OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
  OUTBOUND_CA_FILE: certificate.file,
})

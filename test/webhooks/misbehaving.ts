import { createServer as createTcp, type Server, type Socket } from 'node:net'
import { createServer as createTls } from 'node:tls'
import { onTestFinished } from 'vitest'
import { listening, type testCertificate } from '../cli/network.ts'
import { gate } from './webhook-fixture.ts'

type Certificate = ReturnType<typeof testCertificate>
/** What it does with a connection once a request has come. */
type Behavior = (socket: Socket) => void

async function opened(server: Server, address: string): Promise<string> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => sockets.add(socket.on('error', () => {})))
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise((resolve) => server.close(resolve))
  })
  if (address === '127.0.0.1') return `https://${address}:${await listening(server)}`
  await new Promise<void>((resolve) => server.listen(0, address, resolve))
  return `https://${address}:${(server.address() as { port: number }).port}`
}

/** A TLS server with this behavior; returns its address. */
export const raw = (certificate: Certificate, behave: Behavior, address = '127.0.0.1'): Promise<string> =>
  opened(
    createTls({ ...certificate.pair(), allowHalfOpen: true }, (socket) => {
      socket.on('error', () => {}).once('data', () => behave(socket))
    }),
    address,
  )

/** A TCP server without TLS. */
export const rawTcp = (behave: Behavior): Promise<string> => opened(createTcp(behave), '127.0.0.1')

/** Sends these bytes over and over while the client reads; `left` is how many were sent when it hung up. */
export function endless(begin: string, more: Buffer) {
  const { opened: over, open: end } = gate()
  let sent = 0
  return {
    left: over.then(() => sent),
    behave(socket: Socket): void {
      socket.on('close', end).write(begin)
      const pour = () => {
        while (!socket.destroyed && sent < 1 << 30) {
          sent += more.length
          if (!socket.write(more)) break
        }
      }
      socket.on('drain', pour)
      pour()
    },
  }
}

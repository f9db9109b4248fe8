import { createServer, type Socket } from 'node:net'
import pg from 'pg'
import { onTestFinished } from 'vitest'
import { overTcp } from '../postgres-databases.ts'

type Backend = { socket: Socket; client: Socket | undefined }

/**
 * A connection pooler in transaction mode, as PgBouncer before 1.21: a client has a database session from
 * the first message of a transaction to its end. Returns the URL that leads through it.
 */
export async function poolTransactions(databaseUrl: string, sessions: number): Promise<string> {
  const backends = await Promise.all(Array.from({ length: sessions }, () => backendOf(databaseUrl)))
  const waiting: (() => void)[] = []
  const server = createServer((client) => {
    let backend: Backend | undefined
    let isStarted = false
    client.on('error', () => {})
    client.on('data', (bytes) => {
      if (!isStarted) {
        isStarted = true
        client.write(welcome)
        return
      }
      // Terminate: the session belongs to the pooler.
      if (bytes[0] === 0x58) return void client.end()
      backend = backend?.client === client ? backend : undefined
      if (backend) return void backend.socket.write(bytes)
      const take = () => {
        backend = backends.find((one) => one.client === undefined)
        if (!backend) return void waiting.push(take)
        backend.client = client
        backend.socket.write(bytes)
      }
      take()
    })
  })
  for (const backend of backends) {
    onReady(backend, () => {
      backend.client = undefined
      waiting.shift()?.()
    })
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.close()
    for (const { socket } of backends) socket.destroy()
  })
  const url = overTcp(databaseUrl, (server.address() as { port: number }).port)
  return url.href
}

async function backendOf(databaseUrl: string): Promise<Backend> {
  const client = new pg.Client(databaseUrl)
  client.on('error', () => {})
  await client.connect()
  const { stream } = (client as unknown as { connection: { stream: Socket } }).connection
  stream.removeAllListeners('data')
  return { socket: stream, client: undefined }
}

/**
 * Forwards what the database sends, and calls `done` when it is ready outside of a transaction (`Z`, `I`).
 */
function onReady(backend: Backend, done: () => void): void {
  let rest = Buffer.alloc(0)
  backend.socket.on('data', (bytes: Buffer) => {
    backend.client?.write(bytes)
    rest = Buffer.concat([rest, bytes])
    while (rest.length >= 5) {
      const length = 1 + rest.readInt32BE(1)
      if (rest.length < length) break
      const isReady = rest[0] === 0x5a && rest[5] === 0x49
      rest = rest.subarray(length)
      if (isReady) done()
    }
  })
}

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const welcome = Buffer.from('520000000800000000' + '4b0000000c0000000100000001' + '5a0000000549', 'hex')

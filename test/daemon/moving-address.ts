import { connect, createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import { overTcp } from '../postgres-databases.ts'

/** An address that leads to one server after the other; what was connected is cut then. */
export async function movingAddress(databaseUrl: string) {
  let port = Number(new URL(databaseUrl).port)
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const database = connect(port, '127.0.0.1')
    for (const one of [client, database]) {
      sockets.add(one)
      one.on('error', () => {}).on('close', () => sockets.delete(one))
    }
    client.pipe(database).pipe(client)
    database.on('close', () => client.destroy())
    client.on('close', () => database.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const cut = () => {
    for (const one of sockets) one.destroy()
  }
  onTestFinished(() => {
    server.close()
    cut()
  })
  const url = overTcp(databaseUrl, (server.address() as { port: number }).port)
  return {
    databaseUrl: url.href,
    leadTo(next: string) {
      port = Number(new URL(next).port)
      cut()
    },
  }
}

import { connect, createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'
import { overTcp } from '../postgres-databases.ts'

export type LossyProxy = {
  databaseUrl: string
  /**
   * From now on every packet is dropped, in either direction, without a reset, as by a firewall that lost
   * its state.
   */
  swallow(): void
  /** New connections work again; earlier ones never do. */
  recover(): void
}

/** A proxy to the database that can silently drop packets. */
export async function lossyProxy(databaseUrl: string): Promise<LossyProxy> {
  const { hostname, port } = new URL(databaseUrl)
  let lost = false
  const all = new Set<Socket>()
  const server = createServer((client) => {
    const database = connect(Number(port), hostname)
    const isLost = { value: lost }
    pairs.add(isLost)
    for (const [from, to] of [
      [client, database],
      [database, client],
    ] as const) {
      all.add(from)
      from.on('error', () => {})
      from.on('data', (bytes) => void (isLost.value || to.write(bytes)))
      from.on('close', () => void (isLost.value || to.destroy()))
    }
  })
  const pairs = new Set<{ value: boolean }>()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.close()
    for (const socket of all) socket.destroy()
  })
  const url = overTcp(databaseUrl, (server.address() as { port: number }).port)
  return {
    databaseUrl: url.href,
    swallow() {
      lost = true
      for (const pair of pairs) pair.value = true
    },
    recover() {
      lost = false
    },
  }
}

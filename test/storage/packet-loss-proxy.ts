import { connect, createServer, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

export type LossyProxy = {
  databaseUrl: string
  /** From now on nothing gets through, in either direction, and nobody is told: as a firewall that forgot its connections. */
  swallow(): void
  /** New connections get through again; those of before never do. */
  recover(): void
}

/** A way to the database that can lose packets without a word. */
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
  const url = new URL(databaseUrl)
  url.port = String((server.address() as { port: number }).port)
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

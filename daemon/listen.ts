import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'
import type { FastifyInstance } from 'fastify'

/**
 * One turn of the event loop accepts one connection of each listening socket (libuv, pull request 3696), so several of
 * them share the port. With one, each of a thousand new connections waits for as many turns as there are before it, and
 * a busy turn takes tens of milliseconds.
 */
const listeningSockets = 32

/** Node shares a port between sockets of one process on some systems alone; elsewhere there is one. */
const isShareable = process.platform === 'linux'

/** @throws the error of `listen(2)`, EADDRINUSE among them */
export async function listen(
  app: FastifyInstance,
  { host, port }: { host: string; port: number },
): Promise<void> {
  const more: Server[] = []
  app.addHook('preClose', async () => {
    for (const one of more) one.close()
  })
  // Sockets that share a port could share that of another process, which the first of them must not.
  if (isShareable && port !== 0) await assertFree({ host, port })
  const place = { host, port, reusePort: isShareable }
  await app.listen(place)
  const { port: shared } = app.server.address() as AddressInfo
  while (isShareable && more.length < listeningSockets - 1) {
    // As the server of node:http sets its own.
    const one = createServer({ allowHalfOpen: true, noDelay: true })
    one.on('connection', (socket) => app.server.emit('connection', socket))
    more.push(one.listen({ ...place, port: shared }))
    await once(one, 'listening')
  }
}

async function assertFree(place: { host: string; port: number }): Promise<void> {
  const trial = createServer().listen(place)
  await once(trial, 'listening')
  trial.close()
  await once(trial, 'close')
}

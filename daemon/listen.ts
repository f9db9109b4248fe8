import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'

/**
 * One turn of the event loop accepts one connection of each listening socket (libuv, pull request 3696), so several
 * sockets share the port. With one, each of a thousand new connections waits for as many turns as there are before it,
 * and a busy turn takes tens of milliseconds.
 */
const listeningSockets = 32

/** Whether one process can share a port between its sockets (SO_REUSEPORT). */
const canSharePort = process.platform === 'linux'

/**
 * Listens, and closes with the app: once all requests in progress are answered.
 *
 * @throws the error of `listen(2)`, EADDRINUSE among them
 */
export async function listen(
  app: FastifyInstance,
  { host, port }: { host: string; port: number },
): Promise<void> {
  const extras: Server[] = []
  const ends: Promise<unknown>[] = []
  app.addHook('preClose', async () => {
    for (const extra of extras) {
      ends.push(once(extra, 'close'))
      extra.close()
    }
  })
  // The server of the app ends with its own connections, and knows nothing of those of the extra sockets.
  app.addHook('onClose', async () => {
    await Promise.all(ends)
  })
  await app.ready()
  if (canSharePort) {
    await listenAlone(app, { host, port })
    await addSockets(app, extras)
  } else await app.listen({ host, port })
  logErrors(app, app.server)
}

/** A socket with SO_REUSEPORT would also join a port that another process shares. */
async function listenAlone(app: FastifyInstance, place: { host: string; port: number }): Promise<void> {
  const shared = { ...place, reusePort: true }
  if (place.port === 0) {
    await app.listen(shared)
    return
  }
  const unlock = await lockPort(place.port)
  try {
    const trial = createServer().listen(place)
    await once(trial, 'listening')
    trial.close()
    await once(trial, 'close')
    await app.listen(shared)
  } finally {
    unlock()
  }
}

/**
 * Of two services that start at once, one waits until the other listens. The lock is an abstract socket (unix(7)), which
 * ends with its process; after a second without it the start goes on.
 */
async function lockPort(port: number): Promise<() => void> {
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const lock = createServer().listen(`\0svc-listens-on-${port}`)
    const isLocked = await once(lock, 'listening').then(
      () => true,
      () => false,
    )
    if (isLocked) return () => void lock.close()
    await sleep(20)
  }
  return () => {}
}

async function addSockets(app: FastifyInstance, extras: Server[]): Promise<void> {
  const { address: host, port } = app.server.address() as AddressInfo
  while (extras.length < listeningSockets - 1) {
    // The options that node:http gives its own server. It takes a connection from its 'connection' event.
    const extra = createServer({ allowHalfOpen: true, noDelay: true })
    extra.on('connection', (socket) => app.server.emit('connection', socket))
    try {
      extra.listen({ host, port, reusePort: true })
      await once(extra, 'listening')
    } catch (error) {
      app.log.warn({ err: error, sockets: extras.length + 1 }, 'new connections are accepted more slowly')
      return
    }
    logErrors(app, extra)
    extras.push(extra)
  }
}

/** Of accept(2): without a listener they would end the process. */
function logErrors(app: FastifyInstance, server: Server): void {
  server.on('error', (error) => app.log.error({ err: error }, 'a connection could not be accepted'))
}

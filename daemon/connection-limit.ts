import type { RequestListener, Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Counter, Registry } from 'prom-client'
import { addCount, countOf } from '../src/core/counts.ts'
import { normalizeAddress } from '../src/core/network.ts'
import { networkOf } from './address.ts'
import { addCounter, addGauge } from './metrics.ts'

/** Most open connections: of the process (`whole`), and of one client address. */
export type ConnectionLimits = { whole: number; perAddress: number }

/**
 * Most requests in progress on one connection (HTTP pipelining). Clients send one after the other, but one packet has
 * room for thousands, and no other client's request is handled between them.
 */
const maxPipelined = 16

/**
 * Bounds the number of open connections, including WebSockets, and the number of requests in progress on each. A
 * connection beyond the limit is closed before anything is read. Behind a trusted proxy all clients share one address,
 * which has only the limit of the process.
 */
export class ConnectionLimit {
  readonly #settings: ConnectionLimits
  readonly #isProxy: (address: string) => boolean
  /** Only addresses with an open connection. */
  readonly #byAddress = new Map<string, number>()
  readonly #inProgress = new WeakMap<Socket, number>()
  #open = 0
  readonly #refused: Counter<'reason'>

  constructor(settings: ConnectionLimits, isProxy: (address: string) => boolean, metrics: Registry) {
    this.#settings = settings
    this.#isProxy = isProxy
    const open = {
      name: 'svc_connections',
      help: 'Connections that are open in this process, WebSockets included.',
    }
    addGauge(metrics, open, () => this.#open)
    const refused = {
      name: 'svc_connections_refused_total',
      help: 'Connections that were closed, because there were too many (of their address, or in the process) or too many requests at once on one.',
    }
    this.#refused = addCounter(metrics, refused, 'reason', ['address', 'whole', 'pipelined'])
  }

  get addresses(): number {
    return this.#byAddress.size
  }

  serve(server: Server): void {
    server.on('connection', (socket: Socket) => this.#accept(socket))
    const answers = server.listeners('request') as RequestListener[]
    server.removeAllListeners('request')
    for (const answer of answers) server.on('request', this.#limitPipelining(answer))
    // Node answers these by itself, without a 'request' event.
    const refuse: RequestListener = (_, response) => response.writeHead(417).end()
    server.on('checkExpectation', this.#limitPipelining(refuse))
  }

  /** Closes a connection with too many requests in progress. */
  #limitPipelining(answer: RequestListener): RequestListener {
    return (request, response) => {
      const { socket } = request
      // The rest of the packet is still parsed after the socket is closed.
      if (socket.destroyed) return
      const others = this.#inProgress.get(socket) ?? 0
      if (others >= maxPipelined) {
        this.#refused.inc({ reason: 'pipelined' })
        socket.destroy()
        return
      }
      this.#inProgress.set(socket, others + 1)
      response.once('close', () => this.#inProgress.set(socket, this.#inProgress.get(socket)! - 1))
      answer(request, response)
    }
  }

  #accept(socket: Socket): void {
    const { remoteAddress: peer } = socket
    // It is closed already.
    if (peer === undefined) return
    const address = this.#isProxy(peer) ? undefined : networkOf(normalizeAddress(peer))
    const reason = this.#exceeded(address)
    if (reason !== undefined) {
      this.#refused.inc({ reason })
      socket.destroy()
      return
    }
    if (address !== undefined) addCount(this.#byAddress, address, 1)
    this.#open += 1
    socket.once('close', () => this.#closed(address))
  }

  #exceeded(address: string | undefined): 'whole' | 'address' | undefined {
    if (this.#open >= this.#settings.whole) return 'whole'
    const isFull = address !== undefined && countOf(this.#byAddress, address) >= this.#settings.perAddress
    return isFull ? 'address' : undefined
  }

  #closed(address: string | undefined): void {
    this.#open -= 1
    if (address === undefined) return
    addCount(this.#byAddress, address, -1)
  }
}

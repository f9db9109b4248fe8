// The load: a process of its own that keeps some connections busy, one request at a time on each.
// Raw sockets, because it has to be cheaper than the server it loads.
import { connect, type Socket } from 'node:net'
import { quantile } from './figures.ts'

export type LoadRequest = {
  method: string
  path: string
  headers: Record<string, string>
  body?: string
}

/** Sent to this process; one at a time. */
export type Order = {
  url: string
  requests: LoadRequest[]
  status: number
  connections: number
  milliseconds: number
}

/** `p50`, `p99` and `max` in milliseconds, `cpu` in microseconds of this process. */
export type Load = { requests: number; seconds: number; p50: number; p99: number; max: number; cpu: number }

process.on('message', (order: Order) => {
  run(order).then(
    (load) => process.send!({ load }),
    (error: Error) => process.send!({ error: error.message }),
  )
})
process.on('disconnect', () => process.exit(0))

async function run(order: Order): Promise<Load> {
  const { hostname, port, host } = new URL(order.url)
  const drafts = order.requests.map((request) => bytesOf(request, host))
  const sockets = await Promise.all(
    Array.from({ length: order.connections }, () => opened(hostname, Number(port))),
  )
  const times: number[] = []
  const cpu = process.cpuUsage()
  const begin = performance.now()
  const end = begin + order.milliseconds
  try {
    const step = Math.max(1, Math.floor(drafts.length / sockets.length))
    await Promise.all(
      sockets.map((socket, index) => keepBusy(socket, drafts, index * step, order.status, end, times)),
    )
  } finally {
    for (const socket of sockets) socket.destroy()
  }
  const seconds = (performance.now() - begin) / 1000
  const { user, system } = process.cpuUsage(cpu)
  const sorted = Float64Array.from(times).sort()
  return {
    requests: times.length,
    seconds,
    p50: quantile(sorted, 0.5),
    p99: quantile(sorted, 0.99),
    max: sorted.at(-1) ?? 0,
    cpu: user + system,
  }
}

function bytesOf({ method, path, headers, body = '' }: LoadRequest, host: string): Buffer {
  const all = {
    host,
    ...headers,
    ...(body && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`)
}

function opened(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true }, () => {
      socket.off('error', reject)
      resolve(socket)
    })
    socket.once('error', reject)
  })
}

const headEnd = Buffer.from('\r\n\r\n')
const lengths = [Buffer.from('\r\ncontent-length: '), Buffer.from('\r\nContent-Length: ')]

/** Sends one request after the other until `end`; resolves when the last reply is whole. */
function keepBusy(
  socket: Socket,
  drafts: readonly Buffer[],
  first: number,
  status: number,
  end: number,
  times: number[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    let next = first
    let sentAt = 0
    /** Bytes of the reply that are still to come; -1 before its head is whole. */
    let missing = -1
    let head: Buffer | undefined
    const late = setTimeout(() => reject(new Error('no reply for 20 s')), end - performance.now() + 20_000)
    const send = () => {
      missing = -1
      sentAt = performance.now()
      socket.write(drafts[next++ % drafts.length]!)
    }
    const done = (error?: Error) => {
      clearTimeout(late)
      socket.removeAllListeners('data')
      if (error) reject(error)
      else resolve()
    }
    socket.on('error', done)
    socket.on('close', () => done(new Error('the connection was closed')))
    socket.on('data', (chunk: Buffer) => {
      if (missing === -1) {
        const bytes = head ? Buffer.concat([head, chunk]) : chunk
        const at = bytes.indexOf(headEnd)
        if (at === -1) {
          head = bytes
          return
        }
        head = undefined
        if (numberAt(bytes, 9) !== status)
          return done(new Error(`unexpected reply: ${bytes.toString('utf8')}`))
        const length = lengthOf(bytes)
        if (length === undefined) return done(new Error('a reply without content-length'))
        missing = at + 4 + length - bytes.length
      } else {
        missing -= chunk.length
      }
      if (missing > 0) return
      const now = performance.now()
      times.push(now - sentAt)
      if (now < end) send()
      else done()
    })
    send()
  })
}

function lengthOf(bytes: Buffer): number | undefined {
  for (const name of lengths) {
    const at = bytes.indexOf(name)
    if (at !== -1) return numberAt(bytes, at + name.length)
  }
  return undefined
}

function numberAt(bytes: Buffer, from: number): number {
  let value = 0
  for (let at = from; ; at++) {
    const digit = bytes[at]! - 48
    if (!(digit >= 0 && digit <= 9)) return value
    value = value * 10 + digit
  }
}

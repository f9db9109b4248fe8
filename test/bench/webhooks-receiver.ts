// The receiver of deliveries: a process of its own that does as little as it can, over TLS.
// Runs as: node webhooks-receiver.ts <folder of key.pem and cert.pem>
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createServer, type TLSSocket } from 'node:tls'
import { quantile } from './figures.ts'

/** Sent to this process: how long `/slow` takes from now on; the delays are counted anew. */
type Manner = { slowMs: number }
/** Milliseconds from the event to its arrival, of what goes to neither. */
export type Delays = { count: number; p50: number; p99: number; worst: number }
/** Sent by this process; `count` is all that has arrived at other paths than `/bare`. */
export type Told = { port: number } | { count: number } | { delays: Delays }

const [folder = ''] = process.argv.slice(2)
const tell = (what: Told) => process.send!(what)
let count = 0
let told = 0
let slowMs = 0
let delays: number[] = []

const headEnd = Buffer.from('\r\n\r\n')
const timestamp = Buffer.from('"timestamp":"')
const bare = Buffer.from('POST /bare')
const slow = Buffer.from('POST /slow')
const reply = 'HTTP/1.1 204 No Content\r\n\r\n'

function receive(socket: TLSSocket): void {
  let kept: Buffer = Buffer.alloc(0)
  socket.setNoDelay(true)
  socket.on('error', () => socket.destroy())
  socket.on('data', (piece: Buffer) => {
    kept = kept.length === 0 ? piece : Buffer.concat([kept, piece])
    const head = kept.indexOf(headEnd)
    if (head === -1) return
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(kept.toString('latin1', 0, head))?.[1])
    if (kept.length < head + 4 + length) return
    arrived(socket, kept, head + 4)
    // Nobody sends a second request before the first is answered.
    kept = Buffer.alloc(0)
  })
}

function arrived(socket: TLSSocket, request: Buffer, bodyAt: number): void {
  if (request.indexOf(bare) === 0) return void socket.write(reply)
  count += 1
  if (request.indexOf(slow) === 0) return void setTimeout(() => socket.write(reply), slowMs)
  const at = request.indexOf(timestamp, bodyAt) + timestamp.length
  delays.push(Date.now() - Date.parse(request.toString('latin1', at, at + 24)))
  socket.write(reply)
}

const pair = { key: readFileSync(join(folder, 'key.pem')), cert: readFileSync(join(folder, 'cert.pem')) }
const server = createServer(pair, receive)
server.listen(0, '127.0.0.1', () => tell({ port: (server.address() as AddressInfo).port }))
setInterval(() => {
  if (count !== told) tell({ count })
  told = count
}, 5)
process.on('message', (manner: Manner) => {
  const sorted = Float64Array.from(delays).sort()
  const [p50, p99] = [quantile(sorted, 0.5), quantile(sorted, 0.99)]
  tell({ delays: { count: sorted.length, p50, p99, worst: sorted.at(-1) ?? Number.NaN } })
  delays = []
  slowMs = manner.slowMs
})
process.on('disconnect', () => process.exit(0))

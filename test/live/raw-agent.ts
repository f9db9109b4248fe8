import { once } from 'node:events'
import { onTestFinished } from 'vitest'
import { type ClientOptions, WebSocket } from 'ws'

export type Frame = Record<string, unknown> & { type: string }
export type Asked = Frame & { id: string; payload: Record<string, unknown> }
type Answering = (command: Asked) => Record<string, unknown> | undefined

/** An agent that sends just what a test wants. */
export class RawAgent {
  readonly socket: WebSocket
  readonly frames: Frame[] = []
  readonly closed: Promise<{ code: number; reason: string }>
  /** Its reply to a command; undefined sends none. */
  answer: Answering | undefined
  pongs = true
  readonly #waiting: { wanted: (frame: Frame) => boolean; found: (frame: Frame) => void }[] = []

  constructor(url: string, agentId: string, token: string, options: ClientOptions = {}) {
    this.socket = new WebSocket(`${url.replace('http', 'ws')}/api/v1/agent-ws/${agentId}/ws`, {
      ...options,
      headers: { ...options.headers, authorization: `Bearer ${token}` },
    })
    this.socket.on('error', () => {})
    this.closed = once(this.socket, 'close').then(([code, reason]) => ({ code, reason: String(reason) }))
    this.socket.on('message', (data) => this.#hear(JSON.parse(String(data)) as Frame))
  }

  /** Connects, and waits for the connected frame. */
  static async connect(
    url: string,
    { agentId, agentToken }: { agentId: string; agentToken: string },
    answer?: Answering,
    options: ClientOptions = {},
  ): Promise<RawAgent> {
    const agent = new RawAgent(url, agentId, agentToken, options)
    agent.answer = answer
    try {
      onTestFinished(() => agent.socket.terminate())
    } catch {
      // Connected in beforeAll: it ends with the service.
    }
    await agent.frame(({ type }) => type === 'connected')
    return agent
  }

  say(frame: unknown): void {
    this.socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame))
  }

  /** The next matching frame, or an earlier one that no call has returned yet. */
  async frame(wanted: (frame: Frame) => boolean): Promise<Frame> {
    const at = this.frames.findIndex(wanted)
    if (at >= 0) return this.frames.splice(at, 1)[0]!
    const next = new Promise<Frame>((found) => this.#waiting.push({ wanted, found }))
    const ended = this.closed.then(({ code, reason }) => {
      throw new Error(`closed with ${code} ${reason}`)
    })
    return Promise.race([next, ended])
  }

  result(commandId: string, said: Record<string, unknown>): void {
    this.say({ type: 'command_result', commandId, status: 'completed', ...said })
  }

  #hear(frame: Frame): void {
    if (frame.type === 'ping' && this.pongs) this.say({ type: 'pong' })
    const said = 'id' in frame ? this.answer?.(frame as Asked) : undefined
    if (said) this.result(String(frame.id), said)
    const at = this.#waiting.findIndex(({ wanted }) => wanted(frame))
    if (at >= 0) this.#waiting.splice(at, 1)[0]!.found(frame)
    else this.frames.push(frame)
  }
}

/** The reply to a refused upgrade. */
export async function refusedUpgrade(
  url: string,
  path: string,
  headers: Record<string, string>,
): Promise<{ status: number; body: Record<string, unknown> }> {
  const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, { headers })
  socket.on('error', () => {})
  const [, reply] = await once(socket, 'unexpected-response')
  const chunks: Buffer[] = []
  for await (const chunk of reply) chunks.push(chunk as Buffer)
  return { status: reply.statusCode, body: JSON.parse(Buffer.concat(chunks).toString()) }
}

import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import type { WebSocketServer } from 'ws'
import type { AgentSocket } from '../src/agents/socket.ts'
import { Problem } from '../src/core/errors.ts'
import { newId } from '../src/core/new-id.ts'
import { type AgentFrame, type Closing, closings, largestFrame } from '../src/live/wire/contract.ts'
import { runForService, withFairShareKey } from '../src/storage/fair-queue.ts'
import { agentOwner } from './bodies.ts'
import type { BodyBudget } from './body-budget.ts'
import { agentFairShareKey } from './fair-share-keys.ts'
import { AgentConnection, type LinkedAgent } from './gateway/agent-connection.ts'
import { AgentConnections } from './gateway/agent-connections.ts'
import { FrameRateLimit, handleFrame, IncomingFrames } from './gateway/frames.ts'
import { isUnexpected, problemOf, refuse } from './problems.ts'

export type AgentAdmission = {
  /** Authenticates the agent of a connection. @throws the refusal */
  admit(request: IncomingMessage, agentId: string): Promise<LinkedAgent>
  /** Counts a frame with an effect. @throws rate_limited */
  meter(agent: LinkedAgent, type: AgentFrame['type']): void
  /** The reasons to close connections of these agents, undefined for those that stay. */
  revise(agents: readonly LinkedAgent[]): Promise<(Closing | undefined)[]>
}

/** Announces to other processes which agents are connected here. */
type Presence = {
  arrived(link: AgentConnection): Promise<void>
  left(link: AgentConnection): Promise<void>
  close(): Promise<void>
}

export type GatewayLogger = {
  warn(about: object, message: string): void
  error(about: object, message: string): void
}

export type HeartbeatSettings = { pingMs: number; pongMs: number; reviseMs: number }
const usual: HeartbeatSettings = { pingMs: 30_000, pongMs: 40_000, reviseMs: 1000 }

export type Gateway = {
  links: AgentConnections
  presence: Presence | undefined
  /** Handles the upgrade requests of this server. */
  serve(server: Server): void
  /** Called after a change that may close connections. */
  revise(): void
  /** Closes every connection: agents reconnect to another process. */
  close(): Promise<void>
}

/** Whether a request is a WebSocket for the gateway. */
export const isUpgrade = ({ method, url = '', headers }: IncomingMessage): boolean =>
  method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket' && path.test(url.split('?')[0] ?? '')

const path = /^\/api\/v1\/agent-ws\/([^/]+)\/ws\/?$/
/** Agents per query: the values of an SQL statement are limited. */
const revisedAtOnce = 500

/** The WebSockets of agents, at GET /api/v1/agent-ws/:agentId/ws. The ws package is loaded for the first one. */
export function gateway(
  admission: AgentAdmission,
  socket: AgentSocket,
  log: GatewayLogger,
  bodies: BodyBudget,
  pace: Partial<HeartbeatSettings> = {},
): Gateway {
  const { pingMs, pongMs, reviseMs } = { ...usual, ...pace }
  // Deferred: the pending command may not be committed yet.
  const links = new AgentConnections((link) =>
    setImmediate(() => withFairShareKey(agentFairShareKey(link.agent), () => push(link)).catch(logged)),
  )
  const on = { links, socket, bodies, meter: admission.meter, onProbe, onFailure: logged }
  let sockets: Promise<WebSocketServer> | undefined
  let closed = false
  let beat: NodeJS.Timeout | undefined
  let revision: NodeJS.Timeout | undefined

  const self: Gateway = { links, presence: undefined, serve, revise, close }
  return self

  function serve(server: Server): void {
    server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
      stream.on('error', () => stream.destroy())
      upgrade(request, stream, head).catch((error) => {
        const problem = problemOf(error)
        if (isUnexpected(error, problem)) log.error({ err: error }, 'an upgrade failed')
        refuse(stream, problem, newId())
      })
    })
  }

  async function upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): Promise<void> {
    const [, agentId] = path.exec((request.url ?? '').split('?')[0] ?? '') ?? []
    if (agentId === undefined || request.method !== 'GET') throw new Problem('not_found')
    if (closed) throw new Problem('unavailable')
    const agent = await admission.admit(request, agentId)
    sockets ??= open()
    const server = await sockets
    if (closed) throw new Problem('unavailable')
    if (stream.destroyed) return
    server.handleUpgrade(request, stream, head, (ws) => {
      const link = new AgentConnection(newId(), agent, ws, performance.now() + pingMs)
      const manners = new FrameRateLimit()
      const arriving = new IncomingFrames(bodies.hold(agentOwner(agent.agentId)))
      stream.on('data', (piece: Buffer) => {
        if (arriving.add(piece.length)) return
        link.cutOff(closings.busy)
      })
      const onControl = () => {
        if (manners.lapse('control', performance.now())) link.cutOff(closings.misbehaving)
      }
      ws.on('ping', onControl).on('pong', onControl)
      ws.on('message', (data, isBinary) => {
        arriving.end()
        withFairShareKey(agentFairShareKey(agent), () => handleFrame(link, manners, data, isBinary, on))
      })
      ws.on('error', () => link.end())
      ws.on('close', () => {
        arriving.end()
        link.end()
        if (links.remove(link))
          withFairShareKey(agentFairShareKey(agent), () => self.presence?.left(link))?.catch(logged)
      })
      withFairShareKey(agentFairShareKey(agent), () => completeHandshake(link)).catch((error) => {
        logged(error)
        link.end(closings.leaving)
      })
    })
  }

  async function open(): Promise<WebSocketServer> {
    const { WebSocketServer } = await import('ws')
    beat = setInterval(tick, pingMs / 6)
    beat.unref()
    return new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      maxPayload: largestFrame,
    })
  }

  async function completeHandshake(link: AgentConnection): Promise<void> {
    links.add(link)
    await self.presence?.arrived(link)
    // A decision between its admission and now did not cover this connection yet.
    const [closing] = await admission.revise([link.agent])
    if (closing) return link.end(closing)
    const { commands } = await socket.heartbeat(link.agent)
    const { agentId } = link.agent
    link.say({
      type: 'connected',
      agentId,
      timestamp: stamp(),
      capabilities: ['event_logs', 'set_log_level', 'commands', 'heartbeat', 'update_status'],
    })
    link.greeted = true
    for (const command of commands) link.give(command)
    if (link.nudged || commands.length > 0) await push(link)
  }

  /** Sends pending commands until there are none. */
  async function push(link: AgentConnection): Promise<void> {
    if (!link.greeted) {
      link.nudged = true
      return
    }
    for (let more = true; more && !link.ended; ) {
      const commands = await socket.waiting(link.agent)
      for (const command of commands) link.give(command)
      more = commands.length > 0
    }
  }

  function tick(): void {
    const now = performance.now()
    let due = false
    for (const link of links) {
      if (link.silentSince !== undefined && now - link.silentSince >= pongMs) link.end(closings.silent)
      if (link.ended || now < link.pingAt) continue
      link.pingAt = now + pingMs
      link.silentSince ??= now
      link.say({ type: 'ping', timestamp: stamp() })
      due = true
    }
    if (due) revise()
  }

  /** At most once per interval, however many changes there are. */
  function revise(): void {
    if (closed || revision || links.size === 0) return
    revision = setTimeout(() => {
      runForService(reviseAll)
        .catch(logged)
        .finally(() => {
          revision = undefined
        })
    }, reviseMs)
    revision.unref()
  }

  async function reviseAll(): Promise<void> {
    const all = [...links]
    for (let at = 0; at < all.length; at += revisedAtOnce) {
      const some = all.slice(at, at + revisedAtOnce)
      const verdicts = await admission.revise(some.map(({ agent }) => agent))
      verdicts.forEach((closing, n) => {
        if (closing) some[n]!.end(closing)
      })
    }
  }

  function onProbe({ agent: { deviceId, orgId } }: AgentConnection): void {
    log.warn({ deviceId, orgId }, 'an agent answered commands of others: connection closed')
  }

  function logged(err: unknown): void {
    if (isUnexpected(err)) log.error({ err }, 'the gateway of agents failed')
  }

  async function close(): Promise<void> {
    closed = true
    clearInterval(beat)
    clearTimeout(revision)
    for (const link of [...links]) link.end(closings.leaving)
    await self.presence?.close().catch(logged)
  }
}

const stamp = (): string => new Date().toISOString()

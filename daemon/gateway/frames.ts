import type { RawData } from 'ws'
import type { AgentSocket } from '../../src/agents/socket.ts'
import { Problem } from '../../src/core/errors.ts'
import { maxJsonDepth, measureJson, parseJson } from '../../src/core/json.ts'
import { safeParse } from '../../src/core/schema.ts'
import type { Outcome } from '../../src/live/ports.ts'
import { AgentFrame, type CommandResult, closings, largestFrame } from '../../src/live/wire/contract.ts'
import { agentOwner, estimateParsedBytes, maxJsonValues } from '../bodies.ts'
import type { BodyBudget, BodyReservation } from '../body-budget.ts'
import type { AgentConnection, LinkedAgent } from './link.ts'
import type { AgentConnections } from './links.ts'

/** A frame that may be larger than this is only read while somebody waits for a result. */
const smallFrame = 64 * 1024
const windowMs = 300_000
/** `control` are pings and pongs that the service did not ask for: a library may send some, and each costs processor time. */
const maxLapses = { wrong: 100, foreign: 5, control: 600 }

/** Bytes of a frame that is not whole yet. A large one counts: it lies in memory, and may never end. */
export class IncomingFrames {
  readonly #held: BodyReservation
  #size = 0

  constructor(held: BodyReservation) {
    this.#held = held
  }

  /** False when there is no room for more. */
  add(bytes: number): boolean {
    this.#size += bytes
    if (this.#size <= smallFrame) return true
    try {
      this.#held.to(this.#size)
      return true
    } catch {
      return false
    }
  }

  /** It is whole, or never will be. */
  end(): void {
    this.#size = 0
    this.#held.release()
  }
}

/** What an agent may get wrong within five minutes before it is hung up on. */
export class FrameRateLimit {
  readonly #times: Record<keyof typeof maxLapses, number[]> = { wrong: [], foreign: [], control: [] }

  /** Counts one; true when that was one too many. */
  lapse(kind: keyof typeof maxLapses, now: number): boolean {
    const times = this.#times[kind].filter((time) => time > now - windowMs)
    times.push(now)
    this.#times[kind] = times
    return times.length >= maxLapses[kind]
  }
}

export type FrameHandlers = {
  links: AgentConnections
  /** What frames do that go to the database. */
  socket: Pick<AgentSocket, 'heartbeat' | 'result' | 'updateStatus'>
  /** What frames take in memory until they were attended to. */
  bodies: BodyBudget
  /** Counts a frame that does. @throws rate_limited */
  meter(agent: LinkedAgent, type: AgentFrame['type']): void
  onProbe(link: AgentConnection): void
  onFailure(error: unknown): void
}
type Fault = { message: string; messageType?: string; commandId?: string }

/** One frame of an agent: whatever it is, nothing breaks. */
export function handleFrame(
  link: AgentConnection,
  manners: FrameRateLimit,
  data: RawData,
  isBinary: boolean,
  on: FrameHandlers,
): void {
  if (link.ended) return
  const fault = isBinary ? { message: 'frames are JSON text' } : understand(link, manners, data as Buffer, on)
  if (fault !== undefined) lapsed(link, manners, 'INVALID_MESSAGE', fault)
}

function lapsed(
  link: AgentConnection,
  manners: FrameRateLimit,
  code: 'INVALID_MESSAGE' | 'PROCESSING_ERROR',
  fault: Fault,
): void {
  if (manners.lapse('wrong', performance.now())) link.cutOff(closings.misbehaving)
  else link.say({ type: 'error', code, ...fault })
}

function understand(
  link: AgentConnection,
  manners: FrameRateLimit,
  bytes: Buffer,
  on: FrameHandlers,
): Fault | undefined {
  if (bytes.length > smallFrame && !link.waits) {
    return { message: 'nothing was asked for that is this large' }
  }
  const text = bytes.toString()
  const { depth, values } = measureJson(text)
  if (depth > maxJsonDepth || values > maxJsonValues(largestFrame)) {
    return { message: 'the frame is nested too deep, or has too many values' }
  }
  const held = on.bodies.hold(agentOwner(link.agent.agentId))
  try {
    held.grow(estimateParsedBytes(text, values))
  } catch (problem) {
    return { message: (problem as Problem).message }
  }
  const heeded = heed(link, manners, parseJson(text), on)
  if (heeded instanceof Promise) void heeded.then(() => held.release())
  else held.release()
  return heeded instanceof Promise ? undefined : heeded
}

/** Gives what is still to be done, or what is wrong with it. */
function heed(
  link: AgentConnection,
  manners: FrameRateLimit,
  said: unknown,
  on: FrameHandlers,
): Promise<void> | Fault | undefined {
  if (said === undefined) return { message: 'the frame is not JSON' }
  const { success, data: frame } = safeParse(AgentFrame, said)
  if (!success) {
    const type = (said as { type?: unknown } | null)?.type
    const named = typeof type === 'string' && { messageType: type.slice(0, 100) }
    return { message: 'the frame is none of this protocol', ...named }
  }
  if (frame.type === 'pong') {
    if (link.silentSince === undefined) return { message: 'no ping was sent', messageType: 'pong' }
    link.silentSince = undefined
    return undefined
  }
  if (frame.type === 'command_result' && on.links.settle(link, frame.commandId, outcomeOf(frame))) {
    return undefined
  }
  // One after the other, as they came.
  const attended = link.inTurn(() => attend(link, manners, frame, on))
  if (!attended) link.cutOff(closings.misbehaving)
  return attended
}

type Attended = Exclude<AgentFrame, { type: 'pong' }>

/** A frame that does something. What goes wrong is told, and the connection goes on. */
async function attend(
  link: AgentConnection,
  manners: FrameRateLimit,
  frame: Attended,
  on: FrameHandlers,
): Promise<void> {
  const { agent } = link
  const about = {
    messageType: frame.type,
    ...(frame.type === 'command_result' && { commandId: frame.commandId }),
  }
  try {
    on.meter(agent, frame.type)
    if (frame.type === 'heartbeat') link.acknowledge(await on.socket.heartbeat(agent))
    else if (frame.type === 'update_status') await on.socket.updateStatus(agent, frame)
    else if ((await on.socket.result(agent, frame)) !== 'foreign') link.settled(frame.commandId)
    // Somebody else's command, or a guess at one: not even that it exists is told.
    else if (manners.lapse('foreign', performance.now())) {
      on.onProbe(link)
      link.cutOff(closings.refused)
    }
  } catch (error) {
    const isExpected = error instanceof Problem
    if (!isExpected) on.onFailure(error)
    const message = isExpected ? error.message : 'it could not be done now'
    lapsed(link, manners, 'PROCESSING_ERROR', { message, ...about })
  }
}

function outcomeOf({ status, result, stdout, error, code }: CommandResult): Outcome {
  if (status === 'timeout') return { status }
  if (status === 'failed') return { status, error: error ?? '', ...(code && { code }) }
  return { status, result: result ?? (stdout === undefined ? undefined : parseJson(stdout)) }
}

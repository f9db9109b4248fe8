import type { RawData } from 'ws'
import type { AgentSocket } from '../../src/agents/socket.ts'
import { Problem } from '../../src/core/errors.ts'
import { maxJsonDepth, measureJson, parseJson } from '../../src/core/json.ts'
import { safeParse } from '../../src/core/schema.ts'
import type { Outcome } from '../../src/live/ports.ts'
import { AgentFrame, type CommandResult, closings, largestFrame } from '../../src/live/wire/contract.ts'
import { agentOwner, estimateParsedBytes, maxJsonValues } from '../bodies.ts'
import type { BodyBudget, BodyReservation } from '../body-budget.ts'
import type { AgentConnection, LinkedAgent } from './agent-connection.ts'
import type { AgentConnections } from './agent-connections.ts'

/** Larger frames are read only while a result is expected. */
const smallFrame = 64 * 1024
const windowMs = 300_000
/** `control` are pings and pongs that the service did not ask for: a library may send some, and each costs processor time. */
const maxLapses = { wrong: 100, foreign: 5, control: 600 }

/** Counts the bytes of an incomplete frame: it occupies memory, and may never end. */
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
      // The refusal of `to`: too many bodies are in memory.
      return false
    }
  }

  /** The frame is complete or aborted. */
  end(): void {
    this.#size = 0
    this.#held.release()
  }
}

/** Counts faults of an agent within five minutes; beyond the limit its connection is closed. */
export class FrameRateLimit {
  readonly #times: Record<keyof typeof maxLapses, number[]> = { wrong: [], foreign: [], control: [] }

  /** Counts one; true beyond the limit. */
  lapse(kind: keyof typeof maxLapses, now: number): boolean {
    const times = this.#times[kind].filter((time) => time > now - windowMs)
    times.push(now)
    this.#times[kind] = times
    return times.length >= maxLapses[kind]
  }
}

export type FrameHandlers = {
  links: AgentConnections
  /** Frame handlers that use the database. */
  socket: Pick<AgentSocket, 'heartbeat' | 'result' | 'updateStatus'>
  /** Memory budget of frames until they are processed. */
  bodies: BodyBudget
  /** Counts such a frame. @throws rate_limited */
  meter(agent: LinkedAgent, type: AgentFrame['type']): void
  onProbe(link: AgentConnection): void
  onFailure(error: unknown): void
}
type Fault = { message: string; messageType?: string; commandId?: string }

/** Handles one frame of an agent; an invalid frame never throws. */
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
    return { message: 'no result of this size is expected' }
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

/** Returns the pending work, or the fault of the frame. */
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
    return { message: 'the frame is not of this protocol', ...named }
  }
  if (frame.type === 'pong') {
    if (link.silentSince === undefined) return { message: 'no ping was sent', messageType: 'pong' }
    link.silentSince = undefined
    return undefined
  }
  if (frame.type === 'command_result' && on.links.settle(link, frame.commandId, outcomeOf(frame))) {
    return undefined
  }
  // In the order of arrival.
  const attended = link.inTurn(() => attend(link, manners, frame, on))
  if (!attended) link.cutOff(closings.misbehaving)
  return attended
}

type Attended = Exclude<AgentFrame, { type: 'pong' }>

/** Processes a frame with an effect. A failure is reported, and the connection stays open. */
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
    // A command of another device, or a guess: the reply must not reveal that it exists.
    else if (manners.lapse('foreign', performance.now())) {
      on.onProbe(link)
      link.cutOff(closings.refused)
    }
  } catch (error) {
    const isExpected = error instanceof Problem
    if (!isExpected) on.onFailure(error)
    const message = isExpected ? error.message : 'it could not be processed now'
    lapsed(link, manners, 'PROCESSING_ERROR', { message, ...about })
  }
}

function outcomeOf({ status, result, stdout, error, code }: CommandResult): Outcome {
  if (status === 'timeout') return { status }
  if (status === 'failed') return { status, error: error ?? '', ...(code && { code }) }
  return { status, result: result ?? (stdout === undefined ? undefined : parseJson(stdout)) }
}

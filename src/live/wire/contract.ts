import { z } from 'zod'
import { instant, text } from '../../core/schema.ts'

/* Messages between the service and an agent over the agent's WebSocket, as JSON text frames. */

/** Most bytes of a frame. */
export const largestFrame = 16 * 1024 * 1024
/** Most entries of one query. */
export const maxEvents = 500

/** Why the service closes a connection. */
export const closings = {
  leaving: { code: 1001, reason: 'the service is going away' },
  busy: { code: 1013, reason: 'too many bytes at once: try again later' },
  misbehaving: { code: 1008, reason: 'too many frames that nobody asked for' },
  refused: { code: 4001, reason: 'not authorized' },
  superseded: { code: 4002, reason: 'superseded by a newer connection' },
  silent: { code: 4008, reason: 'no pong' },
  moved: { code: 4040, reason: 'the device is in another organization' },
  decommissioned: { code: 4041, reason: 'the device was decommissioned' },
} as const
export type Closing = (typeof closings)[keyof typeof closings]

export const QueryLog = z.object({
  logName: z.string(),
  /** Empty: any. */
  level: z.string().default(''),
  source: z.string().default(''),
  /** 0: any. */
  eventId: z.number().default(0),
  /** Empty: from the beginning, to the end. */
  startTime: z.string().default(''),
  endTime: z.string().default(''),
  page: z.int().min(1).default(1),
  limit: z.int().min(1).max(maxEvents).default(50),
  timeoutSeconds: z.number().positive().max(600).default(30),
})
export type QueryLog = z.output<typeof QueryLog>
export const GetEvent = z.object({ logName: z.string(), recordId: z.int().min(0) })
export const SetLogLevel = z.object({
  level: z.enum(['debug', 'info', 'warn']),
  durationMinutes: z.number().positive().max(1440).default(60),
})
export type SetLogLevel = z.output<typeof SetLogLevel>

/** A command as sent: without a frame type around it. */
export const Command = z.object({
  id: z.string().min(1).max(64),
  type: z.string().min(1).max(50),
  payload: z.record(z.string(), z.unknown()),
})
export type Command = z.output<typeof Command>

export const CommandResult = z.object({
  type: z.literal('command_result'),
  commandId: z.string().max(64),
  status: z.enum(['completed', 'failed', 'timeout']),
  result: z.unknown().optional(),
  /** Where older agents put the result, as JSON. */
  stdout: z.string().optional(),
  error: z.string().optional(),
  /** Kind of failure, where the service distinguishes them. */
  code: z.enum(['log_not_found', 'record_not_found']).optional().catch(undefined),
  exitCode: z.int().optional().catch(undefined),
  stderr: z.string().optional().catch(undefined),
  durationMs: z.number().min(0).max(1e12).optional().catch(undefined),
  startedAt: instant.optional().catch(undefined),
})
export type CommandResult = z.output<typeof CommandResult>

/** A heartbeat without changes, like one over HTTP. */
const HeartbeatFrame = z.object({ type: z.literal('heartbeat') })

/** Progress of an update that was offered to the agent. */
export const UpdateFrame = z.object({
  type: z.literal('update_status'),
  targetVersion: text(50, 1),
  state: z.enum(['updating', 'failed', 'refused', 'rolled_back']),
  reason: text(1000).optional(),
})
export type UpdateFrame = z.output<typeof UpdateFrame>

/** All frames that an agent may send. */
export const AgentFrame = z.discriminatedUnion('type', [
  z.object({ type: z.literal('pong') }),
  HeartbeatFrame,
  CommandResult,
  UpdateFrame,
])
export type AgentFrame = z.output<typeof AgentFrame>

/** The service's frames besides commands; fields an agent does not know are ignored. */
export type ServiceFrame =
  | { type: 'connected'; agentId: string; timestamp: string; capabilities: string[] }
  | { type: 'ping'; timestamp: string }
  | {
      type: 'heartbeat_ack'
      timestamp: string
      commands: readonly Command[]
      manifestTrustKeys: readonly unknown[]
    }
  /** The result of a durable command is stored. */
  | { type: 'ack'; commandId: string }
  | {
      type: 'error'
      code: 'INVALID_MESSAGE' | 'PROCESSING_ERROR'
      message: string
      messageType?: string
      commandId?: string
    }

const maybeNumber = z.number().nullish().catch(undefined)
const maybeText = z.string().nullish().catch(undefined)

/** A log as reported by an agent; unknown values may be absent, 0 or empty. */
export const AgentLog = z.object({
  name: z.string(),
  displayName: maybeText,
  recordCount: maybeNumber,
  maxSizeBytes: maybeNumber,
  retentionDays: maybeNumber,
  lastWriteTime: maybeText,
})
export type AgentLog = z.output<typeof AgentLog>
export const AgentLogs = z.object({ logs: z.array(AgentLog) })

export const AgentEvent = z.object({
  recordId: z.number().int().min(0),
  level: z.string(),
  timeCreated: z.string(),
  source: z.string(),
  eventId: z.number().nullish().catch(undefined),
  message: z.string(),
  category: maybeText,
  computer: maybeText,
  userId: maybeText,
  user: maybeText,
  rawXml: maybeText,
})
export type AgentEvent = z.output<typeof AgentEvent>
export const AgentEvents = z.object({ events: z.array(AgentEvent), total: z.number().int().min(0) })

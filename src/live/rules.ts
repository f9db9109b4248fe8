import type { z } from 'zod'
import { invalid, Problem } from '../core/errors.ts'
import { safeParse } from '../core/schema.ts'
import type { Instant } from '../core/time.ts'
import type { Device } from '../devices/contract.ts'
import type { EventsQuery, LiveEvent, LiveLog } from './contract.ts'
import type { Outcome } from './ports.ts'
import {
  AgentEvent,
  AgentEvents,
  type AgentLog,
  AgentLogs,
  type Command,
  type QueryLog,
} from './wire/contract.ts'

export type LiveQuery = Omit<Command, 'id'>

export const listLogsQuery: LiveQuery = { type: 'event_logs_list', payload: {} }

/** @throws invalid_request for a time that ends before it begins */
export function eventsQuery(logName: string, query: EventsQuery, timeoutMs: number): LiveQuery {
  const { level = '', source = '', startTime = '', endTime = '', eventId = 0, page, limit } = query
  if (startTime && endTime && endTime < startTime) {
    throw invalid([{ path: 'query.endTime', message: 'must not lie before startTime' }])
  }
  const payload: QueryLog = {
    logName,
    level,
    source,
    eventId,
    startTime,
    endTime,
    page,
    limit,
    timeoutSeconds: Math.max(1, timeoutMs / 1000),
  }
  return { type: 'event_logs_query', payload }
}

export const recordQuery = (logName: string, recordId: number): LiveQuery => ({
  type: 'event_log_get',
  payload: { logName, recordId },
})

/** @throws device_offline for a device whose agent is refused, connected or not */
export function checkQueryable({ status }: Device): void {
  if (status === 'decommissioned' || status === 'quarantined') throw offline(status, null)
}

const offline = (status: string, lastSeenAt: Instant | null): Problem =>
  new Problem('device_offline', `Device is ${status}, cannot execute command`, {
    details: { status, lastSeenAt },
  })

const absent = {
  log_not_found: 'Event log not found',
  record_not_found: 'Event not found',
} as const

/**
 * Returns the agent's result, or throws the problem that matches the outcome.
 * @throws not_found, device_failed, device_timeout, device_unreachable, device_offline, rate_limited
 */
export function resultOf(outcome: Outcome, device: Device, timeoutMs: number): unknown {
  switch (outcome.status) {
    case 'completed':
      return outcome.result
    case 'failed': {
      if (outcome.code) throw new Problem('not_found', absent[outcome.code])
      const reason = outcome.error.slice(0, 1000)
      throw new Problem(
        'device_failed',
        reason ? `The agent could not execute the command: ${reason}` : undefined,
      )
    }
    case 'timeout':
      throw new Problem('device_timeout', `Command timed out after ${timeoutMs}ms`)
    case 'busy':
      throw new Problem('rate_limited', 'Too many live queries to this device at once', { retryAfter: 1 })
    case 'unreachable':
      if (device.status === 'offline' || device.status === 'pending') {
        throw offline(device.status, device.lastSeenAt)
      }
      throw new Problem('device_unreachable')
  }
}

/** @throws device_failed when the reply has another form than expected */
function parseResult<S extends z.ZodType>(schema: S, result: unknown): z.output<S> {
  const read = safeParse(schema, result)
  if (read.success) return read.data
  throw new Problem('device_failed', 'The agent answered in a form that this version does not know')
}

export const logsIn = (result: unknown): LiveLog[] => parseResult(AgentLogs, result).logs.map(logOf)

/** Finds a log by name, ignoring letter case. @throws not_found */
export function findLog(logs: readonly LiveLog[], name: string): LiveLog {
  const wanted = name.toLowerCase()
  const found = logs.find((one) => one.name === name) ?? logs.find((one) => one.name.toLowerCase() === wanted)
  if (!found) throw new Problem('not_found', absent.log_not_found)
  return found
}

/** At most as many as were requested. */
export function eventsIn(result: unknown, limit: number): { events: LiveEvent[]; total: number } {
  const { events, total } = parseResult(AgentEvents, result)
  return { events: events.slice(0, limit).map(eventOf), total }
}

export const eventIn = (result: unknown): LiveEvent => eventOf(parseResult(AgentEvent, result))

/** Some agents send 0 and '' for unknown values. */
const logOf = ({ name, displayName, recordCount, maxSizeBytes, retentionDays, lastWriteTime }: AgentLog) => ({
  name,
  displayName: displayName || name,
  recordCount: recordCount === undefined || recordCount === null ? null : Math.trunc(recordCount),
  maxSize: maxSizeBytes || null,
  retentionDays: retentionDays ? Math.trunc(retentionDays) : null,
  lastWriteTime: lastWriteTime ? (instantOf(lastWriteTime) ?? null) : null,
})

/** @throws device_failed for an invalid time */
function eventOf(event: AgentEvent): LiveEvent {
  const timeCreated = instantOf(event.timeCreated)
  if (timeCreated === undefined) {
    throw new Problem('device_failed', 'The agent answered in a form that this version does not know')
  }
  const { recordId, source, message, category, computer, rawXml } = event
  return {
    recordId,
    timeCreated,
    source,
    message,
    level: levelOf(event.level),
    eventId: event.eventId ?? 0,
    category: category ?? null,
    user: event.user || event.userId || null,
    computer: computer || null,
    rawXml: rawXml ?? null,
  }
}

function instantOf(text: string): Instant | undefined {
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : new Date(at).toISOString()
}

const levels: Readonly<Record<string, LiveEvent['level']>> = {
  info: 'information',
  information: 'information',
  warn: 'warning',
  warning: 'warning',
  error: 'error',
  critical: 'critical',
  fatal: 'critical',
  verbose: 'verbose',
  debug: 'verbose',
}

const levelOf = (level: string): LiveEvent['level'] => levels[level.toLowerCase()] ?? 'information'

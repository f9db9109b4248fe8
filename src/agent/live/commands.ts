import {
  type Command,
  type CommandResult,
  type CommandType,
  GetEvent,
  payloads,
  QueryLog,
  SetLogLevel,
} from '../../live/wire/contract.ts'
import type { Diagnostics } from '../diagnostics.ts'
import { type LiveLogs, NotThere } from './answers.ts'

type Result = Omit<CommandResult, 'type' | 'commandId'>

export type Able = { logs: LiveLogs; diagnostics: Diagnostics }

/** Does what the service asks; what cannot be done is an answer as well. */
export async function obey({ type, payload }: Command, able: Able, signal: AbortSignal): Promise<Result> {
  try {
    if (!Object.hasOwn(payloads, type)) return { status: 'failed', error: `this agent does not know ${type}` }
    return { status: 'completed', result: await perform(type as CommandType, payload, able, signal) }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    return {
      status: 'failed',
      error: message.slice(0, 1000),
      ...(error instanceof NotThere && { code: error.code }),
    }
  }
}

function perform(
  type: CommandType,
  payload: unknown,
  { logs, diagnostics }: Able,
  signal: AbortSignal,
): unknown {
  switch (type) {
    case 'event_logs_list':
      return logs.list(signal)
    case 'event_logs_query':
      return logs.query(QueryLog.parse(payload), signal)
    case 'event_log_get': {
      const { logName, recordId } = GetEvent.parse(payload)
      return logs.get(logName, recordId, signal)
    }
    case 'set_log_level': {
      const { level, durationMinutes } = SetLogLevel.parse(payload)
      diagnostics.keepFrom(level, durationMinutes * 60_000)
      return {}
    }
  }
}

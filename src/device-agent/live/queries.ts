import { type Command, type CommandResult, GetEvent, QueryLog } from '../../live/wire/contract.ts'
import { type LiveLogs, LogNotFound } from './logs.ts'

type Result = Omit<CommandResult, 'type' | 'commandId'>

/** Answers a live query; a failure is an answer as well. */
export async function answerQuery(
  { type, payload }: Command,
  logs: LiveLogs,
  signal: AbortSignal,
): Promise<Result> {
  try {
    return { status: 'completed', result: await answer(type, payload, logs, signal) }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    return {
      status: 'failed',
      error: message.slice(0, 1000),
      ...(error instanceof LogNotFound && { code: error.code }),
    }
  }
}

function answer(type: string, payload: unknown, logs: LiveLogs, signal: AbortSignal): unknown {
  switch (type) {
    case 'event_logs_list':
      return logs.list(signal)
    case 'event_logs_query':
      return logs.query(QueryLog.parse(payload), signal)
    case 'event_log_get': {
      const { logName, recordId } = GetEvent.parse(payload)
      return logs.get(logName, recordId, signal)
    }
    default:
      throw new Error(`this agent does not know ${type}`)
  }
}

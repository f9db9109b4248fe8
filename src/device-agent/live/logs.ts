import type { z } from 'zod'
import type { AgentEvent, AgentEvents, AgentLogs, QueryLog } from '../../live/wire/contract.ts'

type LogList = z.input<typeof AgentLogs>
export type EventPage = z.input<typeof AgentEvents>
export type LogEvent = z.input<typeof AgentEvent>

/** The present logs of this machine. An abort stops a running read. */
export type LiveLogs = {
  list(signal: AbortSignal): Promise<LogList>
  query(query: QueryLog, signal: AbortSignal): Promise<EventPage>
  get(logName: string, recordId: number, signal: AbortSignal): Promise<LogEvent>
}

export class LogNotFound extends Error {
  readonly code: 'log_not_found' | 'record_not_found'

  constructor(code: LogNotFound['code']) {
    super(code === 'log_not_found' ? 'Event log not found' : 'Event not found')
    this.code = code
  }
}

/** The log of that name, ignoring letter case. @throws LogNotFound */
export function findLog<T extends { name: string }>(logs: readonly T[], name: string): T {
  const wanted = name.toLowerCase()
  const found = logs.find((one) => one.name === name) ?? logs.find((one) => one.name.toLowerCase() === wanted)
  if (!found) throw new LogNotFound('log_not_found')
  return found
}

/** Most matching entries counted, newest first; older ones are not reachable by paging. */
export const maxCounted = 10_000
/** Most characters of a message. */
export const maxMessageLength = 8000

/** Selects the entries of one page from all matches, newest first. */
export function pageCollector({ page, limit }: QueryLog) {
  const from = (page - 1) * limit
  const events: LogEvent[] = []
  let total = 0
  return {
    /** `read` is called only for entries on the page. */
    offer(read: () => LogEvent): void {
      if (total >= from && total < from + limit) events.push(read())
      total += 1
    },
    isFull: (): boolean => total >= maxCounted,
    done: (): EventPage => ({ events, total }),
  }
}

import type { z } from 'zod'
import type { AgentEvent, AgentEvents, AgentLogs, QueryLog } from '../../live/wire/contract.ts'

export type Logs = z.input<typeof AgentLogs>
export type Events = z.input<typeof AgentEvents>
export type Event = z.input<typeof AgentEvent>

/** The logs of this machine as they are now. An abort ends what was begun. */
export type LiveLogs = {
  list(signal: AbortSignal): Promise<Logs>
  query(query: QueryLog, signal: AbortSignal): Promise<Events>
  get(logName: string, recordId: number, signal: AbortSignal): Promise<Event>
}

export class NotThere extends Error {
  readonly code: 'log_not_found' | 'record_not_found'

  constructor(code: NotThere['code']) {
    super(code === 'log_not_found' ? 'Event log not found' : 'Event not found')
    this.code = code
  }
}

/** The log of that name, in any letter case. @throws NotThere */
export function named<T extends { name: string }>(logs: readonly T[], name: string): T {
  const wanted = name.toLowerCase()
  const found = logs.find((one) => one.name === name) ?? logs.find((one) => one.name.toLowerCase() === wanted)
  if (!found) throw new NotThere('log_not_found')
  return found
}

/** Matching entries are counted as far as this, newest first; older ones are out of reach of a page. */
export const mostCounted = 10_000
/** Characters of one message. */
export const longestMessage = 8000

/** Picks the entries of one page out of all that come by, newest first. */
export function pageOf({ page, limit }: QueryLog) {
  const from = (page - 1) * limit
  const events: Event[] = []
  let total = 0
  return {
    /** `read` is called for what is on the page alone. */
    offer(read: () => Event): void {
      if (total >= from && total < from + limit) events.push(read())
      total += 1
    },
    isFull: (): boolean => total >= mostCounted,
    done: (): Events => ({ events, total }),
  }
}

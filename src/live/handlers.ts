import { addCount, countOf } from '../core/counts.ts'
import { Problem } from '../core/errors.ts'
import { toPage } from '../core/page.ts'
import type { Scope } from '../core/scope.ts'
import { addSeconds } from '../core/time.ts'
import type { Device } from '../devices/contract.ts'
import { getDevice } from '../devices/store.ts'
import { type AuditFacts, type Caller, type HandlersOf, inSteps } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import type * as contract from './contract.ts'
import type { AgentChannels } from './ports.ts'
import {
  checkQueryable,
  eventIn,
  eventsIn,
  eventsQuery,
  findLog,
  type LiveQuery,
  listLogsQuery,
  logsIn,
  recordQuery,
  resultOf,
} from './rules.ts'

export type Live = { switchboard: AgentChannels; liveTimeoutMs: number }

/** Queries that one caller may have open at once. */
const maxConcurrent = 8

type Asking = {
  scope: Scope
  caller: Caller
  note(facts: AuditFacts): void
  gone(): AbortSignal
}

export function liveHandlers({ switchboard, liveTimeoutMs: timeoutMs }: Live) {
  const underWay = new Map<string, number>()

  /** Queries the agent and waits for its reply; no transaction is open meanwhile. */
  async function ask(db: Db, { scope, caller, note, gone }: Asking, deviceId: string, question: LiveQuery) {
    const device = await getDevice(db, scope, deviceId)
    const { logName } = question.payload
    note({ ...about(device), ...(logName !== undefined && { details: { log: logName } }) })
    checkQueryable(device)
    const who = 'id' in caller ? caller.id : ''
    if (countOf(underWay, who) >= maxConcurrent) {
      throw new Problem('rate_limited', 'Too many live queries at once', { retryAfter: 1 })
    }
    addCount(underWay, who, 1)
    try {
      const outcome = await switchboard.request(device.id, question, { timeoutMs, signal: gone() })
      return { device, result: resultOf(outcome, device, timeoutMs) }
    } finally {
      addCount(underWay, who, -1)
    }
  }

  const questions: HandlersOf<typeof contract.deviceLogs> = {
    async show({ db, params: { deviceId, name }, ...asking }) {
      asking.note({ details: { log: name } })
      return findLog(logsIn((await ask(db, asking, deviceId, listLogsQuery)).result), name)
    },
    async events({ db, params: { deviceId, name }, query, ...asking }) {
      const { result } = await ask(db, asking, deviceId, eventsQuery(name, query, timeoutMs))
      const { events, total } = eventsIn(result, query.limit)
      return toPage(events, total, query)
    },
    async record({ db, params: { deviceId, name, recordId }, ...asking }) {
      return eventIn((await ask(db, asking, deviceId, recordQuery(name, Number(recordId)))).result)
    },
  }
  const liveLogs: HandlersOf<typeof contract.liveLogs> = {
    ...questions,
    async list({ db, params: { deviceId }, ...asking }) {
      return { data: logsIn((await ask(db, asking, deviceId, listLogsQuery)).result) }
    },
  }
  const logLevels: HandlersOf<typeof contract.logLevels> = {
    // The agent applies it before it is audited: no transaction may be open while the service waits for the
    // agent.
    set: inSteps({
      async prepare({ storage, params, body, ...asking }) {
        await ask(storage.read, asking, params.id, { type: 'set_log_level', payload: body })
      },
      run: async ({ body: { level, durationMinutes }, now }) => ({
        level,
        until: addSeconds(now, durationMinutes * 60),
      }),
    }),
  }
  return { liveLogs, deviceLogs: questions, logLevels }
}

const about = ({ id, orgId, hostname }: Device): AuditFacts => ({
  orgId,
  resourceId: id,
  resourceName: hostname,
})

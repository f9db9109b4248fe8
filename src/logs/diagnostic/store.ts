import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { checkDevice } from '../../devices/records.ts'
import type { Db } from '../../storage/open.ts'
import { contains } from '../../storage/query/expressions.ts'
import { rowsOf } from '../../storage/schema/rows.ts'
import type { AgentLogRow } from '../../storage/schema/tables.ts'
import { insertLogs } from '../insert.ts'
import { type LogPage, type LogQuery, pageOfLogs } from '../list.ts'
import type { DiagnosticLog } from './contract.ts'

const logRows = rowsOf<AgentLogRow>()({ json: ['fields'] })

export const toDiagnosticLog = (row: AgentLogRow) => logRows.read(row) as DiagnosticLog

export type DiagnosticQuery = LogQuery & {
  level?: string[] | undefined
  component?: string | undefined
  since?: Instant | undefined
  until?: Instant | undefined
  search?: string | undefined
}

/**
 * Newest first, or in order of arrival after a sequence number.
 * @throws not_found, also for a device outside the scope
 */
export async function listDiagnosticLogs(
  db: Db,
  scope: Scope,
  deviceId: string,
  query: DiagnosticQuery,
): Promise<LogPage<DiagnosticLog>> {
  const { level, component, since, until, search } = query
  await checkDevice(db, scope, deviceId)
  const found = db
    .selectFrom('agent_logs')
    .where('device_id', '=', deviceId)
    .$if(level !== undefined, (q) => q.where('level', 'in', level!))
    .$if(component !== undefined, (q) => q.where('component', '=', component!))
    .$if(since !== undefined, (q) => q.where('timestamp', '>=', since!))
    .$if(until !== undefined, (q) => q.where('timestamp', '<', until!))
    .$if(!!search, (q) => q.where(contains('message', search!)))
  return pageOfLogs(db, deviceId, found, query, toDiagnosticLog)
}

export async function insertDiagnosticLogs(db: Db, logs: readonly DiagnosticLog[]): Promise<void> {
  const insert = (some: readonly DiagnosticLog[]) =>
    db
      .insertInto('agent_logs')
      .values(some.map((log) => logRows.write(log)))
      .execute()
  await insertLogs(db, logs, insert, (log, message) => ({
    ...log,
    component: 'service',
    message,
    fields: null,
    agentVersion: null,
  }))
}

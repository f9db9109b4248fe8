import { newId } from '../../core/new-id.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { placed } from '../places.ts'
import { redacted, redactedData } from '../redaction.ts'
import { dated } from '../rules.ts'
import type * as contract from './contract.ts'
import { insertDiagnosticLogs, listDiagnosticLogs } from './store.ts'

type Logs = typeof contract.diagnosticLogs
type Unplaced = Omit<contract.DiagnosticLog, 'seq'>[]

export const diagnosticLogs: HandlersOf<Logs> = {
  submit: inSteps<Logs['submit'], Unplaced>({
    // Nobody else waits meanwhile.
    async prepare({ caller: { deviceId, orgId, device }, body: { logs }, now }) {
      return logs.map(({ timestamp: said, fields: given = null, agentVersion, message, ...log }) => {
        const { timestamp, data } = dated(said, given, now)
        return {
          id: newId(),
          deviceId,
          orgId,
          ...log,
          timestamp,
          message: redacted(message),
          fields: redactedData(data),
          agentVersion: agentVersion ?? device.agent_version,
          createdAt: now,
        }
      })
    },
    async run({ db, caller: { deviceId } }, logs) {
      await insertDiagnosticLogs(db, await placed(db, deviceId, logs))
      return { received: logs.length }
    },
  }),

  // A device may have said very much.
  list: ({ storage, scope, params, query }) => listDiagnosticLogs(storage.heavy, scope, params.id, query),
}

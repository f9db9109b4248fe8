import { newId } from '../../core/new-id.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import type { LogQuota } from '../quota.ts'
import { redactData, redactText } from '../redaction.ts'
import { withPlausibleTime } from '../rules.ts'
import { withSequence } from '../sequence.ts'
import { sizeOf } from '../sizes.ts'
import type * as contract from './contract.ts'
import { insertDiagnosticLogs, listDiagnosticLogs } from './store.ts'

type Logs = typeof contract.diagnosticLogs
type Unplaced = { logs: Omit<contract.DiagnosticLog, 'seq'>[]; bytes: number }

export const diagnosticLogHandlers = (quota: LogQuota): HandlersOf<Logs> => ({
  submit: inSteps<Logs['submit'], Unplaced>({
    // Runs before the transaction, so no other writer waits.
    async prepare({ caller, body, now, limit }) {
      const { deviceId, orgId, device } = caller
      const logs = body.logs.map(
        ({ timestamp: reported, fields: given = null, agentVersion, message, ...log }) => {
          const { timestamp, data } = withPlausibleTime(reported, given, now)
          return {
            id: newId(),
            deviceId,
            orgId,
            ...log,
            timestamp,
            message: redactText(message),
            fields: redactData(data),
            agentVersion: agentVersion ?? device.agent_version,
            createdAt: now,
          }
        },
      )
      const sizes = logs.map(({ message, fields, component }) => sizeOf(fields, message, component))
      const bytes = sizes.reduce((sum, size) => sum + size, 0)
      quota.applyRateLimit({ deviceId, orgId }, logs.length, () => limit('LOG_BYTES', deviceId, bytes))
      return { logs, bytes }
    },
    async run({ db, caller }, unplaced) {
      await insertDiagnosticLogs(db, await withSequence(db, caller, unplaced, quota))
      return { received: unplaced.logs.length }
    },
  }),

  // A device may have very many entries.
  list: ({ readQuery, scope, params, query }) =>
    readQuery((on) => listDiagnosticLogs(on, scope, params.id, query)),
})

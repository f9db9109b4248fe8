import { newId } from '../../core/new-id.ts'
import type { HandlersOf } from '../../handler.ts'
import { dated } from '../rules.ts'
import type * as contract from './contract.ts'
import { insertDiagnosticLogs, listDiagnosticLogs } from './store.ts'

export const diagnosticLogs: HandlersOf<typeof contract.diagnosticLogs> = {
  async submit({ db, caller: { deviceId, orgId, device }, body: { logs }, now }) {
    const entries = logs.map(({ timestamp: said, fields: given = null, agentVersion, ...log }) => {
      const { timestamp, data: fields } = dated(said, given, now)
      const version = agentVersion ?? device.agent_version
      return {
        id: newId(),
        deviceId,
        orgId,
        ...log,
        timestamp,
        fields,
        agentVersion: version,
        createdAt: now,
      }
    })
    await insertDiagnosticLogs(db, entries)
    return { received: entries.length }
  },

  // A device may have said very much.
  list: ({ storage, scope, params, query }) => listDiagnosticLogs(storage.heavy, scope, params.id, query),
}

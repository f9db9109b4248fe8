import { getDevice } from '../devices/store.ts'
import { emit } from '../events/outbox.ts'
import type { AuditFacts, HandlersOf } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import { checkOrg } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import { raiseAlert } from './raise.ts'
import {
  acknowledgeAlert,
  alertEvent,
  checkMayRaise,
  checkSameOrg,
  escalateAlert,
  resolveAlert,
} from './rules.ts'
import * as store from './store.ts'

export const alerts: HandlersOf<typeof contract.alerts> = {
  async list({ db, readQuery, readQueryIfWide, scope, query }) {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    // A search for part of a text reads every visible alert.
    const listed = (on: Db) => store.listAlerts(on, scope, query)
    return query.search ? readQuery(listed) : readQueryIfWide(listed)
  },

  async create({ db, scope, body, now, note, quota }) {
    const orgId = await resolveOrg(db, scope, body.orgId)
    checkMayRaise(scope, body.deviceId)
    if (body.deviceId !== null) checkSameOrg(await getDevice(db, scope, body.deviceId), orgId)
    await quota({ orgId })
    const alert = await raiseAlert(db, { ...body, orgId }, now)
    note({ resourceName: alert.title })
    return alert
  },

  show: ({ db, scope, params }) => store.getAlert(db, scope, params.id),

  async acknowledge({ db, scope, params, caller, now, note }) {
    const before = await store.lockAlert(db, scope, params.id)
    const after = acknowledgeAlert(before, { by: caller.id, now })
    await store.changeAlert(db, scope, after)
    await emit(db, alertEvent('alert.acknowledged', after), now)
    note(auditFacts(before, after))
    return after
  },

  async resolve({ db, scope, params, body, caller, now, note }) {
    const before = await store.lockAlert(db, scope, params.id)
    const after = resolveAlert(before, body.resolutionNote, { by: caller.id, now })
    await store.changeAlert(db, scope, after)
    await emit(db, alertEvent('alert.resolved', after), now)
    note(auditFacts(before, after))
    return after
  },

  async escalate({ db, scope, params, caller, now, note }) {
    const before = await store.lockAlert(db, scope, params.id)
    const after = escalateAlert(before, { by: caller.id, now })
    await store.changeAlert(db, scope, after)
    await emit(db, alertEvent('alert.escalated', after), now)
    note(auditFacts(before, after))
    return after
  },
}

/** The audit facts of a change of state. */
function auditFacts(before: contract.Alert, after: contract.Alert): AuditFacts {
  const of = ({ status, escalatedAt, resolutionNote }: contract.Alert) => ({
    status,
    escalatedAt,
    resolutionNote,
  })
  return { resourceName: after.title, before: of(before), after: of(after) }
}

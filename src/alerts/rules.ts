import { invalid, Problem } from '../core/errors.ts'
import type { EventType } from '../core/event-types.ts'
import { isNarrowed, type Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import type { Alert, NewAlert } from './contract.ts'

export function makeAlert(
  wanted: NewAlert & { orgId: string },
  { id, now }: { id: string; now: Instant },
): Alert {
  const { orgId, deviceId, ruleId, severity, title, message, context } = wanted
  return {
    id,
    orgId,
    deviceId,
    ruleId,
    status: 'active',
    severity,
    title,
    message,
    context,
    triggeredAt: now,
    acknowledgedAt: null,
    acknowledgedBy: null,
    escalatedAt: null,
    escalatedBy: null,
    resolvedAt: null,
    resolvedBy: null,
    resolutionNote: null,
    createdAt: now,
    updatedAt: now,
  }
}

/**
 * An alert without a device concerns the entire organization: callers who see only a part of it must not raise one.
 * @throws site_access_denied
 */
export function checkMayRaise(scope: Scope, deviceId: string | null): void {
  if (deviceId !== null || !isNarrowed(scope)) return
  throw new Problem('site_access_denied', 'Your access is limited to some devices: name one')
}

/** @throws invalid_request for a device of another organization */
export function checkSameOrg(device: { orgId: string }, orgId: string): void {
  if (device.orgId === orgId) return
  throw invalid([{ path: 'body.deviceId', message: 'does not belong to the specified organization' }])
}

type Actor = { by: string; now: Instant }

/** @throws invalid_request unless the alert is active */
export function acknowledgeAlert(alert: Alert, { by, now }: Actor): Alert {
  if (alert.status !== 'active') throw transitionRefused('acknowledge', alert)
  return { ...alert, status: 'acknowledged', acknowledgedAt: now, acknowledgedBy: by, updatedAt: now }
}

/** @throws invalid_request when the alert is already resolved */
export function resolveAlert(alert: Alert, resolutionNote: string | null, { by, now }: Actor): Alert {
  if (alert.status === 'resolved') throw stateFault('Alert is already resolved')
  return { ...alert, status: 'resolved', resolvedAt: now, resolvedBy: by, resolutionNote, updatedAt: now }
}

/**
 * The status does not change: an escalation neither acknowledges nor resolves the alert. It can be repeated; the
 * record stores the last time, the audit log all of them. @throws invalid_request unless the alert is active or
 * acknowledged
 */
export function escalateAlert(alert: Alert, { by, now }: Actor): Alert {
  if (alert.status !== 'active' && alert.status !== 'acknowledged') throw transitionRefused('escalate', alert)
  return { ...alert, escalatedAt: now, escalatedBy: by, updatedAt: now }
}

const transitionRefused = (act: string, { status }: Alert): Problem =>
  stateFault(`Cannot ${act} alert with status: ${status}`)

const stateFault = (message: string): Problem => invalid([{ path: 'params.id', message }], message)

/** The webhook event of a change of an alert. */
export function alertEvent(type: Extract<EventType, `alert.${string}`>, alert: Alert) {
  const { id: alertId, orgId, ruleId, deviceId, severity, title, message } = alert
  const which = { alertId, ruleId, deviceId }
  const data = {
    'alert.triggered': { ...which, severity, title, message },
    'alert.acknowledged': { ...which, acknowledgedBy: alert.acknowledgedBy },
    'alert.resolved': { ...which, resolvedBy: alert.resolvedBy, resolutionNote: alert.resolutionNote },
    'alert.escalated': { ...which, severity, escalatedBy: alert.escalatedBy },
  }
  return { orgId, type, data: data[type] }
}
